"""Views of ``trellis trace``: a tree with bars, errors and links, and a summary line.

Pure. In: spans. Out: a table, lines, a document. Called by ``trace``. Invariant: every span is shown once, and external
text contains no terminal control characters.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from rich.bar import Bar
from rich.table import Table
from rich.text import Text

from trellis.read_model.traces.span_tree import forest
from trellis.read_model.traces.spans import ReadSpan, missing_parents
from trellis_cli.common.output import one_line
from trellis_cli.trace.span_tree import NS_PER_MS, lines_of

_PREFIX: Final = "trellis-"
_BAR: Final = 24
_ID_SHOWN: Final = 8


def table_of(spans: Sequence[ReadSpan]) -> Table:
    """Return the tree; names are in the last column, so that a narrow terminal never truncates the figures."""
    began, ended = _times(spans)
    table = Table(box=None, pad_edge=False, header_style="bold")
    table.add_column("START ms", justify="right", no_wrap=True)
    table.add_column("DURATION ms", justify="right", no_wrap=True)
    table.add_column("", width=_BAR, no_wrap=True)
    table.add_column("SERVICE", no_wrap=True)
    table.add_column("SPAN", overflow="fold")
    for branch in forest(spans):
        for guide, span in lines_of(branch):
            color = "red" if span.error else "cyan"
            table.add_row(
                f"+{(span.start_ns - began) / NS_PER_MS:.1f}",
                f"{(span.end_ns - span.start_ns) / NS_PER_MS:.1f}",
                _bar(span, began, ended, color),
                Text(one_line(span.service).removeprefix(_PREFIX), style="cyan"),
                _what(guide, span),
            )
    return table


def summary(spans: Sequence[ReadSpan]) -> str:
    """Return the number of spans, services, errors and links, and the duration."""
    began, ended = _times(spans)
    counts = [
        _count(len(spans), "span"),
        _count(len({span.service for span in spans}), "service"),
        f"{(ended - began) / NS_PER_MS:.1f} ms",
        _count(sum(1 for span in spans if span.error), "error"),
        _count(sum(len(span.links) for span in spans), "link"),
    ]
    return ", ".join(counts)


def notes(spans: Sequence[ReadSpan]) -> list[str]:
    """Return notes on the tree."""
    missing = missing_parents(spans)
    if not missing:
        return []
    parents = _count(len(missing), "parent")
    return [f"the trace is incomplete: {parents} missing; spans arrive within seconds, or were dropped"]


def _bar(span: ReadSpan, began: int, ended: int, color: str) -> Bar:
    """Return the bar of a span; at least half a character wide, so that short spans are visible."""
    whole = max(1, ended - began)
    least = whole / (2 * _BAR)
    begin = min(span.start_ns - began, whole - least)
    return Bar(whole, begin, max(span.end_ns - began, begin + least), width=_BAR, color=color)


def _what(guide: str, span: ReadSpan) -> Text:
    text = Text.assemble((guide, "dim"), one_line(span.name))
    if span.error:
        text.append(f"  ✗ {one_line(span.error)}", style="red")
    for link in span.links:
        elsewhere = f"trace {link.trace_id[:_ID_SHOWN]}" if link.trace_id != span.trace_id else "this trace"
        text.append(f"  → {elsewhere}, span {link.span_id[:_ID_SHOWN]}", style="magenta")
    return text


def _times(spans: Sequence[ReadSpan]) -> tuple[int, int]:
    return min((span.start_ns for span in spans), default=0), max((span.end_ns for span in spans), default=0)


def _count(number: int, what: str) -> str:
    return f"{number} {what}" if number == 1 else f"{number} {what}s"
