"""``kubectl_complete-trellis``: completes the words of ``kubectl trellis``.

In: the words after ``kubectl trellis``, the last one as far as it is typed. Out: one candidate a line, and a directive
for the shell. Called by kubectl 1.26 and later, if it finds this program on the PATH. Source: "Extend kubectl with
plugins" (kubernetes.io), and ShellCompDirective of cobra.
"""

from __future__ import annotations

import contextlib
import io
import os
import shlex
import sys
from typing import Final

from trellis_cli.command_line import COMPLETE, PROGRAM
from trellis_cli.command_line import main as run

_NO_FILES: Final = ":4"
"""ShellCompDirectiveNoFileComp: no names of files if there are no candidates."""


def main() -> None:
    """Entry point of the console script."""
    words = sys.argv[1:] or [""]
    sys.argv = [PROGRAM]
    line = {"COMP_WORDS": shlex.join([PROGRAM, *words]), "COMP_CWORD": str(len(words))}
    os.environ.update({COMPLETE: "complete_bash", **line})
    found = io.StringIO()
    with contextlib.suppress(SystemExit), contextlib.redirect_stdout(found):  # typer ends a completion by SystemExit
        run()
    print(*filter(None, found.getvalue().splitlines()), _NO_FILES, sep="\n")  # noqa: T201 - terminal output, not a log
