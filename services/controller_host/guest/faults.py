"""What ends a guest: kinds that become reasons, messages for whoever built the module.

Raised by everything that runs a guest, to whoever called :class:`controller_host.guest.instance.Instance`. Invariant:
after a fault the instance is gone; messages are one printable line and hold nothing of the guest's memory.
"""

from __future__ import annotations

from enum import StrEnum
from typing import Final

from controller_host.guest.refusals import printable

_LONGEST_MESSAGE: Final = 400


class FaultKind(StrEnum):
    """How a guest failed."""

    TRAPPED = "Trapped"
    STACK_EXHAUSTED = "StackExhausted"
    CPU_EXCEEDED = "CpuExceeded"
    TIME_EXCEEDED = "TimeExceeded"
    MEMORY_EXCEEDED = "MemoryExceeded"
    BAD_POINTER = "BadPointer"
    BAD_RESULT = "BadResult"
    RESULT_TOO_LARGE = "ResultTooLarge"
    NOTHING_TO_TAKE = "NothingToTake"
    EXITED = "Exited"
    INTERRUPTED = "Interrupted"
    HOST_FAILED = "HostFailed"


class GuestFault(Exception):  # noqa: N818 (what a guest did)
    """A guest that was ended. ``kind``: how; ``message``: one line; the host's own exception is its cause, if any."""

    def __init__(self, kind: FaultKind, message: str) -> None:
        self.kind: Final = kind
        self.message: Final = printable(message, _LONGEST_MESSAGE)
        super().__init__(kind, self.message)

    def __str__(self) -> str:
        return f"{self.kind}: {self.message}"
