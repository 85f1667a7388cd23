"""Runs the programs of a release.

In: a command line, optionally input. Out: its standard output. Called by all modules with effects. Invariant: no shell;
input, which can be a password, is in no error message and no environment variable.
"""

from __future__ import annotations

import os
import subprocess
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Final

from trellis_tools.release.errors import ReleaseError

_LINES: Final = 20


def run_bytes(
    argv: Sequence[str],
    *,
    cwd: Path | None = None,
    environment: Mapping[str, str] | None = None,
    stdin: bytes = b"",
) -> bytes:
    """Run a program to its end and return its standard output. ``environment``: additional variables.

    Raises:
        ReleaseError: the program is missing or failed; with the end of its output.
    """
    try:
        done = subprocess.run(  # noqa: S603 - arguments of this package, no shell
            argv, cwd=cwd, env={**os.environ, **(environment or {})}, input=stdin, capture_output=True, check=False
        )
    except FileNotFoundError as error:
        raise ReleaseError(f"{argv[0]} is missing: install it, or add it to the PATH") from error
    if done.returncode:
        output = (done.stderr or done.stdout).decode(errors="replace").splitlines()[-_LINES:]
        raise ReleaseError(f"`{' '.join([Path(argv[0]).name, *argv[1:3]])} …` failed:\n" + "\n".join(output))
    return done.stdout


def run(
    argv: Sequence[str],
    *,
    cwd: Path | None = None,
    environment: Mapping[str, str] | None = None,
    stdin: bytes = b"",
) -> str:
    """Return the output of :func:`run_bytes` as text."""
    return run_bytes(argv, cwd=cwd, environment=environment, stdin=stdin).decode()
