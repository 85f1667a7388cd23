"""What the demo shows while it works: live on a terminal, plain lines elsewhere.

In: steps, counts, facts. Out: standard error; results go to standard output elsewhere. Called by the demo.
Invariant: without a terminal no cursor is moved, so that a log of it reads like a text.
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

FACTS_SHOWN: Final = 6


class Display(Protocol):
    """Receives what happens."""

    def say(self, text: str) -> None:
        """Something was done."""

    def count(self, done: int, total: int) -> None:
        """So many of the nodes are provisioned."""

    def fact(self, line: str) -> None:
        """A service said something on the bus."""


class Lines:
    """A line for everything that is said, and one for each tenth of the nodes."""

    def __init__(self) -> None:
        self._began = time.monotonic()
        self._tenth = -1

    def say(self, text: str) -> None:
        """Print it with the seconds since the beginning."""
        sys.stderr.write(f"{time.monotonic() - self._began:6.1f} s  {text}\n")
        sys.stderr.flush()

    def count(self, done: int, total: int) -> None:
        """Print it if it is news."""
        tenth = 10 * done // total if total else 0
        if tenth != self._tenth:
            self._tenth = tenth
            self.say(f"provisioned {done}/{total}")

    def fact(self, line: str) -> None:
        """Print it; it has a time of its own."""
        sys.stderr.write(f"          {line}\n")
        sys.stderr.flush()


class OnTerminal:
    """Steps above, a bar and the last facts below them."""

    def __init__(self, console: Console) -> None:
        self._console = console
        self._facts: deque[str] = deque(maxlen=FACTS_SHOWN)
        self._bar = Progress(
            TextColumn("provisioned"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn(), console=console
        )
        self._task = self._bar.add_task("nodes", total=None, start=False, visible=False)
        self.live = Live(self._view(), console=console, transient=True, refresh_per_second=8)

    def say(self, text: str) -> None:
        """Print it above what moves."""
        self._console.print(Text(f"• {text}"))

    def count(self, done: int, total: int) -> None:
        """Move the bar."""
        self._bar.start_task(self._task)
        self._bar.update(self._task, total=total, completed=done, visible=True)
        self.live.update(self._view())

    def fact(self, line: str) -> None:
        """Let it scroll through the last lines."""
        self._facts.append(line)
        self.live.update(self._view())

    def _view(self) -> Group:
        facts = (Text(f"  {line}", style="dim", no_wrap=True, overflow="ellipsis") for line in self._facts)
        return Group(self._bar, *facts)


@contextmanager
def on_stderr() -> Iterator[Display]:
    """Return the display that fits standard error."""
    console = Console(stderr=True)
    if not console.is_terminal:
        yield Lines()
        return
    display = OnTerminal(console)
    with display.live:
        yield display
