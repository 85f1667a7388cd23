"""The final report of the demo: the nodes, the trace of one of them, the figures, and the next steps.

In: the measurements. Out: standard output. Called by the demo.
"""

from __future__ import annotations

import shlex
from collections.abc import Sequence
from dataclasses import dataclass

from rich.text import Text

from trellis.read_model.tables.nodes import NodeRow, summary
from trellis.read_model.traces.span_tree import forest
from trellis_cli.common.output import Format, print_document, print_result, print_text
from trellis_cli.nodes import table_of
from trellis_cli.trace.span_tree import NS_PER_MS, render
from trellis_dev.demo.target import NAME
from trellis_dev.demo.viewing import Page
from trellis_dev.localcluster import ClusterInfo
from trellis_dev.localcluster.otlp import Span


@dataclass(frozen=True, slots=True)
class Outcome:
    """A successful run. ``seconds``: from the first annotation to the last node ready; ``trace``: that of ``node``."""

    rows: Sequence[NodeRow]
    provisioned: int
    seconds: float
    most_in_work: int
    node: str
    trace: Sequence[Span]
    kept: ClusterInfo | None
    context: str | None
    page: Page | None = None

    def totals(self) -> str:
        """Return the figures in one line."""
        nodes = "node" if self.provisioned == 1 else "nodes"
        return f"{self.provisioned} {nodes} provisioned in {self.seconds:.1f} s, at most {self.most_in_work} at a time"


def show(outcome: Outcome, output: Format) -> None:
    """Print the report of a run."""
    if output.structured:
        print_document(output, document_of(outcome))
        return
    print_result(table_of([row for row in outcome.rows if row.concern]), summary(outcome.rows))
    print_text("")
    if outcome.trace:
        print_result(render(f"trace {outcome.trace[0].trace_id} of {outcome.node}", forest(outcome.trace)))
    else:
        print_result(f"no trace of {outcome.node} was received")
    print_text("")
    print_result(Text(outcome.totals(), style="bold"))
    for line in what_next(outcome):
        print_text(line)


def document_of(outcome: Outcome) -> dict[str, object]:
    """Return a run for JSON: ``nodes`` as in `trellis nodes`, the figures, the spans in tree order."""
    branches = forest(outcome.trace)
    began = min((span.start_ns for span in outcome.trace), default=0)
    return {
        "nodes": [row.document() for row in outcome.rows],
        "provisioned": outcome.provisioned,
        "seconds": round(outcome.seconds, 3),
        "most_in_work": outcome.most_in_work,
        "trace": [
            {
                "depth": depth,
                "name": span.name,
                "service": span.service,
                "offset_ms": (span.start_ns - began) / NS_PER_MS,
                "duration_ms": (span.end_ns - span.start_ns) / NS_PER_MS,
            }
            for branch in branches
            for depth, span in branch.walk()
        ],
        "kept": outcome.kept.model_dump(mode="json") if outcome.kept else None,
        "console": {"url": outcome.page.url, "log_in": outcome.page.log_in} if outcome.page else None,
    }


def _look(page: Page | None) -> list[str]:
    if page is None:
        return []
    return [f"Console: {page.url}. Command for a login token:", f"  {shlex.join(page.log_in)}"]


def what_next(outcome: Outcome) -> list[str]:
    """Return the next steps after this run."""
    if outcome.kept is not None:
        return [
            "The cluster and the services keep running. Inspect them:",
            f"  export KUBECONFIG={outcome.kept.kubeconfig} TRELLIS_NATS_URL={outcome.kept.nats_url}",
            "  trellis nodes --all; trellis status; trellis events tail --last 20",
            f"  {outcome.kept.bin_dir / 'kubectl'} annotate node --all kwasm.sh/kwasm-node=true",
            *_look(outcome.page),
            *([f"Traces in Jaeger: {outcome.kept.jaeger_url}"] if outcome.kept.jaeger_url else []),
            f"Remove the cluster: trellis dev down --name {NAME}",
        ]
    if outcome.context is not None:
        return [
            f"The nodes of {outcome.context} stay provisioned; the services and their NATS have ended.",
            "Keep the services running: trellis run (with a NATS: --nats-url)",
            "Uninstall, while they run: kubectl annotate node NAME kwasm.sh/kwasm-node-",
        ]
    return [
        "The demo cluster was removed. Keep it: trellis demo --keep",
        "Use your own cluster: trellis demo --use-current-context --node NAME",
    ]
