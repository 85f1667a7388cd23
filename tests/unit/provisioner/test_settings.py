"""The provisioner's settings for rollouts and for the legacy installer image."""

from __future__ import annotations

from typing import cast

import pytest

from provisioner.cache import Cache
from provisioner.gather import Gather
from provisioner.settings import Settings
from trellis.kube.client import Kube
from trellis.provisioning.int_or_percent import CountOrPercent
from trellis.provisioning.reasons import Reason
from trellis.provisioning.shims import ShimView
from trellis.provisioning.views import KWASM, NodeView, Target
from trellis_dev.testing.builders import a_node, a_shim, opted_in


@pytest.mark.parametrize(
    ("shim", "most"),
    [
        pytest.param(a_shim(), "10%", id="rolling without limits: the service's"),
        pytest.param(a_shim(max_update=CountOrPercent(3)), "3", id="its own"),
        pytest.param(a_shim(max_update=CountOrPercent(3), recreate=True), "None", id="recreate: all at once"),
    ],
)
def test_of_a_shim_so_many_nodes_are_in_progress_at_a_time(shim: ShimView, most: str) -> None:
    assert str(Settings().limits([shim])["spin"].max_update) == most


def cache_of(image: str, *shims: ShimView) -> Cache:
    settings = Settings(installer_image=image)
    nodes: dict[str, NodeView] = {}
    return Cache(cast("Kube", None), settings, nodes, {shim.name: shim for shim in shims})


def test_an_opted_in_node_gets_the_legacy_image_if_there_is_one() -> None:
    node = opted_in(a_node())
    target = cache_of("registry/kwasm:1").fleet.target(node)
    assert target is not None
    assert [name for name, _ in target.shims] == [KWASM]
    assert cache_of("").fleet.target(node) is None


def test_a_node_without_a_target_is_reported_once() -> None:
    node, without = opted_in(a_node()), cache_of("")
    gather = Gather(cast("Kube", None), without)
    assert gather._unserved(node)
    without.node_warned(node, Reason.NOTHING_TO_INSTALL)
    assert not gather._unserved(node)


@pytest.mark.parametrize(
    ("of", "node"),
    [
        pytest.param(cache_of("registry/kwasm:1"), opted_in(a_node()), id="there is an image"),
        pytest.param(cache_of("", a_shim(default=True)), opted_in(a_node()), id="there is a default Shim"),
        pytest.param(cache_of(""), a_node(), id="nobody opted it in"),
        pytest.param(cache_of(""), opted_in(a_node(operating_system="windows")), id="it is no Linux node"),
    ],
)
def test_a_node_with_a_source_without_opt_in_or_of_another_system_causes_no_warning(of: Cache, node: NodeView) -> None:
    assert not Gather(cast("Kube", None), of)._unserved(node)


def test_without_an_image_shims_are_all_there_is() -> None:
    shim = a_shim(default=True)
    assert cache_of("", shim).fleet.target(opted_in(a_node())) == cache_of("x", shim).fleet.target(opted_in(a_node()))
    assert cache_of("", shim).fleet.target(opted_in(a_node())) != Target(())
