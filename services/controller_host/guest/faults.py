"""Faults of guests: kinds that are reported as reasons, and messages for the author of the module.

Raised by all code that runs a guest, to the caller of :class:`controller_host.guest.instance.Instance`. Invariant:
after a fault the instance is closed; messages are one printable line without content of the guest's memory.
"""

from __future__ import annotations

from enum import StrEnum
from typing import Final

from controller_host.guest.refusals import printable

_LONGEST_MESSAGE: Final = 400


class FaultKind(StrEnum):
    """Kind of a fault."""

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


class GuestFault(Exception):  # noqa: N818 (named after the outcome)
    """A fault that ended a guest. ``message``: one line; an exception of the host is its cause, if any."""

    def __init__(self, kind: FaultKind, message: str) -> None:
        self.kind: Final = kind
        self.message: Final = printable(message, _LONGEST_MESSAGE)
        super().__init__(kind, self.message)

    def __str__(self) -> str:
        return f"{self.kind}: {self.message}"
