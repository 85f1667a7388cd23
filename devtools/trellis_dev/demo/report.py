"""The final report of the demo: the commands that were run, a trace, the figures, and the next steps.

In: the measurements. Out: standard output. Called by the demo. Invariant: each line with two leading spaces among the
next steps is a command, which works in a shell of the user as it is printed, in this order.
"""

from __future__ import annotations

import shlex
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from rich.text import Text

from trellis.read_model.tables.nodes import NodeRow, summary
from trellis.read_model.traces.span_tree import forest
from trellis_cli.common.output import Format, print_document, print_result, print_text
from trellis_cli.nodes import table_of
from trellis_cli.trace.span_tree import NS_PER_MS, render
from trellis_dev.demo.commands import Shown, export_lines, own_command
from trellis_dev.demo.scenario import Scenario
from trellis_dev.demo.shims import HELLO, NAME
from trellis_dev.demo.target import NAME as CLUSTER
from trellis_dev.demo.viewing import Page
from trellis_dev.localcluster import ClusterInfo
from trellis_dev.localcluster.otlp import Span


@dataclass(frozen=True, slots=True)
class Outcome:
    """A successful run. ``seconds``: from the first write to the last node ready; ``trace``: that of ``node``.

    ``scenario``: the steps on simulated nodes; ``on_real_node``: the commands of the part on a real node.
    """

    rows: Sequence[NodeRow]
    provisioned: int
    seconds: float
    most_in_progress: int
    node: str
    trace: Sequence[Span]
    kept: ClusterInfo | None
    context: str | None
    page: Page | None = None
    scenario: Scenario | None = None
    on_real_node: tuple[Shown, ...] = ()

    def totals(self) -> str:
        """Return the figures in one line."""
        nodes = "node" if self.provisioned == 1 else "nodes"
        return (
            f"{self.provisioned} {nodes} provisioned in {self.seconds:.1f} s, at most {self.most_in_progress} at a time"
        )


def show(outcome: Outcome, output: Format) -> None:
    """Print the report of a run."""
    if output.structured:
        print_document(output, document_of(outcome))
        return
    if outcome.scenario is None:
        print_result(table_of([row for row in outcome.rows if row.concern]), summary(outcome.rows))
    else:
        _show_scenario(outcome.scenario)
    _heading(f"Trace of the last installation on {outcome.node}")
    if outcome.trace:
        print_result(render(f"trace {outcome.trace[0].trace_id} of {outcome.node}", forest(outcome.trace)))
    else:
        print_result(f"no trace of {outcome.node} was received")
    if outcome.on_real_node:
        _heading("A Wasm pod on a real node")
        _show_commands(outcome.on_real_node)
    print_text("")
    print_result(Text(outcome.totals(), style="bold"))
    for line in what_next(outcome):
        print_text(line)


def _show_scenario(scenario: Scenario) -> None:
    _heading(f"A Shim is rolled out; {scenario.faulty} fails and is rolled back", first=True)
    _show_commands(scenario.rollout)
    _heading(f"The reason: {scenario.failed.reason}")
    _show_commands(scenario.failure)
    _heading("The node is repaired, and the rollout resumed")
    _show_commands(scenario.repair)


def _heading(text: str, *, first: bool = False) -> None:
    if not first:
        print_text("")
    print_result(Text(text, style="bold"))


def _show_commands(commands: Iterable[Shown]) -> None:
    for command in commands:
        print_result(Text(f"$ {command.line}", style="cyan"))
        if command.output:
            print_text(command.output)


def document_of(outcome: Outcome) -> dict[str, object]:
    """Return a run for JSON: ``nodes`` as in `trellis nodes`, the figures, the spans in tree order.

    ``failed``: the faulty node as it was before its repair, null without a scenario; ``commands``: what was run.
    """
    branches = forest(outcome.trace)
    began = min((span.start_ns for span in outcome.trace), default=0)
    commands = (*(outcome.scenario.shown if outcome.scenario else ()), *outcome.on_real_node)
    return {
        "nodes": [row.document() for row in outcome.rows],
        "provisioned": outcome.provisioned,
        "seconds": round(outcome.seconds, 3),
        "most_in_progress": outcome.most_in_progress,
        "failed": outcome.scenario.failed.document() if outcome.scenario else None,
        "commands": [command.document() for command in commands],
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


def what_next(outcome: Outcome) -> list[str]:
    """Return the next steps after this run."""
    if outcome.kept is not None:
        return _kept(outcome, outcome.kept)
    if outcome.context is not None:
        return [
            f"The nodes of {outcome.context} stay provisioned; the services and their NATS have ended.",
            f"Keep the services running: {own_command()} run (with a NATS: --nats-url)",
            "Uninstall, while they run: kubectl annotate node NAME kwasm.sh/kwasm-node-",
        ]
    return [
        f"The demo cluster was removed. Keep it: {own_command()} demo --keep",
        f"Use your own cluster: {own_command()} demo --use-current-context --node NAME",
    ]


def _kept(outcome: Outcome, cluster: ClusterInfo) -> list[str]:
    lines = ["The cluster and the services keep running. Use them in this shell:"]
    lines += [f"  {line}" for line in export_lines(cluster)]
    lines += ["Inspect them:", "  trellis nodes", "  trellis status", "  trellis events replay --since 10m"]
    if cluster.jaeger_url:
        lines.append(f"  trellis trace node/{outcome.node}")
    if outcome.scenario is not None:
        lines += [
            f"Roll out another version of the Shim {NAME}:",
            f"  kubectl apply -f {shlex.quote(str(outcome.scenario.next_version))}",
            f"  trellis rollout status {NAME} --watch",
        ]
    if outcome.on_real_node:
        lines += ["Read the output of the Wasm pod again:", f"  kubectl logs {HELLO}"]
    lines += _look(outcome)
    return [*lines, "Remove the cluster:", f"  trellis dev down --name {CLUSTER}"]


def _look(outcome: Outcome) -> list[str]:
    if outcome.page is None:
        return []
    lines = [f"Console: {outcome.page.url}. Command for a login token:", f"  {shlex.join(outcome.page.log_in)}"]
    link = outcome.page.trace(outcome.trace[0].trace_id) if outcome.trace else None
    return [*lines, f"Trace of {outcome.node}: {link}"] if link else lines
