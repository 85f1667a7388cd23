"""The kept versions of a Shim, run after run."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from provisioner.cache import Cache
from provisioner.domain.shim_nodes import Tally, member_of
from provisioner.reconciler import ShimReconciler
from provisioner.settings import Settings
from provisioner.shim_apply import ShimEffects
from provisioner.shim_gather import ShimGather
from trellis.installer_api.spec import WantedShim
from trellis.kube.recorder import EventRecorder
from trellis.kube.resources import CONTROLLER_REVISIONS, NAMESPACES, RUNTIME_CLASSES, SHIMS
from trellis.provisioning.placement import Placement
from trellis.provisioning.reasons import Reason
from trellis.provisioning.revisions import KEPT
from trellis.provisioning.shims import Refusal, ShimView, view_shim, wanted_shim_for
from trellis.provisioning.views import NodeView, Target, encode_digests
from trellis.telemetry import Metrics, setup
from trellis_dev.fakes.fake import FakeKube
from trellis_dev.testing.builders import a_node, a_shim, failed, verified_node

SETTINGS = Settings()


class Provisioner:
    """Its part that follows a Shim, over an API server in memory and nodes as given."""

    def __init__(self) -> None:
        self.kube = FakeKube()
        self.kube.put(NAMESPACES, {"metadata": {"name": SETTINGS.namespace}})
        self.nodes: dict[str, NodeView] = {}
        self.watched: dict[str, ShimView] = {}
        self.cache = Cache(self.kube, SETTINGS, self.nodes, self.watched)
        self.gather = ShimGather(self.kube, self.cache)
        effects = ShimEffects(self.kube, EventRecorder(self.kube, component="test"), self.cache)
        self.reconcile = ShimReconciler(self.gather, self.cache, effects, setup("test", metrics=Metrics()))

    def change(self, number: int) -> str:
        """Give the Shim a version, as a person would, and return its digest."""
        spec: dict[str, Any] = {
            "fetchStrategy": {"anonHttp": {"location": "https://example.com/x", "sha256": f"{number:064x}"}},
            "runtimeClass": {"name": "spin", "handler": "spin"},
            "rolloutStrategy": {"type": "recreate"},
        }
        shim = view_shim(self.kube.put(SHIMS, {"metadata": {"name": "spin"}, "spec": spec}))
        wanted = wanted_shim_for(shim, "amd64", require_checksum=True)
        assert isinstance(wanted, WantedShim)
        return wanted.digest

    async def run(self) -> None:
        """Follow the Shim once."""
        await self.reconcile.run("spin", None)

    def kept(self) -> dict[int, int]:
        """Return the versions that are kept, by revision."""
        return {
            found["revision"]: int(found["data"]["spec"]["fetchStrategy"]["anonHttp"]["sha256"], 16)
            for found in self.kube.objects(CONTROLLER_REVISIONS)
        }


@pytest.mark.parametrize("runs", [1, 2])
async def test_a_version_that_returns_at_once_is_kept_again(runs: int) -> None:
    provisioner = Provisioner()
    for number in (1, 2, 1):
        provisioner.change(number)
        for _ in range(runs if number == 2 else 2):
            await provisioner.run()
    assert provisioner.kept() == {2: 2, 3: 1}


async def test_while_nothing_changes_the_versions_are_not_listed() -> None:
    provisioner = Provisioner()
    provisioner.change(1)
    for _ in range(2):
        await provisioner.run()
    before = len(provisioner.kube.api.requests)
    await provisioner.run()
    requested = [request.path for request in provisioner.kube.api.requests[before:]]
    assert requested
    assert not [path for path in requested if "controllerrevisions" in path]


async def test_a_version_that_a_node_has_outlives_ten_others() -> None:
    provisioner = Provisioner()
    digests = {"spin": provisioner.change(1)}
    node = verified_node(a_node(), Target(tuple(digests.items())).digest, "handler")
    provisioner.nodes[node.name] = replace(node, shims=encode_digests(digests))
    for number in range(1, KEPT + 4):
        provisioner.change(number)
        await provisioner.run()
    assert set(provisioner.kept().values()) == {1, *range(4, KEPT + 4)}
    provisioner.nodes.clear()
    provisioner.change(99)
    await provisioner.run()
    assert set(provisioner.kept().values()) == {*range(5, KEPT + 4), 99}


async def test_a_wall_clock_that_is_set_ahead_does_not_end_the_patience_with_nodes() -> None:
    """Years after the deletion by this machine's clock, seconds in truth: nodes that are not ready are waited for."""
    provisioner = Provisioner()
    provisioner.change(1)
    found = provisioner.kube.put(SHIMS, {"metadata": {"name": "spin", "finalizers": ["x"]}, "spec": {}})
    stored = provisioner.kube.api.store.tables[SHIMS].objects["", "spin"]
    stored["metadata"]["deletionTimestamp"] = "2001-01-01T00:00:00Z"
    provisioner.watched["spin"] = view_shim(stored)
    await provisioner.cache.deletions.look(provisioner.watched.values())
    snapshot = await provisioner.gather.snapshot("spin")
    assert snapshot is not None
    assert snapshot.shim.deleting
    assert not snapshot.patience_over
    provisioner.cache.deletions.seen[found["metadata"]["uid"]] -= 601.0
    snapshot = await provisioner.gather.snapshot("spin")
    assert snapshot is not None
    assert snapshot.patience_over


