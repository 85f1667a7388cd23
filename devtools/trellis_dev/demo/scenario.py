"""The demo on simulated nodes: a Shim is rolled out, one node fails and is rolled back, the node is repaired.

In: a local cluster in which the services run. Out: the commands that were run, with their output, and the measurements.
Called by the demo. A node is faulty as long as it has an annotation (``kubelets.FAULT``); all else is what the services
do on any cluster:

  label the nodes ── 25% of them at a time ──┬─ a node lists the handler ──────────────────── Ready
                                             └─ it does not: HandlerMissing, rolled back ── Failed
  repair the node ── trellis rollout resume ── second attempt ── Ready
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Final

from trellis.kube.client import Kube
from trellis.kube.resources import SHIMS
from trellis.provisioning.shims import view_shim
from trellis.read_model.tables.nodes import NodeRow, NodeState
from trellis_cli.common.messages import EXIT_FAILED
from trellis_dev.demo.commands import Commands, Shown, write_manifest
from trellis_dev.demo.display import Display
from trellis_dev.demo.kubelets import FAULT
from trellis_dev.demo.shims import LABEL, NAME, make_shim
from trellis_dev.demo.watching import Watching
from trellis_dev.localcluster.nodes import SIMULATED

_FAULTY: Final = 3
"""Index of the node that fails. One of the first, so that its verification ends while other nodes are installed."""


@dataclass(frozen=True, slots=True)
class Scenario:
    """Steps of a demo: ``failed`` as the row of ``faulty`` showed it; ``seconds`` from the labels to the last node."""

    rollout: tuple[Shown, ...]
    failure: tuple[Shown, ...]
    repair: tuple[Shown, ...]
    faulty: str
    failed: NodeRow
    seconds: float
    next_version: Path

    @property
    def shown(self) -> tuple[Shown, ...]:
        """All commands in their order."""
        return (*self.rollout, *self.failure, *self.repair)


@dataclass(frozen=True, slots=True)
class Stage:
    """The cluster of a scenario. ``folder``: for manifests; ``seconds``: timeout of each rollout."""

    commands: Commands
    kube: Kube
    watching: Watching
    nodes: tuple[str, ...]
    folder: Path
    seconds: float
    check: Callable[[], None]
    """Raises CommandError if a process of the demo has ended."""


def faulty_of(nodes: tuple[str, ...]) -> str:
    """Return the node that fails: the fourth, or the last of fewer."""
    return nodes[min(_FAULTY, len(nodes) - 1)]


async def run_scenario(stage: Stage, display: Display) -> Scenario:
    """Run the demo on the simulated nodes.

    Raises:
        CommandError: a command failed, a node is not in the expected state in time, or a process ended.
    """
    run, watching, faulty = stage.commands.run, stage.watching, faulty_of(stage.nodes)
    await watching.until_handlers_listed(stage.nodes, stage.seconds, stage.check)
    await run("kubectl", "annotate", "node", faulty, f"{FAULT}=true")
    applied = await run("kubectl", "apply", "-f", str(write_manifest(stage.folder, NAME, make_shim())))
    watching.shims = (view_shim(await stage.kube.get(SHIMS, NAME)),)
    began = time.monotonic()
    labelled = await run("kubectl", "label", "node", "--selector", "=".join(SIMULATED), "=".join(LABEL))
    display.step(f"applied Shim {NAME}, and labelled {len(stage.nodes)} nodes; {faulty} has a fault")

    ready = dict.fromkeys(stage.nodes, NodeState.READY)
    await watching.reached(ready | {faulty: NodeState.FAILED}, stage.seconds, stage.check)
    failed = next(row for row in watching.rows() if row.name == faulty)
    watching.accept(failed)
    display.step(f"{faulty} failed and was rolled back: {failed.reason}")
    status = await run("trellis", "rollout", "status", NAME, statuses=(0, EXIT_FAILED))
    reason = await run("trellis", "explain", f"node/{faulty}", statuses=(0, EXIT_FAILED))

    fixed = await run("kubectl", "annotate", "node", faulty, f"{FAULT}-")
    resumed = await run("trellis", "rollout", "resume", NAME)
    display.step(f"repaired {faulty}, and resumed the rollout")
    ended = await watching.reached(ready, stage.seconds, stage.check)
    await watching.last_events()
    shown = await run("trellis", "nodes")
    return Scenario(
        rollout=(applied, replace(labelled, output=""), status),  # its output is a line per node
        failure=(reason,),
        repair=(fixed, resumed, shown),
        faulty=faulty,
        failed=failed,
        seconds=ended - began,
        next_version=write_manifest(stage.folder, f"{NAME}-2", make_shim(options={"SystemdCgroup": "true"})),
    )
