"""What the page about scale says of the results: tables, and how each figure grows.

Pure. In: results. Out: Markdown. Called by ``page``. Shown is of each size the last result with all services in one
process; one that was measured while the machine did nothing else goes before one that was not. Invariant: what a clock
says beside other work is never shown: only memory, processor time, and what was counted.
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
    together = [one for one in results if not one.separate]
    last = {one.size: one for one in sorted(together, key=lambda one: one.alone)}
    return sorted(last.values(), key=lambda one: one.size.nodes)


def figures() -> list[Figure]:
    """Return the figures that are judged by how they grow."""
    found = [
        Figure("memory, idle", lambda one: one.memory["steady"], "MiB"),
        Figure("memory, at its peak", lambda one: one.memory["peak"], "MiB"),
        Figure("restarted: idle after", lambda one: one.again["quiet"], "s", clock=True),
        Figure("restarted: processor", lambda one: one.again["processor"], "s"),
        Figure("restarted: messages of NATS", lambda one: one.again["messages"], ""),
        Figure("idle: processor", lambda one: one.idle["processor"] * 100, "%"),
        Figure("idle: messages of NATS a second", lambda one: one.idle["messages"], ""),
    ]
    for kind in KINDS:
        found += _of_change(kind)
    return found


def _of_change(kind: str) -> list[Figure]:
    return [
        Figure(f"{kind}: p50", lambda one: one.changes[kind].p50 * 1000, "ms", clock=True),
        Figure(f"{kind}: p99", lambda one: one.changes[kind].p99 * 1000, "ms", clock=True),
        Figure(f"{kind}: writes to the API server", lambda one: one.changes[kind].writes, ""),
        Figure(f"{kind}: messages of NATS", lambda one: one.changes[kind].messages, ""),
        Figure(f"{kind}: processor", lambda one: one.changes[kind].processor * 1000, "ms"),
    ]


def _start() -> list[Figure]:
    """Return the figures of what is new in the world of a size."""
    found = [
        Figure("processor, for what is new", lambda one: one.work["processor"], "s"),
        Figure("writes to the API server, for what is new", lambda one: float(one.work["writes"]), ""),
        Figure("start → ready, with new work", lambda one: one.ready, "s", clock=True),
    ]
    for what in ("nodes", "slices", "applications", "controllers", "all"):
        title = "all of that" if what == "all" else f"new {what} settled"
        found.append(_settled(f"{title} after", what))
    return [*found, Figure("restarted: ready after", lambda one: one.again["ready"], "s", clock=True)]


def _settled(title: str, what: str) -> Figure:
    return Figure(title, lambda one: one.settled[what], "s", clock=True)


def table(results: Sequence[Result]) -> str:
    """Return everything by size, with the exponent of what may grow."""
    heads = [f"{one.size.nodes:,}" for one in results]
    rows = [
        f"| nodes | {' | '.join(heads)} | exponent |",
        f"|---|{'---|' * len(results)}---|",
        _counted("applications", [one.size.applications for one in results]),
        _counted("lattices", [one.size.lattices for one in results]),
        _counted("controllers", [one.size.controllers for one in results]),
        _counted("… new of the nodes", [one.added.nodes for one in results]),
    ]
    rows += [_row(one, results, "") for one in _start()]
    rows += [_row(one, results, _exponent(one, results)) for one in figures()]
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
    for one in figures()[:2]:
        power = float(_exponent(one, results))
        rows.append(f"| {one.title} | {_number(one.of(largest) * factor**power)} {one.unit} |")
        line = _line([each.size.nodes for each in results], list(map(one.of, results)), FULL.nodes)
        rows.append(f"| {one.title}, by a straight line | {_number(line)} {one.unit} |")
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
        f"- {one.size.nodes:,} nodes: {one.date}, commit {one.commit}; {one.machine}"
        f"{'' if one.alone else '; beside other work: times are left out'}"
        for one in found
    )
    images = (f"![{title}]({name})\n" for name, title in drawn(found).items())
    parts = (table(found), planned(found), *images, written(found), "\n".join(measured) + "\n")
    return "\n".join(part for part in parts if part)


def drawn(found: Sequence[Result]) -> dict[str, str]:
    """Return the graphs there are of results, by name of the file: latencies only if all had the machine alone."""
    return {name: title for name, title in GRAPHS.items() if name != LATENCY or all(one.alone for one in found)}


def _counted(title: str, numbers: Sequence[int]) -> str:
    return f"| {title} | {' | '.join(f'{one:,}' for one in numbers)} | |"


def _row(figure: Figure, results: Sequence[Result], last: str) -> str:
    cells = (
        _NONE if figure.clock and not one.alone else f"{_number(figure.of(one))} {figure.unit}".strip()
        for one in results
    )
    return f"| {figure.title} | {' | '.join(cells)} | {last} |"


def _exponent(figure: Figure, results: Sequence[Result]) -> str:
    """Return how a figure grows, "" if that cannot be said."""
    of = [one for one in results if one.alone or not figure.clock]
    numbers = list(map(figure.of, of))
    if len(of) < 2 or min(numbers) <= 0:
        return ""
    return f"{exponent([one.size.nodes for one in of], numbers):.2f}"


def _number(value: float) -> str:
    return f"{value:,.0f}" if value >= 100 else f"{value:.3g}"
