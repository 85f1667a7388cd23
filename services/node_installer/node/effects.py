"""Applies each action to the node; ``apply`` adds the journal that makes a whole plan reversible.

In: an action. Out: a change of the node, or an error. Called by ``apply``.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

from node_installer.domain.actions import (
    Action,
    EndProcesses,
    MakeDirectory,
    ProbeShim,
    PutShim,
    RemoveDirectory,
    RemoveFile,
    RestartRuntime,
    WriteFile,
)
from node_installer.domain.errors import about
from node_installer.domain.inspection import Inspection
from node_installer.node import processes
from node_installer.node.disk import Disk
from node_installer.node.processes import Ending
from node_installer.node.runtime import Runtime
from node_installer.timings import EndingTimings

CheckRuns = Callable[[str], str]
"""Returns the version that a shim at a path of the node reports. Raises InstallError ``ShimNotExecutable``."""


@dataclass(slots=True)
class Effects:
    """Executor of actions on one node. ``ending``: the processes that were ended so far; they are not restarted."""

    disk: Disk
    runtime: Runtime
    check_runs: CheckRuns
    timings: EndingTimings = EndingTimings()
    ending: Ending = field(default_factory=Ending)

    def do(self, found: Inspection, action: Action) -> None:
        """Apply one action.

        Raises:
            InstallError: it failed; the caller reverts its earlier changes.
            OSError: the disk failed.
        """
        match action:
            case MakeDirectory(path=path):
                self.disk.make_directory(path)
            case PutShim(path=path, staged=staged):
                assert staged is not None
                self.disk.put(path, staged)
            case ProbeShim(path=path, handler=handler):
                with about(handler):
                    self.check_runs(path)
            case WriteFile(path=path, content=content, private=private):
                self.disk.write(path, content, private=private)
            case RemoveFile(path=path):
                self.disk.remove(path)
            case RemoveDirectory(path=path):
                self.disk.remove_directory(path)
            case EndProcesses(paths=paths, signals=signals):
                stop = self.runtime.stop
                ending = processes.end(self.disk, paths, stop, signals=signals, timings=self.timings)
                self.ending = Ending(self.ending.ended + ending.ended, ending.left)
            case RestartRuntime():
                with processes.cleanups_bounded(self.disk, tuple(found.binaries), self.timings):
                    self.runtime.restart(found, action)
