"""Output of a guest for users, as bounded lines.

In: bytes of its stdout and stderr, texts of its ``log``. Out: calls of the host's ``log``. One :class:`Lines` per
call: an incomplete line ends with the call, so that a suspended guest has no pending output.
Invariant: at most :data:`MOST_LINES` printable lines of :data:`LONGEST_LINE` characters per call, and one more with the
number of dropped lines.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from controller_host.guest.refusals import printable

MOST_LINES: Final = 100
LONGEST_LINE: Final = 4096
MOST_LINE_BYTES: Final = 4 * (LONGEST_LINE + 1)
"""Maximum size of a line in UTF-8; includes one more character, so that truncation is visible."""
INFO: Final = 1
WARNING: Final = 2
_ERROR: Final = 3


class Lines:
    """The lines of one call; ``log(level, text)`` receives them."""

    __slots__ = ("_count", "_log", "_partial")

    def __init__(self, log: Callable[[int, str], None]) -> None:
        self._log: Final = log
        self._count = 0
        self._partial: Final[dict[int, bytearray]] = {}

    def full(self) -> bool:
        """Return whether further lines are only counted."""
        return self._count >= MOST_LINES

    def line(self, level: int, text: str) -> None:
        """Log one line."""
        self._count += 1
        if self._count <= MOST_LINES:
            self._log(min(max(level, 0), _ERROR), printable(text.rstrip(), LONGEST_LINE))

    def write(self, stream: int, data: bytes) -> None:
        """Add bytes of a stream; complete lines are logged immediately."""
        started = self._partial.setdefault(stream, bytearray())
        *whole, rest = data.split(b"\n")
        for part in whole:
            self._end(started, part)
        started += rest[: max(0, MOST_LINE_BYTES - len(started))]

    def finish(self) -> None:
        """End the call: log incomplete lines, and the number of dropped lines."""
        for started in self._partial.values():
            if started:
                self._end(started, b"")
        if self._count > MOST_LINES:
            self._log(WARNING, f"{self._count - MOST_LINES} more lines of this call were dropped")

    def _end(self, on_start: bytearray, part: bytes) -> None:
        if self.full():
            self._count += 1
        else:
            self.line(INFO, (bytes(on_start) + part[:MOST_LINE_BYTES]).decode(errors="replace"))
        on_start.clear()
