"""Shows nodes to provisioner as its informer would."""

from __future__ import annotations

from collections.abc import Iterable

from provisioner.known import Known
from trellis.provisioning.views import NodeView


def show_nodes(known: Known, nodes: Iterable[NodeView]) -> None:
    """Let these be all nodes there are."""
    former = set(known.nodes)
    known.nodes.clear()
    known.nodes.update({node.name: node for node in nodes})
    for name in former | set(known.nodes):
        known.fleet.take(name)
