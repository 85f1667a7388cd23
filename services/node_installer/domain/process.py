"""One process of the node at the time when it was read.

Pure data. Created by ``processes``, used by ``inspection`` and ``actions``.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Process:
    """One process of the node.

    ``name``: its own name; ``started``: ticks since boot; ``deleted``: its executable is no longer the file there.
    """

    pid: int
    name: str
    executable: str
    arguments: tuple[str, ...] = ()
    started: int = 0
    deleted: bool = False

    @property
    def key(self) -> tuple[int, int]:
        """The unique identity of the process: PIDs are reused."""
        return self.pid, self.started

    @property
    def cleans_up(self) -> bool:
        """True for a shim that cleans up after another one. Source: the ``delete`` of containerd's shim protocol."""
        return self.arguments[-1:] == ("delete",)

    @property
    def group(self) -> str:
        """The ID in containerd of the pod's sandbox, or of a container in it; "" without one."""
        named = zip(self.arguments, self.arguments[1:], strict=False)
        return next((value for option, value in named if option == "-id"), "")
