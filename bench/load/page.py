"""The page about scale and its graphs, made of what was measured: ``python bench/load/page.py [--check] PAGE``.

In: ``results.jsonl``, a page. Out: the end of the page, and graphs as SVG beside it. Called by ``make generate`` and
``make verify``. Invariant: the same results give the same bytes.
"""

from __future__ import annotations

import argparse
import io
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Final

sys.path.insert(0, str(Path(__file__).parents[1]))

import matplotlib as mpl

mpl.use("svg")
import matplotlib.pyplot as plt

from load import results, tables
from load.results import Result

MARK: Final = "<!-- from here on by `make generate`, from bench/load/results.jsonl -->\n"
_COLOURS: Final = ("#3366cc", "#dc3912", "#109618", "#990099", "#666666")
mpl.rcParams.update({"svg.hashsalt": "trellis", "svg.fonttype": "none", "font.size": 9, "path.simplify": True})

Series = dict[str, list[float]]


def page(text: str, found: Sequence[Result]) -> str:
    """Return a page with a new end."""
    head, mark, _ = text.partition(MARK)
    return f"{head}{mark}\n{tables.text(found)}"


def graphs(found: Sequence[Result]) -> dict[str, bytes]:
    """Return the graphs by name of file."""
    shown = tables.shown(found)
    kinds = (*tables.KINDS, tables.REQUEST)
    latency = {f"{kind}, p50": [item.changes[kind].p50 * 1000 for item in shown] for kind in kinds}
    latency |= {f"{kind}, p99": [item.changes[kind].p99 * 1000 for item in shown] for kind in kinds}
    memory = {name: [item.memory[key] for item in shown] for name, key in (("at rest", "steady"), ("peak", "peak"))}
    writes = {kind: [item.changes[kind].writes for item in shown] for kind in tables.KINDS}
    sizes = [item.size.nodes for item in shown]
    drawn = (
        (latency, "ms, one change"),
        (memory, "MiB resident, all services in one process"),
        (writes, "writes to the API server for one change"),
    )
    series = dict(zip(tables.GRAPHS, drawn, strict=True))
    return {name: _graph(sizes, *series[name]) for name in tables.drawn(shown)}


def _graph(sizes: Sequence[int], series: Series, label: str) -> bytes:
    figure, axes = plt.subplots(figsize=(6, 3.2), layout="constrained")
    for number, (name, values) in enumerate(series.items()):
        style = "--" if name.endswith("p99") else "-"
        axes.plot(sizes, values, style, marker=".", color=_COLOURS[number % len(_COLOURS)], label=name, linewidth=1)
    axes.set_xscale("log", base=2)
    axes.set_xticks(sizes, [f"{size:,}" for size in sizes], minor=False)
    if any(name.endswith("p99") for name in series):
        axes.set_yscale("log")
    else:
        axes.set_ylim(bottom=0)
    axes.set_xlabel("nodes; applications, lattices and controllers in proportion")
    axes.set_ylabel(label)
    axes.grid(visible=True, linewidth=0.3)
    axes.legend(fontsize=7, ncols=2)
    content = io.BytesIO()
    figure.savefig(content, format="svg", metadata={"Date": None, "Creator": None})
    plt.close(figure)
    lines = content.getvalue().decode().splitlines()
    return ("\n".join(line.rstrip() for line in lines) + "\n").encode()


def main() -> int:
    """Write the page and its graphs, or report that they are out of date."""
    parser = argparse.ArgumentParser(description="Write the page about scale.")
    parser.add_argument("--check", action="store_true")
    parser.add_argument("page", type=Path)
    options = parser.parse_args()
    found = results.read(results.FILE)
    wanted = {options.page: page(options.page.read_text(encoding="utf-8"), found).encode()}
    if tables.shown(found):
        wanted |= {options.page.parent / name: content for name, content in graphs(found).items()}
    good = True
    for path, content in wanted.items():
        if not options.check:
            path.write_bytes(content)
        elif not path.exists() or path.read_bytes() != content:
            good = False
            print(f"{path} differs from what `make generate` writes", file=sys.stderr)
    return 0 if good else 1


if __name__ == "__main__":
    sys.exit(main())