@pytest.mark.parametrize(("handler", "reported"), [("spin", 0), ("other", 1)])
async def test_a_request_that_is_refused_on_a_node_is_not_of_a_shim_in_conflict_there(
    handler: str, reported: int
) -> None:
    provisioner, node = Provisioner(), a_node()
    provisioner.change(1)
    provisioner.nodes[node.name] = node
    provisioner.watched["older"] = a_shim("older", handler=handler)
    provisioner.cache.refused.take(node, Reason.JOB_REFUSED, "no room")
    snapshot = await provisioner.gather.snapshot("spin")
    assert snapshot is not None
    assert len(snapshot.refused) == reported


@pytest.mark.parametrize("deleting", [False, True])
async def test_an_older_shim_with_the_runtime_class_gets_it(*, deleting: bool) -> None:
    provisioner = Provisioner()
    provisioner.change(1)
    provisioner.watched["older"] = a_shim("older", runtime_class="spin", created_at=1, deleting=deleting)
    await provisioner.run()
    assert [found["metadata"]["name"] for found in provisioner.kube.objects(RUNTIME_CLASSES)] == ["spin"] * deleting


async def test_nodes_that_match_the_placement_are_counted() -> None:
    placement = Placement((("tier", "edge"),))
    nodes = [a_node("a"), a_node("b", labels=(("tier", "edge"),))]
    shim = a_shim(placement=placement)
    members = [member_of(shim, node, [shim], auto_provision=False, require_checksum=True) for node in nodes]
    totals = Tally(member for member in members if member is not None).nodes()
    assert (totals.nodes, totals.placeable) == (2, 1)


def test_the_rival_of_a_label_is_that_of_the_member() -> None:
    shims = [a_shim(), a_shim("spin-v2", selector=(("spin", "true"),))]
    node = a_node(labels=(("spin", "true"),))
    member = member_of(shims[0], node, shims, auto_provision=False, require_checksum=True)
    assert member is not None
    assert (member.wanted, member.rival) == (Refusal.LABEL_CONFLICT, "spin-v2")


async def test_a_node_that_fails_has_the_error_of_the_shim_itself() -> None:
    provisioner, node = Provisioner(), a_node()
    digests = {"spin": provisioner.change(1)}
    other = a_shim("other")
    wanted = wanted_shim_for(other, "amd64", require_checksum=True)
    assert isinstance(wanted, WantedShim)
    tried = failed(node, Target((("other", wanted.digest),)).digest, attempt=2)
    digests["other"] = wanted.digest
    provisioner.nodes[node.name] = replace(tried, failed_shims=encode_digests(digests))
    provisioner.watched |= {"other": other, "spin": view_shim(next(iter(provisioner.kube.objects(SHIMS))))}
    snapshot = await provisioner.gather.snapshot("spin")
    assert snapshot is not None
    [(found, reason)] = snapshot.failing
    assert found.name == node.name
    assert "it broke" not in reason
