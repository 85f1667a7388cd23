"""Two Shims on the same nodes, one of which cannot be installed: the other is, and only the guilty one fails."""

from __future__ import annotations

import pytest

from support.nodes.fleet import Fleet, eventually
from support.nodes.installers import GUILTY, PROBLEM
from support.nodes.kubelets import kubelets
from support.nodes.shims import SHIMS, Shim
from trellis import names

pytestmark = [pytest.mark.cluster, pytest.mark.thorough]


async def test_a_shim_that_fails_keeps_no_other_from_its_nodes(fleet: Fleet, shim: Shim) -> None:
    nodes = shim.add_nodes(2)
    guilty = Shim(fleet)
    guilty.name, guilty.handler = f"guilty-{fleet.id}", GUILTY.handler
    rolling = {"type": "rolling", "rolling": {"maxUpdate": 2, "pauseOnFailures": 1}}
    async with fleet.services(), kubelets(fleet):
        guilty.apply(path="blame-here", rolloutStrategy=rolling)
        shim.apply(rolloutStrategy=rolling)
        await eventually(lambda: shim.counts() == (2, 2, 2), "the other is on every node", seconds=90)
        await eventually(lambda: shim.condition("Degraded") == ("False", "Healthy"), "and has no fault")
        await eventually(lambda: guilty.condition("Degraded") == ("True", "NodesFailing"), "the guilty one has")
        assert shim.condition("Progressing") == ("False", "Updated")
        assert guilty.counts() == (2, 0, 0)
        assert guilty.name in fleet.annotations(nodes[0])[names.ANNOTATION_BLAMED]
        assert PROBLEM in (fleet.annotations(nodes[0])[names.ANNOTATION_FAILURE])

        guilty.apply(max_update=2)
        await eventually(lambda: guilty.counts() == (2, 2, 2), "mended, it is installed too", seconds=90)
        await eventually(lambda: guilty.condition("Degraded") == ("False", "Healthy"), "and fails no more")
        assert not any(names.ANNOTATION_BLAMED in fleet.annotations(node) for node in nodes)
        for item in (shim, guilty):
            fleet.api.call("DELETE", f"{SHIMS}/{item.name}")
        for item in (shim, guilty):
            await eventually(lambda item=item: item.found() is None, "both are gone", seconds=90)
