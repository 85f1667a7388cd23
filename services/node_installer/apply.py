"""Executes a plan on the node, so that it can be rolled back or finished whenever this process is killed.

In: a plan. Out: effects on disk and runtime, and which of them happened. Called by ``operations``.
The journal is written before the first effect: it names every file that will change and its backup.
- Killed while applying: the next run creates a plan for the present state, and keeps the first run's backups.
- An effect fails, or the runtime does not start: all files are restored, and the runtime is restarted if it had been.
- Killed while rolling back: the next run rolls back before any other action.
Invariant: no journal exists if and only if the node has the result of a complete plan, or its state before one.
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field, replace
from typing import Final

from node_installer.domain import refusal, report
from node_installer.domain.actions import (
    MakeDirectory,
    Plan,
    PutShim,
    Reason,
    RemoveDirectory,
    RemoveFile,
    RestartRuntime,
    WriteFile,
)
from node_installer.domain.errors import InstallError
from node_installer.domain.inspection import Inspection, Layout
from node_installer.domain.refusal import Refusal
from node_installer.domain.state import Journal, Phase
from node_installer.interruption import INTERRUPTED, Interruption
from node_installer.node.disk import Disk
from node_installer.node.disk_errors import as_install_error
from node_installer.node.effects import Effects
from node_installer.node.runtime import agrees
from trellis.installer_api.result import FailureReason

Step = Callable[[str, str], AbstractContextManager[object]]
"""Reports the start of a step, and opens a span around it. Arguments: name of the span, line of the report."""
Check = Callable[[], None]
"""Verifies the result of a plan. Raises InstallError ``VerificationFailed``."""

_AS_BEFORE: Final = RestartRuntime({}, frozenset(), Reason.ROLLED_BACK, "the former configuration was restored")


class RolledBackError(InstallError):
    """The run failed after the runtime had been restarted; all changes were rolled back."""


@dataclass(frozen=True, slots=True)
class Executor:
    """Executor of plans on one node. ``step``: called around each action."""

    effects: Effects
    step: Step
    interruption: Interruption = field(default_factory=Interruption)

    @property
    def disk(self) -> Disk:
        """The disk of the node."""
        return self.effects.disk

    def run(self, found: Inspection, plan: Plan, operation: str, check: Check = lambda: None) -> bool:
        """Execute the plan; return True if the runtime was restarted for it. ``check``: if it fails, roll back.

        Raises:
            RolledBackError: the runtime did not start, or the check failed; the runtime runs as before, or the message
                states that it does not.
            InstallError: an effect failed before any restart; the node is unchanged.
        """
        self.interruption.hold()
        self._sweep(found)
        if not plan.actions and found.journal is None:
            self._last(found.base, plan)
            check()
            return False
        journal = self._begin(found, plan, operation)
        restarted = False
        for action in plan.actions:
            if self.interruption.requested and not restarted:
                self._fail(found, journal, INTERRUPTED, restart=False)
            try:
                if isinstance(action, RestartRuntime):
                    journal = journal.at(Phase.RESTARTING)
                    self._write_journal(found.base, journal)
                    restarted = True
                with self.step(type(action).__name__, report.action_line(action)):
                    self.effects.do(found, action)
            except (InstallError, OSError) as error:
                self._fail(found, journal, as_install_error(error), restart=restarted, plan=plan)
        try:
            check()
        except (InstallError, OSError) as error:
            self._fail(found, journal, as_install_error(error), restart=restarted, plan=plan)
        self._commit(found.base, journal)
        if restarted:
            self.disk.remove(refusal.PATH)
        self._last(found.base, plan)
        return restarted

    def finish_rollback(self, found: Inspection) -> None:
        """Finish a rollback that was killed, if there is one.

        Raises:
            RolledBackError: always then, with the cause of the failure of that run.
        """
        if found.journal is not None and found.journal.phase is Phase.ROLLING_BACK:
            cause = InstallError(FailureReason.INTERRUPTED, found.journal.cause)
            self._fail(found, found.journal, cause, restart=found.journal.restart)

    def tidy(self, found: Inspection) -> bool:
        """Remove the directories of a run that was killed when only these were left; True if there were any."""
        layout = Layout(found.base)
        if found.journal is not None or not found.state.empty or layout.own not in found.directories:
            return False
        self._sweep(found)
        self._remove_directories(found.base, sorted(layout.folders, reverse=True))
        return True

    def _begin(self, found: Inspection, plan: Plan, operation: str) -> Journal:
        layout = Layout(found.base)
        former = found.journal
        backups = dict(former.backups) if former else {}
        directories = list(former.directories) if former else []
        if found.state.empty:
            directories += [folder for folder in found.own_directories if folder not in directories]
        for action in plan.actions:
            if isinstance(action, MakeDirectory) and action.path not in found.directories:
                directories.append(action.path)
        for path in _touched(plan):
            backups.setdefault(path, f"{layout.backups}/{len(backups)}")
        restarts = [action for action in plan.actions if isinstance(action, RestartRuntime)]
        pending = former is not None and former.restart
        journal = Journal(
            operation,
            Phase.APPLYING,
            restart=bool(restarts) or pending,
            visible=former.visible if former and pending else any(_lacking(found, action) for action in restarts),
            backups=backups,
            directories=tuple(dict.fromkeys(directories)),
        )
        known = former.backups if former else {}
        new = [path for path in backups if path not in known]
        self._keep(layout, journal, new, found)
        return journal

    def _keep(self, layout: Layout, journal: Journal, new: list[str], found: Inspection) -> None:
        """Create the directories of Trellis, keep the former files, then write the journal, which records the run."""
        made = []
        try:
            for folder in _ancestors(layout.backups):
                if self.disk.exists(folder):
                    continue
                if folder == found.base:
                    self.disk.make_directories(folder, layout.own.rpartition("/")[2])
                    made += [folder, layout.own]
                else:
                    self.disk.make_directory(folder)
                    made.append(folder)
            for path in new:
                self.disk.keep(path, journal.backups[path])
            self._write_journal(found.base, replace(journal, directories=(*journal.directories, *_new(made, journal))))
        except (InstallError, OSError) as error:
            for path in new:
                with contextlib.suppress(InstallError, OSError):
                    self.disk.remove(journal.backups[path])
            for folder in reversed(made):
                self.disk.remove_directory(folder)
            raise as_install_error(error) from error

    def _fail(
        self, found: Inspection, journal: Journal, cause: InstallError, *, restart: bool, plan: Plan | None = None
    ) -> None:
        """Roll back all changes and raise the cause; processes that were ended stay so, and the error names them."""
        if ended := report.ended_processes_text(self.effects.ending.ended):
            cause = InstallError(cause.reason, f"{cause.message.rstrip('.')} (before that it {ended})", cause.shims)
        key = next((action.key for action in plan.actions if isinstance(action, RestartRuntime)), "") if plan else ""
        # A full disk must not prevent the rollback, which needs no space.
        with contextlib.suppress(InstallError, OSError):
            self._write_journal(found.base, replace(journal.at(Phase.ROLLING_BACK, cause.message), restart=restart))
        if restart and key:
            # After the journal: a run without a rollback must be retried, not refused.
            self._remember(key, cause)
        with self.step("RollBack", f"roll back all changes ({cause.reason}: {cause.message})"):
            for path, backup in journal.backups.items():
                if self._folder_exists(path):
                    self.disk.restore(path, backup)
            trouble = self._restart_again(found) if restart else ""
            self._commit(found.base, journal)
            self._remove_directories(found.base, sorted(journal.directories, reverse=True))
        if not restart:
            raise cause
        if trouble:
            # The new configuration was not the cause: after a repair it may be retried.
            self.disk.remove(refusal.PATH)
        message = f"{cause.message.rstrip('.')}. All changes are undone{trouble or ', and the runtime runs as before'}"
        raise RolledBackError(cause.reason, message, cause.shims) from cause

    def _remember(self, key: str, cause: InstallError) -> None:
        """Store the configuration with which the runtime did not start, before a restart that may kill this process."""
        if cause.reason in refusal.REASONS and self._folder_exists(refusal.PATH):
            content = Refusal(key, time.time(), cause.message).to_bytes()
            # It only prevents restarts: a full or read-only /run must not prevent the rollback.
            with contextlib.suppress(InstallError, OSError):
                self.disk.write(refusal.PATH, content, private=True)

    def _restart_again(self, found: Inspection) -> str:
        try:
            self.effects.do(found, _AS_BEFORE)
        except InstallError as error:
            return f", but the runtime does not start with its former configuration either: {error.message}"
        return ""

    def _commit(self, base: str, journal: Journal) -> None:
        """Delete the data for a rollback: first the journal, so that no journal ever names a missing backup."""
        layout = Layout(base)
        self.disk.remove(layout.journal)
        for backup in [*journal.backups.values(), *self.disk.matches(f"{layout.backups}/*")]:
            if self._folder_exists(backup):
                self.disk.remove(backup)
        self.disk.remove_directory(layout.backups)

    def _sweep(self, found: Inspection) -> None:
        """Remove leftovers of a killed run that no journal names: unfinished files, backups of a finished run."""
        layout = Layout(found.base)
        near = found.base.rpartition("/")[0]
        files = [layout.state, *found.binaries, *found.files, *(found.journal.backups if found.journal else ())]
        for folder in {path.rpartition("/")[0] for path in files} | {layout.bin, layout.own, layout.backups, near}:
            self.disk.sweep(folder)
        if found.journal is None and self.disk.exists(layout.backups):
            for backup in self.disk.matches(f"{layout.backups}/*"):
                self.disk.remove(backup)
            self.disk.remove_directory(layout.backups)

    def _last(self, base: str, plan: Plan) -> None:
        paths = [action.path for action in plan.last if isinstance(action, RemoveDirectory)]
        self._remove_directories(base, paths)

    def _remove_directories(self, base: str, paths: Sequence[str]) -> None:
        """Remove directories, innermost first. The state directory marks the base as created by Trellis: both go."""
        own = Layout(base).own
        for path in paths:
            if path == base and own in paths:
                self.disk.remove_directories(path, own.rpartition("/")[2])
            elif path != own or base not in paths:
                self.disk.remove_directory(path)

    def _write_journal(self, base: str, journal: Journal) -> None:
        self.disk.write(Layout(base).journal, journal.to_bytes(), private=True)

    def _folder_exists(self, path: str) -> bool:
        return self.disk.exists(path.rpartition("/")[0])


def _lacking(found: Inspection, wanted: RestartRuntime) -> bool:
    reported = found.live is not None and found.live.runtimes is not None
    return reported and not agrees(found.live, wanted.present, wanted.absent)


def _touched(plan: Plan) -> Iterator[str]:
    for action in plan.actions:
        if isinstance(action, WriteFile | RemoveFile | PutShim):
            yield action.path


def _ancestors(path: str) -> list[str]:
    parts = path.split("/")
    return ["/".join(parts[:depth]) for depth in range(2, len(parts) + 1)]


def _new(made: list[str], journal: Journal) -> list[str]:
    return [folder for folder in made if folder not in journal.directories]
