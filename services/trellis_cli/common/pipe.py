"""Standard output with a reader that can end first: ``trellis nodes | head -1``.

In: the stream of the process. Out: the same stream; a write after the reader has ended ends the process with 141.
Called once, by ``__main__``.
"""

from __future__ import annotations

import io
import os
import sys

from trellis_cli.common.messages import EXIT_PIPE_CLOSED


class _Output(io.TextIOWrapper):
    """A text stream that ends the process without an error once its reader has ended."""

    def write(self, text: str, /) -> int:
        try:
            return super().write(text)
        except BrokenPipeError:
            raise _exit_closed(self) from None

    def flush(self) -> None:
        try:
            super().flush()
        except BrokenPipeError:
            raise _exit_closed(self) from None


def _exit_closed(stream: io.TextIOWrapper) -> SystemExit:
    """Return the exit; buffered output is discarded."""
    null = os.open(os.devnull, os.O_WRONLY)
    os.dup2(null, stream.fileno())
    os.close(null)
    return SystemExit(EXIT_PIPE_CLOSED)


def end_with_reader() -> None:
    """Make the process end without an error when the reader of its standard output has ended."""
    former = sys.stdout
    if isinstance(former, io.TextIOWrapper) and former is sys.__stdout__:
        encoding, errors, by_line = former.encoding, former.errors, former.line_buffering
        sys.stdout = _Output(former.detach(), encoding, errors, line_buffering=by_line)
