"""How the package says what it is doing, to people.

In: steps as they begin and end. Out: nothing, plain lines, or a live display; always on standard error.
Called by the tool builder and by `up`, from several threads. Invariant: a step that began ends exactly once, and
the display never writes to standard output, which belongs to the machine-readable result.
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
    """Receives steps; safe to call from several threads."""

    def begin(self, step: str) -> None:
        """Say that a step, named by a phrase that is unique among those under way, has begun."""

    def note(self, step: str, text: str) -> None:
        """Say how far a step is."""

    def end(self, step: str, outcome: str) -> None:
        """Say that a step has ended, and how."""


@contextmanager
def stepping(progress: Progress, step: str) -> Iterator[None]:
    """Report a step around a block: done; failed if the block raises, or interrupted if that is somebody's wish."""
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
    """Says nothing."""

    def begin(self, step: str) -> None:
        """Ignore it."""

    def note(self, step: str, text: str) -> None:
        """Ignore it."""

    def end(self, step: str, outcome: str) -> None:
        """Ignore it."""


def _say(line: str) -> None:
    sys.stderr.write(f"{line}\n")
    sys.stderr.flush()


class Lines:
    """A line on standard error when a step begins, every 10 s while it lasts, and when it ends: for logs and pipes."""

    def __init__(self) -> None:
        self._began: dict[str, float] = {}
        self._said: dict[str, float] = {}

    def begin(self, step: str) -> None:
        """Print ``step …``."""
        self._began[step] = self._said[step] = time.monotonic()
        _say(f"{step} …")

    def note(self, step: str, text: str) -> None:
        """Print ``step: text`` if nothing was said of the step for 10 s: a build notes every package."""
        now = time.monotonic()
        if now - self._said.get(step, 0) < _SECONDS_BETWEEN_NOTES:
            return
        self._said[step] = now
        _say(f"{step}: {text}")

    def end(self, step: str, outcome: str) -> None:
        """Print ``step: outcome (seconds)``."""
        seconds = time.monotonic() - self._began.pop(step, time.monotonic())
        _say(f"{step}: {outcome} ({seconds:.1f} s)")


class Live:
    """A spinner and the elapsed time for each step, on a terminal. A context manager."""

    def __init__(self, console: Console) -> None:
        self._display = RichDisplay(
            SpinnerColumn(finished_text="•"),
            TimeElapsedColumn(),
            # What a narrow terminal cuts off is the end of this: the name of what is compiled, never the time.
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
        """Add a spinning line."""
        self._tasks[step] = self._display.add_task(step, total=None, text="")

    def note(self, step: str, text: str) -> None:
        """Show the text behind the step."""
        if step in self._tasks:
            self._display.update(self._tasks[step], text=text)

    def end(self, step: str, outcome: str) -> None:
        """Stop the line's clock."""
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
