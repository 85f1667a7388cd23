"""Plans an uninstallation on this node: it removes entries of Trellis, and with the last owner its files.

Pure: an inspection and the unwanted shims in, actions with reasons out. Called by ``operations``.
Order, and why: with force the processes of the shims end, the runtime drops the handlers, then their shims are removed,
and the state last of all, so that the next run finishes a run that was killed at any point.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace

from node_installer.domain import takeover, target
from node_installer.domain.actions import Action, EndProcesses, Plan, Reason, RemoveDirectory, RemoveFile, WriteFile
from node_installer.domain.edits import Edits, edits_for
from node_installer.domain.inspection import Inspection, Layout
from node_installer.domain.restarts import restart_for, without_refusal
from node_installer.domain.state import write_state
from node_installer.domain.unwanted import Removal, Unwanted, handlers_to_remove


def plan_uninstall(found: Inspection, unwanted: Unwanted) -> Plan:
    """Return the actions that remove the unwanted shims; no actions if none of them exists.

    Raises:
        InstallError: ``ShimsInUse``, or the configuration cannot be read; nothing was changed.
    """
    found = without_refusal(found, unwanted.spec)
    aim = _aim(found)
    goes = handlers_to_remove(found, aim, unwanted)
    edits = edits_for(found, aim, goes.shims, list(goes.adoptions))
    early, late = _former(found, aim, goes)
    # A handler that a distribution detects by itself is removed with its program, without any edit.
    edits = replace(edits, meaning_changes=edits.meaning_changes or bool(early))
    kept = tuple(path for path in found.state.retired if path in found.running and goes.shims)
    to_remove = [shim.path for shim in goes.removed.values()] + [
        path for path in found.state.retired if path not in kept
    ]
    before, after = (
        _endings(found, [*to_remove, *(item.binary for item in goes.adoptions)]) if unwanted.force else ([], [])
    )
    actions: list[Action] = [*_write_files(edits, goes.handlers), *before, *early]
    restart = restart_for(found, edits, goes.shims, frozenset(goes.handlers))
    actions += [restart] if restart else []
    actions += after
    actions += [
        RemoveFile(path, Reason.SHIM_UNWANTED, "it has no owner any more")
        for path in dict.fromkeys(to_remove)
        if path in found.binaries
    ]
    actions += late
    folders = takeover.empty_folders(goes.adoptions, ())
    if goes.shims:
        state = replace(found.state, shims=goes.shims, configs={**edits.configs}, retired=kept)
        if state != found.state or found.exposed:
            actions.append(write_state(Layout(found.base).state, state, "remaining state of this node"))
        return Plan(tuple(actions), folders, goes.results(found), goes.notes)
    outside, inside = _directories(found, used=bool(actions))
    actions += outside
    if not found.state.empty:
        actions.append(RemoveFile(Layout(found.base).state, Reason.NOTHING_LEFT, "the last shim is removed"))
    return Plan(tuple(actions), (*folders, *inside), goes.results(found), goes.notes)


def _endings(found: Inspection, paths: Iterable[str]) -> tuple[list[Action], list[Action]]:
    """Return the actions that end the processes of shims before the restart, and remaining or new ones after it.

    Before it, only the runtime ends them, because a runtime that starts while shims are dead may hang (``processes``).
    After it, they are signalled: the runtime has dropped the handlers, so no shim is restarted.
    """
    programs = tuple(dict.fromkeys(paths))
    if not programs:
        return [], []
    processes = tuple(process for path in programs for process in found.executing.get(path, ()))
    reason = "force is allowed, and pods must end before the runtime drops their handler"
    before = [EndProcesses(programs, processes, signals=False, reason=Reason.SHIM_IN_USE, message=reason)]
    reason = "force is allowed, and remaining or new processes must end"
    after = EndProcesses(programs, (), signals=True, reason=Reason.SHIM_IN_USE, message=reason)
    return [*before] if processes else [], [after]


def _former(found: Inspection, aim: target.Target, goes: Removal) -> tuple[list[Action], list[Action]]:
    """Return the removals of other installers' files before and after the restart; their use was checked before."""
    binaries = tuple(item.binary for item in goes.adoptions if item.binary in found.binaries)
    early, late, _ = takeover.after(replace(found, running={}), aim, list(goes.adoptions), binaries)
    return early, late


def _aim(found: Inspection) -> target.Target:
    aim = target.choose(found)
    if found.state.configs and aim.path not in found.state.configs:
        # The entries are in the file of the state, even if another one would be chosen now.
        return replace(aim, path=next(iter(found.state.configs)))
    return aim


def _write_files(edits: Edits, handlers: Sequence[str]) -> list[Action]:
    names = ", ".join(handlers) or "nothing"
    actions: list[Action] = []
    for path, content in sorted(edits.files.items()):
        if content is None:
            actions.append(RemoveFile(path, Reason.HANDLER_UNWANTED, "it was created for entries of Trellis only"))
        else:
            message = f"containerd must drop the handler of {names}"
            actions.append(WriteFile(path, content, Reason.HANDLER_UNWANTED, message))
    return actions


def _directories(found: Inspection, *, used: bool) -> tuple[list[Action], tuple[Action, ...]]:
    """Return the directories to remove before the state, and those around the state, innermost first.

    ``used``: this run creates the directories of Trellis, for its journal, if they do not exist.
    """
    layout = Layout(found.base)
    former = found.journal.directories if found.journal else ()
    ours = {*found.state.directories, *former}
    if found.state.empty:
        # Directories with names of Trellis, also if a killed run created them without recording it.
        ours |= {*found.own_directories}
    made = sorted(ours - {layout.backups})
    around = [path for path in made if path == found.base or found.base.startswith(f"{path}/")]
    inner = [path for path in made if path.startswith(f"{found.base}/")]
    outside = [path for path in made if path not in around and path not in inner]
    there = {*found.directories, *(layout.folders if used else ())}

    def removals(paths: Iterable[str]) -> list[Action]:
        message = "only if it is empty"
        return [RemoveDirectory(path, Reason.NOTHING_LEFT, message) for path in paths if path in there]

    return removals(reversed(outside)), tuple(removals([*reversed(inner), *reversed(around)]))
