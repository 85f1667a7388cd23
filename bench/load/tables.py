"""The page about scale: tables of the results, and the growth of each figure.

Pure. In: results. Out: Markdown. Called by ``page``. Shown is of each size the last result with all services in one
process; one that was measured while the machine did nothing else goes before one that was not. Invariant: times
that a clock measured beside other work are never shown: only memory, processor time, and what was counted.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Final

from load.growth import exponent
from load.results import Result
from load.sizes import FULL

KINDS: Final = {
    "node": "a node is opted in → its Job",
    "host": "a host's pod is ready → all slices of its lattice",
    "application": "`kubectl apply` → stored and deployed in wadm",
    "controller": "an object changes → what its controller writes",
}
REQUEST: Final = "API server"
"""An object is patched → another client sees it: no service takes part."""
LATENCY: Final = "scale-latency.svg"
GRAPHS: Final = {
    LATENCY: "latency of one change, by size",
    "scale-memory.svg": "memory, by size",
    "scale-writes.svg": "writes to the API server for one change, by size",
}
"""By name of the file what it shows."""
_NONE: Final = "–"


@dataclass(frozen=True, slots=True)
class Figure:
    """One figure of a size. ``unit``: behind its numbers; ``clock``: it means nothing beside other work."""

    title: str
    of: Callable[[Result], float]
    unit: str
    clock: bool = False


def shown(results: Sequence[Result]) -> list[Result]:
    """Return what is shown, from the smallest size on."""
    together = [result for result in results if not result.separate]
    last = {item.size: item for item in sorted(together, key=lambda item: item.alone)}
    return sorted(last.values(), key=lambda item: item.size.nodes)


def figures() -> list[Figure]:
    """Return the figures that are judged by how they grow."""
    found = [
        Figure("memory, idle", lambda item: item.memory["steady"], "MiB"),
        Figure("memory, at its peak", lambda item: item.memory["peak"], "MiB"),
        Figure("restarted: idle after", lambda item: item.again["quiet"], "s", clock=True),
        Figure("restarted: processor", lambda item: item.again["processor"], "s"),
        Figure("restarted: messages of NATS", lambda item: item.again["messages"], ""),
        Figure("idle: processor", lambda item: item.idle["processor"] * 100, "%"),
        Figure("idle: messages of NATS a second", lambda item: item.idle["messages"], ""),
    ]
    for kind in KINDS:
        found += _of_change(kind)
    return found + _latencies(REQUEST)


def _of_change(kind: str) -> list[Figure]:
    return [
        *_latencies(kind),
        Figure(f"{kind}: writes to the API server", lambda item: item.changes[kind].writes, ""),
        Figure(f"{kind}: messages of NATS", lambda item: item.changes[kind].messages, ""),
        Figure(f"{kind}: processor", lambda item: item.changes[kind].processor * 1000, "ms"),
    ]


def _latencies(kind: str) -> list[Figure]:
    return [
        Figure(f"{kind}: p50", lambda item: item.changes[kind].p50 * 1000, "ms", clock=True),
        Figure(f"{kind}: p99", lambda item: item.changes[kind].p99 * 1000, "ms", clock=True),
    ]


def _start() -> list[Figure]:
    """Return the figures of what is new in the world of a size."""
    found = [
        Figure("processor, for what is new", lambda item: item.work["processor"], "s"),
        Figure("writes to the API server, for what is new", lambda item: float(item.work["writes"]), ""),
        Figure("start → ready, with new work", lambda item: item.ready, "s", clock=True),
    ]
    for what in ("nodes", "slices", "applications", "controllers", "all"):
        title = "all of that" if what == "all" else f"new {what} settled"
        found.append(_settled(f"{title} after", what))
    return [*found, Figure("restarted: ready after", lambda item: item.again["ready"], "s", clock=True)]


def _settled(title: str, what: str) -> Figure:
    return Figure(title, lambda item: item.settled[what], "s", clock=True)


def table(results: Sequence[Result]) -> str:
    """Return everything by size, with the exponent of what may grow."""
    heads = [f"{result.size.nodes:,}" for result in results]
    rows = [
        f"| nodes | {' | '.join(heads)} | exponent |",
        f"|---|{'---|' * len(results)}---|",
        _counted("applications", [result.size.applications for result in results]),
        _counted("lattices", [result.size.lattices for result in results]),
        _counted("controllers", [result.size.controllers for result in results]),
        _counted("… new of the nodes", [result.added.nodes for result in results]),
    ]
    rows += [_row(item, results, "") for item in _start()]
    rows += [_row(figure, results, _exponent(figure, results)) for figure in figures()]
    return "\n".join(rows) + "\n"


def written(results: Sequence[Result]) -> str:
    """Return what a change of each kind writes, at the largest size."""
    largest = results[-1]
    rows = ["| a change | writes to the API server |", "|---|---|"]
    for kind, title in KINDS.items():
        each = (f"{number:g} × {what}" for what, number in largest.changes[kind].written.items())
        rows.append(f"| {title} | {', '.join(each)} |")
    return "\n".join(rows) + "\n"


def planned(results: Sequence[Result]) -> str:
    """Return what follows for the planned sizes from the largest that was measured, "" if they were measured."""
    largest = results[-1]
    if largest.size.nodes >= FULL.nodes or len(results) < 2:
        return ""
    factor = FULL.nodes / largest.size.nodes
    rows = [f"| extrapolated to {FULL.nodes:,} nodes by the exponent | |", "|---|---|"]
    for figure in figures()[:2]:
        power = float(_exponent(figure, results))
        rows.append(f"| {figure.title} | {_number(figure.of(largest) * factor**power)} {figure.unit} |")
        line = _line([each.size.nodes for each in results], list(map(figure.of, results)), FULL.nodes)
        rows.append(f"| {figure.title}, by a straight line | {_number(line)} {figure.unit} |")
    return "\n".join(rows) + "\n"


def _line(sizes: Sequence[float], figures_: Sequence[float], size: float) -> float:
    """Return what the straight line through the first and the last figure has at a size."""
    return figures_[-1] + (figures_[-1] - figures_[0]) / (sizes[-1] - sizes[0]) * (size - sizes[-1])


def text(results: Sequence[Result]) -> str:
    """Return the part of the page that is made of results."""
    found = shown(results)
    if not found:
        return "Nothing was measured yet.\n"
    measured = (
        f"- {item.size.nodes:,} nodes: {item.date}, commit {item.commit}; {item.machine}"
        f"{'' if item.alone else '; beside other work: times are left out'}"
        for item in found
    )
    images = (f"![{title}]({name})\n" for name, title in drawn(found).items())
    parts = (table(found), planned(found), *images, written(found), "\n".join(measured) + "\n")
    return "\n".join(part for part in parts if part)


def drawn(found: Sequence[Result]) -> dict[str, str]:
    """Return the graphs there are of results, by name of the file: latencies only if all had the machine alone."""
    return {name: title for name, title in GRAPHS.items() if name != LATENCY or all(item.alone for item in found)}


def _counted(title: str, numbers: Sequence[int]) -> str:
    return f"| {title} | {' | '.join(f'{number:,}' for number in numbers)} | |"


def _row(figure: Figure, results: Sequence[Result], last: str) -> str:
    cells = (
        _NONE if figure.clock and not result.alone else f"{_number(figure.of(result))} {figure.unit}".strip()
        for result in results
    )
    return f"| {figure.title} | {' | '.join(cells)} | {last} |"


def _exponent(figure: Figure, results: Sequence[Result]) -> str:
    """Return how a figure grows, "" if it is unknown."""
    of = [result for result in results if result.alone or not figure.clock]
    numbers = list(map(figure.of, of))
    if len(of) < 2 or min(numbers) <= 0:
        return ""
    return f"{exponent([item.size.nodes for item in of], numbers):.2f}"


def _number(value: float) -> str:
    return f"{value:,.0f}" if value >= 100 else f"{value:.3g}"
