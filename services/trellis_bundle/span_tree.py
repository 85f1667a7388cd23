"""One trace as a tree: which span caused which, when it began, how long it took.

Pure. In: the spans of one trace. Out: a tree for the terminal. Called by the demo.
Invariant: every span given is shown exactly once, also when its parent is missing or parents form a circle.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Final, Protocol

from rich.text import Text
from rich.tree import Tree

_INDENT: Final = 4
_NS_PER_MS: Final = 1_000_000


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


@dataclass(frozen=True, slots=True)
class Branch:
    """A span and those it caused, in the order they began."""

    span: SpanRecord
    children: tuple[Branch, ...] = ()

    def walk(self, depth: int = 0) -> Iterator[tuple[int, SpanRecord]]:
        """Yield depth and span of the whole branch, as it is printed."""
        yield depth, self.span
        for child in self.children:
            yield from child.walk(depth + 1)


def forest(spans: Iterable[SpanRecord]) -> tuple[Branch, ...]:
    """Return the trees of a trace by start; a span whose parent is not among them begins a tree of its own."""
    by_id = {span.span_id: span for span in sorted(spans, key=lambda span: (span.start_ns, -span.end_ns))}
    children: dict[str, list[SpanRecord]] = {}
    roots: list[SpanRecord] = []
    for span in by_id.values():
        if span.parent_id and span.parent_id in by_id:
            children.setdefault(span.parent_id, []).append(span)
        else:
            roots.append(span)
    left = dict(by_id)

    def grow(span: SpanRecord) -> Branch:
        del left[span.span_id]
        return Branch(span, tuple(grow(child) for child in children.get(span.span_id, ()) if child.span_id in left))

    grown = [grow(root) for root in roots]
    while left:  # parents in a circle: broken where it began
        grown.append(grow(next(iter(left.values()))))
    return tuple(sorted(grown, key=lambda branch: branch.span.start_ns))


def render(title: str, branches: Iterable[Branch]) -> Tree:
    """Return the tree: name, service, offset from the trace's start and duration, both in milliseconds."""
    branches = tuple(branches)
    flat = [pair for branch in branches for pair in branch.walk(1)]
    began = min((span.start_ns for _, span in flat), default=0)
    names = max((depth * _INDENT + len(span.name) for depth, span in flat), default=0)
    services = max((len(span.service) for _, span in flat), default=0)

    def label(depth: int, span: SpanRecord) -> Text:
        text = Text(span.name.ljust(names - depth * _INDENT), no_wrap=True)
        text.append(f"  {span.service.ljust(services)}", style="cyan")
        text.append(f"  {_ms(span.start_ns - began, signed=True)}", style="dim")
        return text.append(f"  {_ms(span.end_ns - span.start_ns)}", style="green")

    tree = Tree(title, guide_style="dim")

    def hang(on: Tree, branch: Branch, depth: int) -> None:
        under = on.add(label(depth, branch.span))
        for child in branch.children:
            hang(under, child, depth + 1)

    for branch in branches:
        hang(tree, branch, 1)
    return tree


def _ms(nanoseconds: int, *, signed: bool = False) -> str:
    value = nanoseconds / _NS_PER_MS
    return f"{value:+9.1f} ms" if signed else f"{value:8.1f} ms"
