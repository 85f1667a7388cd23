"""Lines on standard error, and exit statuses.

In: a text. Out: ``Error: …`` or ``Note: …``. Called by every command; imports nothing, so that help stays fast.
"""

from __future__ import annotations

import sys
from typing import Final

EXIT_FAILED: Final = 1
EXIT_USAGE: Final = 2
EXIT_INTERRUPTED: Final = 130
EXIT_PIPE_CLOSED: Final = 141
"""128 + SIGPIPE, as for C programs."""


def print_error(text: str) -> None:
    """Print an error."""
    print(f"Error: {text}", file=sys.stderr)  # noqa: T201 - terminal output, not a log


def print_note(text: str) -> None:
    """Print a note in addition to the output."""
    print(f"Note: {text}", file=sys.stderr)  # noqa: T201 - terminal output, not a log
