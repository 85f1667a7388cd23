"""One trace as a tree: which span caused which, when it began, how long it took.

Pure. In: the spans of one trace. Out: a tree for the terminal. Called by the demo and ``trellis trace``.
Invariant: every span given is shown exactly once, also when its parent is missing or parents form a circle.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Final, Generic, Protocol, TypeVar

from rich.table import Table
from rich.text import Text

NS_PER_MS: Final = 1_000_000
_PREFIX: Final = "trellis-"


class SpanRecord(Protocol):
    """What is needed of a span; times in nanoseconds since 1970."""

    @property
    def span_id(self) -> str:
        """Id, unique in the trace."""

    @property
    def parent_id(self) -> str | None:
        """Id of the span that caused it; None or "" for the first one."""

    @property
    def name(self) -> str:
        """What was done."""

    @property
    def service(self) -> str:
        """Who did it."""

    @property
    def start_ns(self) -> int:
        """When it began."""

    @property
    def end_ns(self) -> int:
        """When it ended."""


S = TypeVar("S", bound=SpanRecord)


@dataclass(frozen=True, slots=True)
class Branch(Generic[S]):
    """A span and those it caused, in the order they began."""

    span: S
    children: tuple[Branch[S], ...] = ()

    def walk(self, depth: int = 0) -> Iterator[tuple[int, S]]:
        """Yield depth and span of the whole branch, as it is printed."""
        yield depth, self.span
        for child in self.children:
            yield from child.walk(depth + 1)


def forest(spans: Iterable[S]) -> tuple[Branch[S], ...]:
    """Return the trees of a trace by start; a span whose parent is not among them begins a tree of its own."""
    by_id = {span.span_id: span for span in sorted(spans, key=lambda span: (span.start_ns, -span.end_ns))}
    children: dict[str, list[S]] = {}
    roots: list[S] = []
    for span in by_id.values():
        if span.parent_id and span.parent_id in by_id:
            children.setdefault(span.parent_id, []).append(span)
        else:
            roots.append(span)
    left = dict(by_id)

    def grow(span: S) -> Branch[S]:
        del left[span.span_id]
        return Branch(span, tuple(grow(child) for child in children.get(span.span_id, ()) if child.span_id in left))

    grown = [grow(root) for root in roots]
    while left:  # parents in a circle: broken where it began
        grown.append(grow(next(iter(left.values()))))
    return tuple(sorted(grown, key=lambda branch: branch.span.start_ns))


def render(title: str, branches: Iterable[Branch[S]]) -> Table:
    """Return the tree with offset from the trace's start and duration, both in milliseconds, and the service.

    The names come last and their guides are narrow, so that the figures are never what a narrow terminal cuts off.
    """
    flat = tuple(line for branch in branches for line in lines_of(branch))
    began = min((span.start_ns for _, span in flat), default=0)
    table = Table(title=title, title_justify="left", title_style="bold", box=None, pad_edge=False, header_style="bold")
    table.add_column("OFFSET ms", justify="right", no_wrap=True)
    table.add_column("TOOK ms", justify="right", no_wrap=True)
    table.add_column("SERVICE", no_wrap=True)
    table.add_column("SPAN")  # the only column that may shrink
    for guide, span in flat:
        table.add_row(
            f"+{(span.start_ns - began) / NS_PER_MS:.1f}",
            f"{(span.end_ns - span.start_ns) / NS_PER_MS:.1f}",
            Text(span.service.removeprefix(_PREFIX), style="cyan"),
            Text.assemble((guide, "dim"), span.name, no_wrap=True, overflow="ellipsis"),
        )
    return table


def lines_of(branch: Branch[S], guide: str = "", below: str = "") -> Iterator[tuple[str, S]]:
    """Yield guide and span of a branch; ``below`` is what stands before the guides of its children."""
    yield guide, branch.span
    for child in branch.children:
        last = child is branch.children[-1]
        yield from lines_of(child, below + ("└ " if last else "├ "), below + ("  " if last else "│ "))
