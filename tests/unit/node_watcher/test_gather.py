"""Facts that a new leader reads from the bus: the published events of each node, and nothing more."""

from __future__ import annotations

import pytest

from node_watcher.domain.actions import PublishedState
from node_watcher.gather import Cache
from node_watcher.restore import published_after
from trellis.events.node import NodeEventData, NodeGone, NodeOptedIn, NodeOptedOut, NodeReady, NodeReplaced
from trellis.kube.mass_deletions import Deletions
from trellis.kube.resources import SHIMS
from trellis.provisioning.shim_references import ShimReferences
from trellis_dev.fakes.fake import FakeKube

ABOUT = {"name": "n1", "uid": "u1", "resource_version": "5"}
OPTED_IN = NodeOptedIn(**ABOUT, architecture="amd64", operating_system="linux", runtime_version="", by="Annotation")
READY = NodeReady(**ABOUT, digest="d1", verified="job")


@pytest.mark.parametrize(
    ("before", "event", "after"),
    [
        pytest.param(None, OPTED_IN, PublishedState("u1", opted_in=True), id="opted in"),
        pytest.param(
            PublishedState("u1", opted_in=True), READY, PublishedState("u1", opted_in=True, ready="d1"), id="ready"
        ),
        pytest.param(
            PublishedState("u1", ready="d1"), OPTED_IN, PublishedState("u1", opted_in=True, ready="d1"), id="said again"
        ),
        pytest.param(
            PublishedState("u0", ready="d1"),
            OPTED_IN,
            PublishedState("u1", opted_in=True),
            id="another node of that name",
        ),
        pytest.param(
            PublishedState("u1", opted_in=True),
            NodeOptedOut(**ABOUT),
            PublishedState("u1", opted_in=False),
            id="opted out",
        ),
        pytest.param(PublishedState("u0"), NodeReplaced(**ABOUT, former_uid="u0"), PublishedState("u1"), id="replaced"),
        pytest.param(PublishedState("u1", opted_in=True), NodeGone(**ABOUT), None, id="gone"),
    ],
)
def test_the_published_state_after_an_event(
    before: PublishedState | None, event: NodeEventData, after: PublishedState | None
) -> None:
    assert published_after(before, event) == after


def a_world() -> Cache:
    return Cache({}, {}, False, Deletions(FakeKube(), SHIMS), ShimReferences(lambda: True))


def test_nothing_is_kept_of_nodes_that_were_deleted() -> None:
    cache = a_world()
    for index in range(100):
        cache.remember(f"n{index}", PublishedState(f"u{index}", opted_in=True))
        cache.observed_ns[f"n{index}"] = 1
        cache.remember(f"n{index}", None)
        cache.forget(f"n{index}")
    assert cache.names() == set()
    assert not cache.observed_ns


def test_on_a_new_stream_everything_is_published_again_without_repeated_warnings() -> None:
    cache = a_world()
    cache.remember("n1", PublishedState("u1", opted_in=True, ready="d1", complained="maybe"))
    cache.forget_published()
    assert cache.published["n1"] == PublishedState("u1", complained="maybe")
