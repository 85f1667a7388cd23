"""Decides whether the container runtime has to be restarted: this disturbs a node, so it is the last resort.

Pure: an inspection and edits in, an action or none out. Called by ``plan`` and ``removal``.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from node_installer.domain.actions import Reason, RestartRuntime
from node_installer.domain.edits import Edits
from node_installer.domain.inspection import Inspection
from node_installer.domain.refusal import check_refused, key_of
from node_installer.domain.state import Phase, ShimState
from trellis.installer_api.spec import InstallSpec


def restart_for(
    found: Inspection, edits: Edits, shims: Mapping[str, ShimState], absent: frozenset[str]
) -> RestartRuntime | None:
    """Return the restart after which the runtime has these shims and not those handlers, None if it is not needed.

    Raises:
        InstallError: ``RefusedBefore``: the runtime recently did not start with this configuration.
    """
    restart = _restart(found, edits, shims, absent)
    if restart is None:
        return None
    key = key_of({**found.files, **edits.files}, shims)
    if found.journal is None:  # with a journal, the node has neither its former nor its target state
        check_refused(found.refusal, key)
    return replace(restart, key=key)


def without_refusal(found: Inspection, spec: InstallSpec | None) -> Inspection:
    """Return the node, without its stored refusal if a user requested a retry."""
    return replace(found, refusal=None) if spec is not None and spec.retry_refused else found


def _restart(
    found: Inspection, edits: Edits, shims: Mapping[str, ShimState], absent: frozenset[str]
) -> RestartRuntime | None:
    present = {handler: shim.path for handler, shim in sorted(shims.items())}
    if edits.meaning_changes:
        return RestartRuntime(present, absent, Reason.CONFIG_CHANGED, "the meaning of the configuration changes")
    runtimes = found.live.runtimes if found.live else None
    if runtimes is not None:
        missing = [handler for handler, path in present.items() if runtimes.get(handler) != path]
        stale = sorted(absent & set(runtimes))
        if missing or stale:
            message = f"the running containerd differs from its configuration in {', '.join(missing + stale)}"
            return RestartRuntime(present, absent, Reason.RUNTIME_OUTDATED, message)
    if _interrupted(found, runtimes_known=runtimes is not None):
        message = "a former run was killed before the runtime had started"
        return RestartRuntime(present, absent, Reason.RUN_INTERRUPTED, message)
    return None


def _interrupted(found: Inspection, *, runtimes_known: bool) -> bool:
    """Return whether a killed run left a restart with an unknown outcome.

    Options of a handler cannot be queried.
    """
    journal = found.journal
    if journal is None or not journal.restart:
        return False
    return not (journal.phase is Phase.RESTARTING and journal.visible and runtimes_known)
