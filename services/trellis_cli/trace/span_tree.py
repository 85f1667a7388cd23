"""One trace as a tree on a terminal: parent spans, start times and durations.

Pure. In: branches of spans. Out: a table. Called by the demo and ``trellis trace``.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Final, TypeVar

from rich.table import Table
from rich.text import Text

from trellis.read_model.traces.span_tree import Branch, SpanRecord

NS_PER_MS: Final = 1_000_000
_PREFIX: Final = "trellis-"


S = TypeVar("S", bound=SpanRecord)


def render(title: str, branches: Iterable[Branch[S]]) -> Table:
    """Return the tree with offset from the start of the trace and duration, both in ms, and the service.

    Names are in the last column with narrow guides, so that a narrow terminal never truncates the figures.
    """
    flat = tuple(line for branch in branches for line in lines_of(branch))
    began = min((span.start_ns for _, span in flat), default=0)
    table = Table(title=title, title_justify="left", title_style="bold", box=None, pad_edge=False, header_style="bold")
    table.add_column("OFFSET ms", justify="right", no_wrap=True)
    table.add_column("TOOK ms", justify="right", no_wrap=True)
    table.add_column("SERVICE", no_wrap=True)
    table.add_column("SPAN")  # the only column that can shrink
    for guide, span in flat:
        table.add_row(
            f"+{(span.start_ns - began) / NS_PER_MS:.1f}",
            f"{(span.end_ns - span.start_ns) / NS_PER_MS:.1f}",
            Text(span.service.removeprefix(_PREFIX), style="cyan"),
            Text.assemble((guide, "dim"), span.name, no_wrap=True, overflow="ellipsis"),
        )
    return table


def lines_of(branch: Branch[S]) -> Iterator[tuple[str, S]]:
    """Yield guide and span of a branch."""
    todo = [("", "", branch)]  # prefix of the span, prefix of the guides of its children
    while todo:
        guide, below, item = todo.pop()
        yield guide, item.span
        for child in reversed(item.children):
            last = child is item.children[-1]
            todo.append((below + ("└ " if last else "├ "), below + ("  " if last else "│ "), child))
