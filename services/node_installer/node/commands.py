"""Commands on the node, from inside the Job's container.

In: a command line of the node. Out: its exit code and what it printed. Called by ``runtime`` and ``apply``.
They run in the namespaces of the node's first process (nsenter), because the container has neither the node's
libraries nor its init. Invariant: no command outlives its time, and its output never fills the memory.
"""

from __future__ import annotations

import subprocess
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

_OUTPUT_CHARACTERS: Final = 2000
TIMED_OUT: Final = 124  # as timeout(1) says it
NOT_FOUND: Final = 127  # as shells say it


@dataclass(frozen=True, slots=True)
class Answer:
    """How a command ended: its exit code, and the end of what it printed, both streams together."""

    code: int
    output: str = ""

    @property
    def ok(self) -> bool:
        """Whether it ended with 0."""
        return self.code == 0


Run = Callable[[Sequence[str], float], Answer]
"""Runs a command of the node for at most so many seconds. Never raises."""


def on_node(root: Path) -> Run:
    """Return how commands of the node below ``root`` are run."""

    def run(command: Sequence[str], seconds: float) -> Answer:
        return _run([*_entering(root), *command], seconds)

    return run


def _entering(root: Path) -> list[str]:
    if root == Path("/"):
        return []
    # The node's own /proc, so that the first process is the node's also where the pod has its own process ids.
    process = root / "proc" / "1" / "ns"
    return ["nsenter", *(f"--{kind}={process / name}" for kind, name in (("mount", "mnt"), ("uts", "uts"))), "--"]


def _run(command: Sequence[str], seconds: float) -> Answer:
    try:
        done = subprocess.run(  # noqa: S603 (commands are rows of a table and paths of our own)
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
