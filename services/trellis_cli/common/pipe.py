"""Standard output that cannot be written: its reader ended (``trellis nodes | head -1``), no space left, closed.

In: the stream of the process. Out: the same stream; a failed write ends the process, with 141 if the reader has ended,
else with an error. Called once, by ``__main__``.
"""

from __future__ import annotations

import errno
import io
import os
import sys
from typing import Final

from trellis_cli.common.messages import EXIT_FAILED, EXIT_PIPE_CLOSED, print_error

_REASONS: Final = {errno.ENOSPC: "no space left", errno.EBADF: "it is closed"}


class _Output(io.TextIOWrapper):
    """A text stream that ends the process without a traceback once it cannot be written."""

    def write(self, text: str, /) -> int:
        try:
            return super().write(text)
        except OSError as error:
            raise _exit(self, error) from None

    def flush(self) -> None:
        try:
            super().flush()
        except OSError as error:
            raise _exit(self, error) from None


def _exit(stream: io.TextIOWrapper, error: OSError) -> SystemExit:
    """Return the exit; buffered output is discarded."""
    null = os.open(os.devnull, os.O_WRONLY)
    os.dup2(null, stream.fileno())
    os.close(null)
    if isinstance(error, BrokenPipeError):
        return SystemExit(EXIT_PIPE_CLOSED)
    reason = _REASONS.get(error.errno or 0) or os.strerror(error.errno or errno.EIO).lower()
    print_error(f"cannot write to standard output: {reason}")
    return SystemExit(EXIT_FAILED)


def end_if_unwritable() -> None:
    """Make the process end without a traceback when its standard output cannot be written."""
    former = sys.stdout
    if former is None:  # closed by the shell (``>&-``): each write fails, as in other programs
        read_only = os.open(os.devnull, os.O_RDONLY)
        sys.stdout = _Output(io.BufferedWriter(io.FileIO(read_only, "w")))
    elif isinstance(former, io.TextIOWrapper) and former is sys.__stdout__:
        encoding, errors, by_line = former.encoding, former.errors, former.line_buffering
        sys.stdout = _Output(former.detach(), encoding, errors, line_buffering=by_line)
