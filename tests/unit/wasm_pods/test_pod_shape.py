"""What is decoded of a Wasm pod is all that its view is made of, except the labels of users."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import orjson
import pytest

from support.cluster.read_keys import ReadKeys
from support.wasm_pods.objects import CREATED, CREATING, IMAGE, READY, SECRET, container, crashing, ended, pod
from trellis.read_model.live.parts_wasm import view_wasm_pod
from trellis.read_model.wasm_pods.pod_shape import POD_SHAPE, PodManifest
from trellis.read_model.wasm_pods.pods import WasmPod, view_pod

OWNER = ("ReplicaSet", "hello-1", "uid-rs")
SIDECAR = {"name": "proxy", "image": IMAGE, "restartPolicy": "Always"}
LIMITED = {"name": "app", "image": IMAGE, "resources": {"limits": {"memory": "64Mi", "cpu": "1"}}}
PODS = {
    "ready": pod(owner=OWNER),
    "with a sidecar": pod("p", READY, container(name="proxy", ready=True), initContainers=[SIDECAR]),
    "with a limit": pod("p", crashing(137, "OOMKilled"), containers=[LIMITED]),
    "with gates": pod("p", CREATING, node="", schedulerName="own", schedulingGates=[{"name": "quota"}]),
    "ended": pod("p", container({"terminated": ended(1, message="x")}), phase="Failed", reason="Evicted", message="m"),
    "tolerant": pod(tolerations=[{"key": "a", "operator": "Equal", "value": "b", "effect": "NoSchedule"}]),
    "with conditions": pod(conditions=[{"type": "PodReadyToStartContainers", "status": "True", "message": "m"}]),
    "with nulls": {"metadata": {"name": "p", "ownerReferences": None}, "spec": None, "status": None},
}


def decoded(manifest: dict[str, Any]) -> dict[str, Any]:
    found: dict[str, Any] = POD_SHAPE.event(orjson.dumps({"type": "ADDED", "object": manifest}))["object"]
    return found


def unlabelled(view: WasmPod) -> WasmPod:
    return replace(view, meta=replace(view.meta, labels={}))


@pytest.mark.parametrize("manifest", PODS.values(), ids=PODS)
def test_a_view_reads_no_key_that_is_not_decoded(manifest: dict[str, Any]) -> None:
    missing: list[str] = []
    view = view_pod(ReadKeys(manifest, PodManifest, missing))
    assert not missing
    assert unlabelled(view) == unlabelled(view_pod(decoded(manifest)))


def test_a_pod_in_deletion_has_its_finalizers() -> None:
    manifest = pod(deleting=True)
    manifest["metadata"]["finalizers"] = ["example.com/hold"]
    view = view_pod(decoded(manifest))
    assert (view.deletion, view.finalizers) == (CREATED, ("example.com/hold",))


def test_the_environment_and_the_labels_of_users_are_skipped() -> None:
    assert SECRET not in repr(decoded(pod()))
    assert decoded(pod(owner=OWNER))["metadata"]["labels"] == {"pod-template-hash": "1"}
    assert view_pod(decoded(pod(owner=OWNER))).deployment == "hello"


def test_a_viewer_sees_the_same_pod() -> None:
    assert view_wasm_pod(decoded(pod(owner=OWNER))) == view_wasm_pod(pod(owner=OWNER))
