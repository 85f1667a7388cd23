"""The least that a forkserver can give birth to: prints its name, then waits to be killed or ends on request."""

from __future__ import annotations

import os
import signal
import sys


def main() -> None:
    """Print a variable and the arguments; end with the number that is the last of them, or wait."""
    print(os.environ.get("NAME", ""), *sys.argv[1:], flush=True)  # noqa: T201 - its log is what is looked at
    if sys.argv[-1] == "wait":
        signal.pause()
    sys.exit(int(sys.argv[-1]))
