"""Whether the container runtime has to be restarted: it disturbs a node, so only where nothing less will do.

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
    """Return the restart after which the runtime has these shims and not those handlers, None if it is as wanted.

    Raises:
        InstallError: ``RefusedBefore``: the runtime did not come up with this a short time ago.
    """
    restart = _restart(found, edits, shims, absent)
    if restart is None:
        return None
    key = key_of({**found.files, **edits.files}, shims)
    if found.journal is None:  # else the node is neither as before nor as wanted: it must become one of them
        check_refused(found.refusal, key)
    return replace(restart, key=key)


def tried_anew(found: Inspection, spec: InstallSpec | None) -> Inspection:
    """Return the node as a run is to see it: what was refused counts for nothing where a user asked for a new try."""
    return replace(found, refusal=None) if spec is not None and spec.retry_refused else found


def _restart(
    found: Inspection, edits: Edits, shims: Mapping[str, ShimState], absent: frozenset[str]
) -> RestartRuntime | None:
    present = {handler: shim.path for handler, shim in sorted(shims.items())}
    if edits.meaning_changes:
        return RestartRuntime(present, absent, Reason.CONFIG_CHANGED, "the configuration means something else now")
    runtimes = found.live.runtimes if found.live else None
    if runtimes is not None:
        missing = [handler for handler, path in present.items() if runtimes.get(handler) != path]
        stale = sorted(absent & set(runtimes))
        if missing or stale:
            message = f"the running containerd does not agree with its file on {', '.join(missing + stale)}"
            return RestartRuntime(present, absent, Reason.RUNTIME_OUTDATED, message)
    if _interrupted(found, told=runtimes is not None):
        message = "a former run was killed before it saw the runtime come up"
        return RestartRuntime(present, absent, Reason.RUN_INTERRUPTED, message)
    return None


def _interrupted(found: Inspection, *, told: bool) -> bool:
    """Return whether a killed run left a restart that nobody can be sure of.

    Options of a handler cannot be asked for.
    """
    journal = found.journal
    if journal is None or not journal.restart:
        return False
    return not (journal.phase is Phase.RESTARTING and journal.visible and told)
