"""Progress display for users.

In: start and end of steps. Out: nothing, plain lines, or a live display; always on standard error.
Called by the tool builder and by `up`, from several threads. Invariant: a started step ends exactly once, and
the display never writes to standard output, which is reserved for the machine-readable result.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from types import TracebackType
from typing import Final, Protocol, Self

from rich.console import Console
from rich.progress import Progress as RichDisplay
from rich.progress import SpinnerColumn, TaskID, TextColumn, TimeElapsedColumn
from rich.table import Column

from trellis_dev.localcluster.errors import AbortedError

_SECONDS_BETWEEN_NOTES: Final = 10.0


class Progress(Protocol):
    """Receives steps; thread-safe."""

    def begin(self, step: str) -> None:
        """Start a step; ``step`` is a phrase that is unique among the steps in progress."""

    def note(self, step: str, text: str) -> None:
        """Report the progress of a step."""

    def end(self, step: str, outcome: str) -> None:
        """End a step with its outcome."""


@contextmanager
def stepping(progress: Progress, step: str) -> Iterator[None]:
    """Report a block as a step: done; failed if the block raises, interrupted if it was aborted."""
    progress.begin(step)
    try:
        yield
    except (AbortedError, KeyboardInterrupt):
        progress.end(step, "interrupted")
        raise
    except BaseException:
        progress.end(step, "failed")
        raise
    progress.end(step, "done")


class Quiet:
    """Shows nothing."""

    def begin(self, step: str) -> None:
        """Ignore the step."""

    def note(self, step: str, text: str) -> None:
        """Ignore the note."""

    def end(self, step: str, outcome: str) -> None:
        """Ignore the end."""


def _print(line: str) -> None:
    sys.stderr.write(f"{line}\n")
    sys.stderr.flush()


class Lines:
    """Prints a line to standard error at the start of a step, every 10 s, and at its end: for logs and pipes."""

    def __init__(self) -> None:
        self._began: dict[str, float] = {}
        self._noted: dict[str, float] = {}

    def begin(self, step: str) -> None:
        """Print ``step …``."""
        self._began[step] = self._noted[step] = time.monotonic()
        _print(f"{step} …")

    def note(self, step: str, text: str) -> None:
        """Print ``step: text`` at most every 10 s per step: a build notes every package."""
        now = time.monotonic()
        if now - self._noted.get(step, 0) < _SECONDS_BETWEEN_NOTES:
            return
        self._noted[step] = now
        _print(f"{step}: {text}")

    def end(self, step: str, outcome: str) -> None:
        """Print ``step: outcome (seconds)``."""
        seconds = time.monotonic() - self._began.pop(step, time.monotonic())
        _print(f"{step}: {outcome} ({seconds:.1f} s)")


class Live:
    """Shows a spinner and the elapsed time for each step on a terminal. A context manager."""

    def __init__(self, console: Console) -> None:
        self._display = RichDisplay(
            SpinnerColumn(finished_text="•"),
            TimeElapsedColumn(),
            # A narrow terminal truncates the end of this column: the name of the package, never the time.
            TextColumn("{task.description} [dim]{task.fields[text]}", table_column=Column(ratio=1, no_wrap=True)),
            console=console,
            expand=True,
        )
        self._tasks: dict[str, TaskID] = {}

    def __enter__(self) -> Self:
        self._display.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._display.stop()

    def begin(self, step: str) -> None:
        """Add a line with a spinner."""
        self._tasks[step] = self._display.add_task(step, total=None, text="")

    def note(self, step: str, text: str) -> None:
        """Show the text after the step."""
        if step in self._tasks:
            self._display.update(self._tasks[step], text=text)

    def end(self, step: str, outcome: str) -> None:
        """Stop the timer of the line."""
        if step in self._tasks:
            self._display.update(self._tasks.pop(step), total=1, completed=1, text=outcome)


@contextmanager
def on_stderr() -> Iterator[Progress]:
    """Return a live display on a terminal, plain lines otherwise."""
    console = Console(stderr=True)
    if not console.is_terminal:
        yield Lines()
        return
    with Live(console) as live:
        yield live
