"""What an uninstallation has to do on this node: our entries go, and with the last owner our files.

Pure: an inspection and what is no longer wanted in, actions with reasons out. Called by ``operations``.
Order, and why: with force what runs the shims ends, the runtime forgets the handlers, then their shims go, and the
state last of all, so that a run killed anywhere is finished by the next.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace

from node_installer.domain import takeover, target
from node_installer.domain.actions import Action, EndProcesses, Plan, Reason, RemoveDirectory, RemoveFile, WriteFile
from node_installer.domain.edits import Edits, edits_for
from node_installer.domain.inspection import Inspection, Layout
from node_installer.domain.restarts import restart_for, tried_anew
from node_installer.domain.state import write_state
from node_installer.domain.unwanted import Going, Unwanted, going


def plan_uninstall(found: Inspection, unwanted: Unwanted) -> Plan:
    """Return what is to be done so that nothing of what is unwanted is left; nothing where none of it is there.

    Raises:
        InstallError: ``ShimsInUse``, or the configuration cannot be read; nothing was done.
    """
    found = tried_anew(found, unwanted.spec)
    aim = _aim(found)
    goes = going(found, aim, unwanted)
    edits = edits_for(found, aim, goes.shims, list(goes.taken))
    early, late = _former(found, aim, goes)
    # What a distribution finds by itself goes with its program, without any edit.
    edits = replace(edits, meaning_changes=edits.meaning_changes or bool(early))
    kept = tuple(path for path in found.state.retired if path in found.running and goes.shims)
    gone = [shim.path for shim in goes.removed.values()] + [path for path in found.state.retired if path not in kept]
    before, after = _endings(found, [*gone, *(item.binary for item in goes.taken)]) if unwanted.force else ([], [])
    actions: list[Action] = [*_write_files(edits, goes.handlers), *before, *early]
    restart = restart_for(found, edits, goes.shims, frozenset(goes.handlers))
    actions += [restart] if restart else []
    actions += after
    actions += [
        RemoveFile(path, Reason.SHIM_UNWANTED, "nobody wants it any more")
        for path in dict.fromkeys(gone)
        if path in found.binaries
    ]
    actions += late
    folders = takeover.empty_folders(goes.taken, ())
    if goes.shims:
        state = replace(found.state, shims=goes.shims, configs={**edits.configs}, retired=kept)
        if state != found.state or found.exposed:
            actions.append(write_state(Layout(found.base).state, state, "what is left on this node"))
        return Plan(tuple(actions), folders, goes.results(found), goes.notes)
    outside, inside = _directories(found, used=bool(actions))
    actions += outside
    if not found.state.empty:
        actions.append(RemoveFile(Layout(found.base).state, Reason.NOTHING_LEFT, "the last shim is gone"))
    return Plan(tuple(actions), (*folders, *inside), goes.results(found), goes.notes)


def _endings(found: Inspection, paths: Iterable[str]) -> tuple[list[Action], list[Action]]:
    """Return what ends the processes of shims before the restart, and what is left of them or was started after it.

    Before it only the runtime does, because one that starts while shims are dead may never come up (``processes``).
    After it whatever it takes: the runtime has forgotten the handlers, so nothing starts them again.
    """
    programs = tuple(dict.fromkeys(paths))
    if not programs:
        return [], []
    processes = tuple(process for path in programs for process in found.executing.get(path, ()))
    why = "force is allowed, and pods must not be running when the runtime forgets their handler"
    before = [EndProcesses(programs, processes, signals=False, reason=Reason.SHIM_IN_USE, message=why)]
    why = "force is allowed, should anything run it still or again"
    after = EndProcesses(programs, (), signals=True, reason=Reason.SHIM_IN_USE, message=why)
    return [*before] if processes else [], [after]


def _former(found: Inspection, aim: target.Target, goes: Going) -> tuple[list[Action], list[Action]]:
    """Return what goes of other installers before and after the restart; what runs is not spared: it was checked."""
    binaries = tuple(item.binary for item in goes.taken if item.binary in found.binaries)
    early, late, _ = takeover.after(replace(found, running={}), aim, list(goes.taken), binaries)
    return early, late


def _aim(found: Inspection) -> target.Target:
    aim = target.choose(found)
    if found.state.configs and aim.path not in found.state.configs:
        # The entries stand where they were put, whatever would be chosen today.
        return replace(aim, path=next(iter(found.state.configs)))
    return aim


def _write_files(edits: Edits, handlers: Sequence[str]) -> list[Action]:
    names = ", ".join(handlers) or "nothing"
    actions: list[Action] = []
    for path, content in sorted(edits.files.items()):
        if content is None:
            actions.append(RemoveFile(path, Reason.HANDLER_UNWANTED, "it was made for our entries alone"))
        else:
            message = f"containerd must forget the handler of {names}"
            actions.append(WriteFile(path, content, Reason.HANDLER_UNWANTED, message))
    return actions


def _directories(found: Inspection, *, used: bool) -> tuple[list[Action], tuple[Action, ...]]:
    """Return the directories that go before the state does, and those around the state, innermost first.

    ``used``: this run makes our own directories, for its journal, if they are not there.
    """
    layout = Layout(found.base)
    former = found.journal.directories if found.journal else ()
    ours = {*found.state.directories, *former}
    if found.state.empty:
        # Ours by their names, also where a killed run had no time to write down that it made them.
        ours |= {*found.own_directories}
    made = sorted(ours - {layout.backups})
    around = [path for path in made if path == found.base or found.base.startswith(f"{path}/")]
    inner = [path for path in made if path.startswith(f"{found.base}/")]
    outside = [path for path in made if path not in around and path not in inner]
    there = {*found.directories, *(layout.folders if used else ())}

    def removals(paths: Iterable[str]) -> list[Action]:
        message = "only if nothing is left in it"
        return [RemoveDirectory(path, Reason.NOTHING_LEFT, message) for path in paths if path in there]

    return removals(reversed(outside)), tuple(removals([*reversed(inner), *reversed(around)]))
