"""The watched kinds of Wasm pods: what health does not depend on is dropped, and views stay small."""

from __future__ import annotations

import json
import tracemalloc

from support.wasm_pods.objects import SECRET, event, pod, sandbox
from trellis.read_model.live.parts_wasm import view_wasm_pod, wasm_parts
from trellis.read_model.wasm_pods.workloads import view_cause

BYTES_EACH = 5_000


def test_pods_without_a_runtime_class_are_dropped() -> None:
    assert view_wasm_pod(pod(runtime_class="")) is None
    view = view_wasm_pod(pod())
    assert view is not None
    assert dict(view.meta.labels) == {}
    assert SECRET not in repr(view)


def test_events_that_no_health_depends_on_are_dropped() -> None:
    assert view_cause(event("FailedScheduling", "0/1 nodes are available")) is None
    assert view_cause(event("Evicted", "by its node")) is None
    assert view_cause(sandbox("x")) is not None
    for reason in ("FailedToRetrieveImagePullSecret", "FailedKillPod"):
        assert view_cause(event(reason, "its words are in the message of the health")) is not None


def test_owners_have_neither_labels_nor_a_selector() -> None:
    [deployments] = [part for part in wasm_parts() if part.name == "deployments"]
    manifest = {
        "metadata": {"name": "a", "namespace": "b", "labels": {"x": "y"}},
        "spec": {"selector": {"matchLabels": {"x": "y"}}},
    }
    view = deployments.project(manifest)
    assert (dict(view.meta.labels), dict(view.template.meta.labels), view.selector) == ({}, {}, "")


def test_a_pod_needs_little_memory() -> None:
    text, count = json.dumps(pod()), 500
    view_wasm_pod(json.loads(text))
    tracemalloc.start()
    try:
        before = tracemalloc.get_traced_memory()[0]
        kept = [view_wasm_pod(json.loads(text)) for _ in range(count)]
        used = tracemalloc.get_traced_memory()[0] - before
    finally:
        tracemalloc.stop()
    assert used / len(kept) < BYTES_EACH
