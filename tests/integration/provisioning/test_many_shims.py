"""Five hundred Shims in one cluster: nodes get them all, in Jobs that a kernel can start."""

from __future__ import annotations

import json

import pytest

from support.nodes.fleet import Fleet, Manifest, eventually
from support.nodes.kubelets import kubelets
from support.nodes.shims import Shim

pytestmark = [pytest.mark.cluster, pytest.mark.timeout(300)]

SHIMS = 500
LONGEST_STRING = 128 * 2**10
"""Bytes of one argument or variable that Linux hands to a process."""


def longest_value(job: Manifest) -> int:
    """Return the size of the longest argument or variable of a Job's containers."""
    found = [0]
    for container in job["spec"]["template"]["spec"]["containers"]:
        found += [len(json.dumps(item.get("value", ""))) for item in container.get("env", ())]
        found += [len(item) for item in (*container.get("args", ()), *container.get("command", ()))]
    return max(found)


@pytest.mark.thorough
async def test_nodes_get_five_hundred_shims(fleet: Fleet, shim: Shim) -> None:
    nodes = shim.add_nodes(2)
    many = [Shim(fleet, f"shim-{number:03}") for number in range(SHIMS)]
    for item in many:
        item.apply(max_update="100%")
    longest = 0
    async with kubelets(fleet), fleet.services():

        def all_labelled() -> bool:
            nonlocal longest
            longest = max([longest, *map(longest_value, fleet.jobs())])
            have = [set(fleet.labels(node)) for node in nodes]
            return all(item.name in labels for labels in have for item in many)

        await eventually(all_labelled, "both nodes have all", seconds=200)
        assert longest < LONGEST_STRING
