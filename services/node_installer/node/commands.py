"""Runs commands on the node, from inside the Job's container.

In: a command line of the node. Out: its exit code and output. Called by ``runtime`` and ``apply``.
They run in the namespaces of the node's first process (nsenter), because the container has neither the node's
libraries nor its init. Invariant: no command exceeds its timeout, and its output is limited.
"""

from __future__ import annotations

import subprocess
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

_OUTPUT_CHARACTERS: Final = 2000
TIMED_OUT: Final = 124  # as in timeout(1)
NOT_FOUND: Final = 127  # as in shells


@dataclass(frozen=True, slots=True)
class Answer:
    """Result of a command: its exit code, and the end of its output, both streams together."""

    code: int
    output: str = ""

    @property
    def ok(self) -> bool:
        """True if the exit code is 0."""
        return self.code == 0


Run = Callable[[Sequence[str], float], Answer]
"""Runs a command of the node, with a timeout in seconds. Never raises."""


def on_node(root: Path) -> Run:
    """Return the function that runs commands of the node below ``root``."""

    def run(command: Sequence[str], seconds: float) -> Answer:
        return _run([*_entering(root), *command], seconds)

    return run


def _entering(root: Path) -> list[str]:
    if root == Path("/"):
        return []
    # The /proc of the node, so that PID 1 is that of the node even if the pod has its own PID namespace.
    process = root / "proc" / "1" / "ns"
    return ["nsenter", *(f"--{kind}={process / name}" for kind, name in (("mount", "mnt"), ("uts", "uts"))), "--"]


def _run(command: Sequence[str], seconds: float) -> Answer:
    try:
        done = subprocess.run(  # noqa: S603 (commands are rows of a table and paths of Trellis)
            command,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            timeout=seconds,
            check=False,
        )
    except subprocess.TimeoutExpired as error:
        return Answer(TIMED_OUT, _text(error.output) or f"no end after {seconds:g} s")
    except OSError as error:
        return Answer(NOT_FOUND, f"{command[0]}: {error.strerror}")
    return Answer(done.returncode, _text(done.stdout))


def _text(output: bytes | None) -> str:
    return (output or b"").decode(errors="replace").strip()[-_OUTPUT_CHARACTERS:]
