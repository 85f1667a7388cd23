"""One process of the node, as it was when it was looked at.

Pure data. Made by ``processes``, held by ``inspection`` and ``actions``.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Process:
    """One process of the node. ``name``: what it calls itself; ``started``: ticks since boot; ``deleted``: its
    executable is no longer what is at that path.
    """

    pid: int
    name: str
    executable: str
    arguments: tuple[str, ...] = ()
    started: int = 0
    deleted: bool = False

    @property
    def key(self) -> tuple[int, int]:
        """What no other process ever has: numbers are used again."""
        return self.pid, self.started

    @property
    def cleans_up(self) -> bool:
        """Whether it is a shim that cleans up behind another. Source: the ``delete`` of containerd's shim protocol."""
        return self.arguments[-1:] == ("delete",)

    @property
    def group(self) -> str:
        """What containerd knows it by: the id of a pod's sandbox or of a container in it; "" if it says none."""
        named = zip(self.arguments, self.arguments[1:], strict=False)
        return next((value for option, value in named if option == "-id"), "")
