"""A node starts with a taint, which is removed once all its Shims are verified; other taints stay."""

from __future__ import annotations

from typing import Any

import pytest

from support.nodes.fleet import Fleet, eventually
from support.nodes.kubelets import kubelets
from support.nodes.shims import Shim

pytestmark = [pytest.mark.cluster, pytest.mark.thorough]

KEY = "example.com/starting"
STARTING = {"key": KEY, "value": "true", "effect": "NoSchedule"}
LOOKS_ALIKE = {"key": KEY, "value": "true", "effect": "PreferNoSchedule"}


def taints(fleet: Fleet, node: str) -> list[dict[str, Any]]:
    found = fleet.node(node)["spec"].get("taints") or []
    return [taint for taint in found if not taint["key"].startswith("node.kubernetes.io/")]


async def test_the_startup_taint_goes_when_all_shims_that_name_it_are_verified(fleet: Fleet, shim: Shim) -> None:
    [node] = shim.add_nodes(1)
    fleet.patch(node, {"spec": {"taints": [STARTING, LOOKS_ALIKE]}})
    second = Shim(fleet)
    second.name = second.handler = f"slight-{fleet.id}"
    requested = {"startupTaint": {"key": KEY, "effect": "NoSchedule"}}
    async with fleet.services(), kubelets(fleet):
        second.apply(sha256=None, **requested)  # so it is wanted there, and cannot be installed
        shim.apply(**requested)
        await eventually(lambda: shim.has(node), "the first Shim is verified", seconds=60)
        await eventually(lambda: shim.condition("Available")[0] == "True", "and says so")
        assert taints(fleet, node) == [STARTING, LOOKS_ALIKE]
        second.apply(**requested)
        await eventually(lambda: second.has(node), "the second Shim is verified", seconds=60)
        await eventually(lambda: taints(fleet, node) == [LOOKS_ALIKE], "the taint is gone")
        for item in (shim, second):
            item.delete()
        for item in (shim, second):
            await eventually(lambda item=item: item.found() is None, f"{item.name} is gone", seconds=60)
        assert taints(fleet, node) == [LOOKS_ALIKE]
