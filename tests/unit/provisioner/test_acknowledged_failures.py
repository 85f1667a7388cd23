"""A person resumes a rollout: the next Job of a node whose failure is acknowledged tries nevertheless."""

from __future__ import annotations

import json
import time
from dataclasses import replace

import pytest

from provisioner.cache import Cache
from provisioner.gather import Gather
from provisioner.settings import Settings
from trellis.crds.shim import RemovalPolicy
from trellis.provisioning.shims import ShimView
from trellis.provisioning.views import NodeView, Target, encode_digests
from trellis_dev.fakes.fake import FakeKube
from trellis_dev.testing.builders import DIGEST, a_node, a_shim, failed, verified_node

NOW = int(time.time())
FAILED = failed(a_node(), DIGEST, at=NOW - 60)
HAS = replace(verified_node(a_node(), Target((("spin", "1"),)).digest, "handler"), shims=encode_digests({"spin": "1"}))


def is_retried(node: NodeView, shim: ShimView, *others: ShimView) -> bool:
    """Return what the Job of a node says of what its runtime refused."""
    shims = {item.name: item for item in (shim, *others)}
    gather = Gather(FakeKube(), Cache(FakeKube(), Settings(), {node.name: node}, shims))
    target = gather.cache.fleet.target(node)
    assert target is not None
    task = gather._task(node, target, time.time())
    assert task.spec is not None
    return "retryRefused" in json.loads(task.spec.to_json())


@pytest.mark.parametrize(
    ("node", "acknowledged", "retried"),
    [
        pytest.param(FAILED, NOW - 60, True, id="up to this very failure"),
        pytest.param(FAILED, NOW - 61, False, id="it failed after that"),
        pytest.param(FAILED, 0, False, id="nobody resumed"),
        pytest.param(FAILED, NOW + 10**6, False, id="a mark from the future would hold for ever"),
        pytest.param(a_node(), NOW, False, id="nothing failed"),
    ],
)
def test_an_acknowledged_failure_lets_the_runtime_be_tried_again(
    node: NodeView, acknowledged: int, *, retried: bool
) -> None:
    assert is_retried(node, a_shim(acknowledged=acknowledged)) is retried


def test_a_removal_is_tried_again_too() -> None:
    node = failed(HAS, Target(()).digest, at=NOW - 60)
    shim = a_shim(deleting=True, acknowledged=NOW, removal_policy=RemovalPolicy.FORCE)
    assert is_retried(node, shim)
    assert not is_retried(node, replace(shim, acknowledged=0))


def test_another_shims_word_counts_for_nothing() -> None:
    node = failed(HAS, DIGEST, at=NOW - 60)
    [(_, digest)] = Target((("spin", "1"),)).shims
    there = replace(a_shim(), invalid="stays as it is", acknowledged=NOW)
    assert digest == "1"
    assert not is_retried(node, a_shim("slight"), there)
