"""Traces as tests look at them: a tree of who did what, and assertions that print it when they fail.

In: spans as Jaeger's query API gave them. Out: edges that are the same for every run of a flow.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass

from trellis.read_model.traces.span_tree import forest
from trellis.read_model.traces.spans import ReadSpan, missing_parents
from trellis_cli.trace.span_tree import lines_of

_PREFIX = "trellis-"


@dataclass(frozen=True, slots=True)
class Edge:
    """A span and its parent, by what they are called; ``parent`` is empty at a root.

    ``may``: it is not there in every run, as a request that the API server had refused before.
    """

    service: str
    name: str
    parent: str
    may: bool = False


def tree(spans: Iterable[ReadSpan]) -> str:
    """Return the spans for people."""
    return "\n".join(
        f"{guide}{span.service.removeprefix(_PREFIX)}: {span.name}"
        + (f"  !! {span.error}" if span.error else "")
        + "".join(f"  -> {link.trace_id[:8]}/{link.span_id[:8]}" for link in span.links)
        for branch in forest(list(spans))
        for guide, span in lines_of(branch)
    )


def edges(spans: Iterable[ReadSpan], names: Mapping[str, str]) -> set[Edge]:
    """Return what there is, with the test's own names in their places: ``{"node-1": "<node>"}``."""
    known = list(spans)
    by_id = {span.span_id: span for span in known}

    def plain(text: str) -> str:
        for name, place in sorted(names.items(), key=lambda item: -len(item[0])):
            text = text.replace(name, place)
        return text

    return {
        Edge(
            span.service.removeprefix(_PREFIX),
            plain(span.name),
            plain(by_id[span.parent_id].name) if span.parent_id in by_id else "",
        )
        for span in known
    }


def assert_whole(spans: list[ReadSpan]) -> None:
    """Fail unless it is one trace with one root, and each span's parent is there and began before it."""
    shown = tree(spans)
    assert len({span.trace_id for span in spans}) == 1, f"several traces:\n{shown}"
    assert not missing_parents(spans), f"parents are missing:\n{shown}"
    roots = [span.name for span in spans if not span.parent_id]
    assert len(roots) == 1, f"roots {roots}:\n{shown}"
    assert all(span.start_ns <= span.end_ns for span in spans), shown


def assert_flow(spans: list[ReadSpan], wanted: Iterable[Edge], names: Mapping[str, str]) -> None:
    """Fail unless the trace is whole and has these spans under these parents, and no others."""
    assert_whole(spans)
    requested = list(wanted)
    found = edges(spans, names)
    must = {Edge(item.service, item.name, item.parent) for item in requested if not item.may}
    may = {Edge(item.service, item.name, item.parent) for item in requested if item.may}
    problems = [f"missing: {item}" for item in must - found] + [f"not expected: {item}" for item in found - must - may]
    assert not problems, "\n".join([*sorted(problems), tree(spans)])
    assert all(span.attributes.get("trellis.cluster") for span in spans if span.service != "trellis-node-installer"), (
        f"spans without their cluster:\n{tree(spans)}"
    )


def assert_links_lead(spans: Iterable[ReadSpan], find: Callable[[str], list[ReadSpan]]) -> None:
    """Fail unless what each link names is there."""
    for span in spans:
        for link in span.links:
            there = {item.span_id for item in find(link.trace_id)}
            assert link.span_id in there, f"{span.name} leads to {link}, which is not there"


def assert_silent(spans: Iterable[ReadSpan], *secrets: str) -> None:
    """Fail if one of these words stands anywhere in a span."""
    for span in spans:
        for word in secrets:
            assert word not in repr(span), f"{span.name} of {span.service} has what nobody may read"
