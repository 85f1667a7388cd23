"""The production timings of provisioner: a changed one is seen here."""

from __future__ import annotations

from dataclasses import asdict

from provisioner.cache import Cache
from provisioner.domain.pod_readiness import Workloads
from provisioner.gather import Gather
from provisioner.rollout_gather import fleet_snapshot
from provisioner.settings import Settings
from provisioner.timings import NodeTimings, Timings
from trellis_dev.fakes.fake import FakeKube
from trellis_dev.testing.builders import a_node


def test_the_production_timings_are_these() -> None:
    assert asdict(Timings()) == {
        "settle": 1,
        "blocked": 0.2,
        "plan_delay": 0.05,
        "plan_rest": 0.5,
        "status_delay": 1,
        "deleting": 30,
        "unreachable": 600,
        "publish": 5,
        "nodes": {
            "grace": 60,
            "labels": 1,
            "in_use": 60,
            "drain": 5,
            "placed": 5,
            "pod_left": 5,
            "name_taken": 2,
            "clear": 4,
            "record": 2,
        },
        "rollout_pods": {"settle": 10, "look": 5, "fresh": 4},
        "workloads": {
            "settle": 0.2,
            "classes": 1,
            "look": 15,
            "patience": 10,
            "events_again": 30,
            "reads": 10,
            "reads_burst": 20,
            "events_wait": 1,
            "refused_again": 30,
            "refused_for": 1200,
            "other_class": 3600,
            "steady": 30,
            "warn_again": 600,
            "warn_refill": 60,
            "forget": 600,
            "measure": 5,
            "publish": 5,
            "recall": 30,
        },
        "deletions": {"settle": 2, "together": 60, "grace": 300},
        "refusals": {"retry": 15, "spread": 0.25},
    }


async def test_plans_and_decisions_depend_on_the_timings_that_are_given() -> None:
    node, timings = a_node(), Timings(blocked=3.0, nodes=NodeTimings(clear=0.5))
    kube = FakeKube()
    cache = Cache(kube, Settings(), {node.name: node}, {}, timings=timings)
    assert fleet_snapshot(cache, kube.now(), Workloads()).blocked_retry == 3.0
    assert (await Gather(kube, cache).snapshot(node.name)).timings == timings.nodes
