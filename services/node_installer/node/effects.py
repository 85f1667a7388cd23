"""The effect of each action on the node. What a whole plan needs around them, so that it can be undone, is ``apply``'s.

In: an action. Out: the node changed, or an error. Called by ``apply``.
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

Prove = Callable[[str], str]
"""Returns the version a shim at a path of the node answers with. Raises InstallError ``ShimNotExecutable``."""


@dataclass(slots=True)
class Effects:
    """Does actions on one node. ``ending``: the processes that were ended so far; nothing brings them back."""

    disk: Disk
    runtime: Runtime
    prove: Prove
    timings: EndingTimings = EndingTimings()
    ending: Ending = field(default_factory=Ending)

    def do(self, found: Inspection, action: Action) -> None:
        """Do one action.

        Raises:
            InstallError: it did not work; what it changed before that is the caller's to put back.
            OSError: so did not the disk.
        """
        match action:
            case MakeDirectory(path=path):
                self.disk.make_directory(path)
            case PutShim(path=path, staged=staged):
                assert staged is not None
                self.disk.put(path, staged)
            case ProbeShim(path=path, handler=handler):
                with about(handler):
                    self.prove(path)
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
