"""One trace as a tree of spans with start and duration.

Pure. In: the spans of one trace. Out: a tree, and its document. Called by code that shows a trace.
Invariant: the tree contains every span exactly once, even if its parent is missing or parents form a cycle.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Generic, Protocol, TypeVar

from trellis.read_model.traces.spans import ReadSpan, missing_parents


class SpanRecord(Protocol):
    """The required fields of a span; times in nanoseconds since 1970."""

    @property
    def span_id(self) -> str:
        """Id of the span, unique in the trace."""

    @property
    def parent_id(self) -> str | None:
        """Id of the parent span; None or "" for a root."""

    @property
    def name(self) -> str:
        """Name of the operation."""

    @property
    def service(self) -> str:
        """Name of the service."""

    @property
    def start_ns(self) -> int:
        """Start time."""

    @property
    def end_ns(self) -> int:
        """End time."""


S = TypeVar("S", bound=SpanRecord)


@dataclass(frozen=True, slots=True)
class Branch(Generic[S]):
    """A span and its children, in the order of their start."""

    span: S
    children: tuple[Branch[S], ...] = ()

    def walk(self, depth: int = 0) -> Iterator[tuple[int, S]]:
        """Yield depth and span of the whole branch in preorder."""
        todo: list[tuple[int, Branch[S]]] = [(depth, self)]
        while todo:
            at, branch = todo.pop()
            yield at, branch.span
            todo += [(at + 1, child) for child in reversed(branch.children)]


def forest(spans: Iterable[S]) -> tuple[Branch[S], ...]:
    """Return the trees of a trace by start; a span with a missing parent is the root of a tree."""
    by_id = {span.span_id: span for span in sorted(spans, key=lambda span: (span.start_ns, -span.end_ns))}
    children: dict[str, list[S]] = {}
    roots: list[S] = []
    for span in by_id.values():
        if span.parent_id and span.parent_id in by_id:
            children.setdefault(span.parent_id, []).append(span)
        else:
            roots.append(span)
    # A cycle of parents is broken at its start. Without recursion: a trace can be deeper than Python's stack.
    reached = _reached(roots, children)
    while len(reached) < len(by_id):
        known = {span.span_id for span in reached}
        first = next(span for span in by_id.values() if span.span_id not in known)
        roots.append(first)
        reached += _reached([first], children, known)
    grown: dict[str, Branch[S]] = {}
    for span in reversed(reached):
        below = (grown.pop(child.span_id, None) for child in children.get(span.span_id, ()))
        grown[span.span_id] = Branch(span, tuple(branch for branch in below if branch is not None))
    return tuple(sorted((grown[root.span_id] for root in roots), key=lambda branch: branch.span.start_ns))


def _reached(roots: Iterable[S], children: Mapping[str, list[S]], known: Iterable[str] = ()) -> list[S]:
    """Return the descendants of these spans in preorder, each once."""
    seen, found, todo = set(known), list[S](), list(roots)
    while todo:
        span = todo.pop()
        if span.span_id not in seen:
            seen.add(span.span_id)
            found.append(span)
            todo += children.get(span.span_id, ())
    return found


def document_of(trace_id: str, spans: Sequence[ReadSpan]) -> dict[str, Any]:
    """Return the trace for JSON, its spans in the order of the tree."""
    ordered = [(depth, span) for branch in forest(spans) for depth, span in branch.walk()]
    return {
        "trace": trace_id,
        "whole": not missing_parents(spans),
        "spans": [{"depth": depth} | span.document() for depth, span in ordered],
    }
