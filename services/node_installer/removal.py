"""What an uninstallation has to do on this node: our entries go, and with the last owner our files.

Pure: an inspection and what is no longer wanted in, actions with reasons out. Called by ``operations``.
Order, and why: first the runtime forgets the handlers, then their shims go, and the state last of all, so that a run
killed anywhere is finished by the next.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

from node_installer import target
from node_installer.actions import Action, Plan, Reason, RemoveDirectory, RemoveFile, WriteFile
from node_installer.edits import Edits, edits_for
from node_installer.errors import InstallError
from node_installer.inspection import Inspection, Layout
from node_installer.restarts import restart_for
from node_installer.state import ShimState
from trellis.install_results import FailureReason, ShimResult
from trellis.installing import InstallSpec


@dataclass(frozen=True, slots=True)
class Unwanted:
    """What is to go: what a wish names, for its owners; or everything of ours (None). ``force``: although it runs."""

    spec: InstallSpec | None
    force: bool = False


def plan_uninstall(found: Inspection, unwanted: Unwanted) -> Plan:
    """Return what is to be done so that nothing of what is unwanted is left; nothing where none of it is there.

    Raises:
        InstallError: ``ShimsInUse``, or the configuration cannot be read; nothing was done.
    """
    shims = _remaining(found, unwanted)
    removed = {handler: shim for handler, shim in found.state.shims.items() if handler not in shims}
    _check_use(found, removed, unwanted, everything=not shims)
    aim = _aim(found)
    edits = edits_for(found, aim, shims, [])
    kept = tuple(path for path in found.state.retired if path in found.running and shims)
    actions: list[Action] = _write_files(edits, removed)
    restart = restart_for(found, edits, shims, frozenset(removed))
    actions += [restart] if restart else []
    gone = [shim.path for shim in removed.values()] + [path for path in found.state.retired if path not in kept]
    actions += [
        RemoveFile(path, Reason.SHIM_UNWANTED, "nobody wants it any more")
        for path in dict.fromkeys(gone)
        if path in found.binaries
    ]
    warnings = _unknown_owners(found, unwanted)
    results = tuple(ShimResult(handler, shim.digest, shim.sha256) for handler, shim in sorted(removed.items()))
    if shims:
        state = replace(found.state, shims=shims, configs={**edits.configs}, retired=kept)
        if state != found.state:
            layout = Layout(found.base)
            message = "what is left on this node"
            actions.append(WriteFile(layout.state, state.to_bytes(), Reason.STATE_CHANGED, message))
        return Plan(tuple(actions), (), results, warnings)
    outside, inside = _directories(found)
    actions += outside
    if not found.state.empty:
        actions.append(RemoveFile(Layout(found.base).state, Reason.NOTHING_LEFT, "the last shim is gone"))
    return Plan(tuple(actions), inside, results, warnings)


def _aim(found: Inspection) -> target.Target:
    aim = target.choose(found)
    if found.state.configs and aim.path not in found.state.configs:
        # The entries stand where they were put, whatever would be chosen today.
        return replace(aim, path=next(iter(found.state.configs)))
    return aim


def _remaining(found: Inspection, unwanted: Unwanted) -> dict[str, ShimState]:
    if unwanted.spec is None:
        return {}
    shims = dict(found.state.shims)
    for wish in unwanted.spec.shims:
        known = shims.get(wish.handler)
        if known is None or wish.owner not in known.owners:
            continue
        owners = tuple(owner for owner in known.owners if owner != wish.owner)
        if owners:
            shims[wish.handler] = replace(known, owners=owners)
        else:
            del shims[wish.handler]
    return shims


def _unknown_owners(found: Inspection, unwanted: Unwanted) -> tuple[str, ...]:
    texts = []
    for wish in unwanted.spec.shims if unwanted.spec else ():
        known = found.state.shims.get(wish.handler)
        if known is not None and wish.owner not in known.owners:
            texts.append(
                f"handler {wish.handler!r} stays: it belongs to {', '.join(known.owners)}, not to {wish.owner}"
            )
    return tuple(texts)


def _check_use(found: Inspection, removed: Mapping[str, ShimState], unwanted: Unwanted, *, everything: bool) -> None:
    if unwanted.force:
        return
    paths = [shim.path for shim in removed.values()] + list(found.state.retired if everything else ())
    used = [f"{path} ({', '.join(map(str, found.running[path]))})" for path in paths if path in found.running]
    if used:
        message = (
            f"shims still run pods on this node: {'; '.join(used)} (process ids): delete the pods that use these "
            "handlers first, or uninstall with --force and have them killed later by whoever owns them"
        )
        raise InstallError(FailureReason.SHIMS_IN_USE, message)


def _write_files(edits: Edits, removed: Mapping[str, ShimState]) -> list[Action]:
    names = ", ".join(sorted(removed)) or "nothing"
    actions: list[Action] = []
    for path, content in sorted(edits.files.items()):
        if content is None:
            actions.append(RemoveFile(path, Reason.HANDLER_UNWANTED, "it was made for our entries alone"))
        else:
            message = f"containerd must forget the handler of {names}"
            actions.append(WriteFile(path, content, Reason.HANDLER_UNWANTED, message))
    return actions


def _directories(found: Inspection) -> tuple[list[Action], tuple[Action, ...]]:
    """Return the directories that go before the state does, and those around the state, innermost first."""
    layout = Layout(found.base)
    # Ours by their names, also where a killed run had no time to write down that it made them.
    former = found.journal.directories if found.journal else ()
    made = sorted({*found.state.directories, *former, *layout.folders} - {layout.backups})
    around = [path for path in made if path == found.base or found.base.startswith(f"{path}/")]
    inner = [path for path in made if path.startswith(f"{found.base}/")]
    outside = [path for path in made if path not in around and path not in inner]
    message = "only if nothing is left in it"
    return (
        [
            RemoveDirectory(path, Reason.NOTHING_LEFT, message)
            for path in reversed(outside)
            if path in found.directories
        ],
        tuple(
            RemoveDirectory(path, Reason.NOTHING_LEFT, message)
            for path in [*reversed(inner), *reversed(around)]
            if path in found.directories
        ),
    )
