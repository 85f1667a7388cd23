"""The progress of the demo: a live view on a terminal, plain lines elsewhere.

In: steps, counts, events. Out: standard error; results go to standard output elsewhere. Called by the demo.
Invariant: without a terminal there are no control sequences, so that a log of the output is plain text.
"""

from __future__ import annotations

import sys
import time
from collections import deque
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final, Protocol

from rich.console import Console, Group
from rich.live import Live
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn
from rich.text import Text

EVENTS_SHOWN: Final = 6


class Display(Protocol):
    """Receives the progress."""

    def step(self, text: str) -> None:
        """Show a completed step."""

    def count(self, done: int, total: int) -> None:
        """Show the number of provisioned nodes."""

    def event(self, line: str) -> None:
        """Show an event of a service on the bus."""


class Lines:
    """Prints a line for each step and event, and one for each tenth of the nodes."""

    def __init__(self) -> None:
        self._began = time.monotonic()
        self._tenth = -1

    def step(self, text: str) -> None:
        """Print the step with the seconds since the start."""
        sys.stderr.write(f"{time.monotonic() - self._began:6.1f} s  {text}\n")
        sys.stderr.flush()

    def count(self, done: int, total: int) -> None:
        """Print the count if it has changed enough."""
        tenth = 10 * done // total if total else 0
        if tenth != self._tenth:
            self._tenth = tenth
            self.step(f"provisioned {done}/{total}")

    def event(self, line: str) -> None:
        """Print the event, which contains its own time."""
        sys.stderr.write(f"          {line}\n")
        sys.stderr.flush()


class OnTerminal:
    """Steps, below them a progress bar and the last events."""

    def __init__(self, console: Console) -> None:
        self._console = console
        self._events: deque[str] = deque(maxlen=EVENTS_SHOWN)
        self._bar = Progress(
            TextColumn("provisioned"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn(), console=console
        )
        self._task = self._bar.add_task("nodes", total=None, start=False, visible=False)
        self.live = Live(self._view(), console=console, transient=True, refresh_per_second=8)

    def step(self, text: str) -> None:
        """Print the step above the live area."""
        self._console.print(Text(f"• {text}"))

    def count(self, done: int, total: int) -> None:
        """Update the progress bar."""
        self._bar.start_task(self._task)
        self._bar.update(self._task, total=total, completed=done, visible=True)
        self.live.update(self._view())

    def event(self, line: str) -> None:
        """Add the event to the last lines."""
        self._events.append(line)
        self.live.update(self._view())

    def _view(self) -> Group:
        events = (Text(f"  {line}", style="dim", no_wrap=True, overflow="ellipsis") for line in self._events)
        return Group(self._bar, *events)


@contextmanager
def on_stderr() -> Iterator[Display]:
    """Return the display that suits standard error."""
    console = Console(stderr=True)
    if not console.is_terminal:
        yield Lines()
        return
    display = OnTerminal(console)
    with display.live:
        yield display
