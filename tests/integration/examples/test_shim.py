"""deploy/examples/shim: the runtime goes to the nodes that it names, and comes off them."""

from __future__ import annotations

import asyncio

import pytest

from support.examples.applied_examples import Kubectl, trellis
from support.examples.folders import manifest
from support.lattices.host_world import PATIENCE
from support.nodes.fleet import Fleet, eventually
from support.nodes.kubelets import kubelets
from support.nodes.shims import Shim

pytestmark = [pytest.mark.cluster, pytest.mark.nats, pytest.mark.thorough]


async def test_the_shim_goes_to_nodes_with_the_label(fleet: Fleet, shim: Shim, kubectl: Kubectl) -> None:
    shim.name = str(manifest("shim", "Shim")["metadata"]["name"])
    labelled, other = fleet.add("node", "node", opted_in=False)
    kubectl("label", "node", labelled, "wasm=true")
    async with fleet.services(), kubelets(fleet):
        kubectl.apply("shim")
        await eventually(
            lambda: shim.condition("Available") == ("True", "AllNodesReady"), "available", seconds=PATIENCE
        )
        assert shim.has(labelled)
        assert not shim.has(other)
        assert (shim.runtime_class() or {})["handler"] == "spin"
        output = await asyncio.to_thread(trellis, fleet.info, "rollout", "status", "spin", "--watch")
        assert output.endswith("spin: Complete: 1 of 1 nodes updated\n")
        await asyncio.to_thread(kubectl.delete, "shim")
        assert not shim.has(labelled)
