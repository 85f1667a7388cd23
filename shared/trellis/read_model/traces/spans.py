"""A trace as Jaeger's query API returns it.

Pure. In: the JSON of ``/api/traces/ID``. Out: spans, and a summary. Called by ``trace``.
Invariant: spans are untrusted: any text, inconsistent times and parents.
Source: Jaeger 1.62, ``model/json``: times in microseconds, parents and links as references, a status as tags.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

_NS_PER_US: Final = 1000
_NS_MOST: Final = 2**63 - 1
"""Maximum time, in the year 2262: the JSON library supports no larger integers."""
_PARENT: Final = "CHILD_OF"
_TRACE_DIGITS: Final = 32
_SPAN_DIGITS: Final = 16


class TraceDataError(ValueError):
    """The response is not a trace of Jaeger."""


@dataclass(frozen=True, slots=True)
class SpanLink:
    """A link from a span to a span other than its parent."""

    trace_id: str
    span_id: str


@dataclass(frozen=True, slots=True)
class ReadSpan:
    """One span; ids are lower-case hex; ``parent_id`` is empty for a root, ``error`` for a successful span."""

    trace_id: str
    span_id: str
    parent_id: str
    name: str
    service: str
    start_ns: int
    end_ns: int
    error: str = ""
    links: tuple[SpanLink, ...] = ()
    attributes: Mapping[str, Any] = field(default_factory=dict)

    def document(self) -> dict[str, Any]:
        """Return the span for JSON; times in nanoseconds since 1970."""
        return {
            "span": self.span_id,
            "parent": self.parent_id or None,
            "name": self.name,
            "service": self.service,
            "start": self.start_ns,
            "end": self.end_ns,
            "error": self.error or None,
            "links": [{"trace": link.trace_id, "span": link.span_id} for link in self.links],
            "attributes": dict(self.attributes),
        }


def read_spans(document: object) -> list[ReadSpan]:
    """Return the spans of all traces in a response, in its order.

    Raises:
        TraceDataError: the response is not from Jaeger.
    """
    try:
        traces: Sequence[Mapping[str, Any]] = dict(document)["data"] or []  # type: ignore[call-overload]
        return [_span(span, trace["processes"]) for trace in traces for span in trace["spans"]]
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise TraceDataError(f"the response is not from Jaeger's query API: {type(error).__name__}") from None


def missing_parents(spans: Iterable[ReadSpan]) -> list[str]:
    """Return the ids of missing parents: their spans are not exported (yet), or have expired."""
    known = {span.span_id for span in spans}
    return sorted({span.parent_id for span in spans if span.parent_id and span.parent_id not in known})


def _span(found: Mapping[str, Any], processes: Mapping[str, Any]) -> ReadSpan:
    trace_id = _id(found["traceID"], _TRACE_DIGITS)
    tags = {str(tag["key"]): tag["value"] for tag in found.get("tags") or ()}
    parent, links = "", []
    for reference in found.get("references") or ():
        link = SpanLink(_id(reference["traceID"], _TRACE_DIGITS), _id(reference["spanID"], _SPAN_DIGITS))
        if reference["refType"] == _PARENT and not parent and link.trace_id == trace_id:
            parent = link.span_id
        else:
            links.append(link)
    start = _within(int(found["startTime"]) * _NS_PER_US)
    failed = tags.get("error") in {True, "true"} or tags.get("otel.status_code") == "ERROR"
    return ReadSpan(
        trace_id,
        _id(found["spanID"], _SPAN_DIGITS),
        parent,
        str(found["operationName"]),
        str(processes[found["processID"]]["serviceName"]),
        start,
        _within(start + int(found["duration"]) * _NS_PER_US),
        str(tags.get("otel.status_description") or "failed") if failed else "",
        tuple(links),
        tags,
    )


def _within(ns: int) -> int:
    return min(max(ns, 0), _NS_MOST)


def _id(text: object, digits: int) -> str:
    """Return an id with the zeros that Jaeger can omit."""
    return str(text).lower().zfill(digits)
