"""The decoded fields of a Node are all fields of its view."""

from __future__ import annotations

from typing import Any

import orjson
import pytest

from support.cluster.read_keys import ReadKeys
from trellis import names
from trellis.provisioning.node_shape import NODE_SHAPE, NodeManifest
from trellis.provisioning.nodes_and_jobs import view_node

TIME = "2026-01-01T00:00:00Z"
NODE: dict[str, Any] = {
    "apiVersion": "v1",
    "kind": "Node",
    "metadata": {
        "name": "n-1",
        "uid": "u-1",
        "resourceVersion": "7",
        "creationTimestamp": TIME,
        "labels": {"kubernetes.io/os": "linux", names.LABEL_WASM_READY: "true", names.LABEL_PROVISIONED: "n-1"},
        "annotations": {names.ANNOTATION_OPT_IN: "true", names.ANNOTATION_FAILURE: "x", "other": "y"},
        "managedFields": [{"manager": "kubelet", "time": TIME, "fieldsV1": {"f:metadata": {"f:labels": {}}}}],
    },
    "spec": {
        "podCIDR": "10.0.0.0/24",
        "taints": [{"key": "a", "value": "b", "effect": "NoSchedule", "timeAdded": TIME}],
    },
    "status": {
        "conditions": [{"type": "Ready", "status": "True", "lastHeartbeatTime": TIME}],
        "nodeInfo": {"architecture": "arm64", "operatingSystem": "linux", "containerRuntimeVersion": "containerd://2"},
        "runtimeHandlers": [{"name": "spin", "features": {"userNamespaces": True}}],
        "images": [{"names": ["x"], "sizeBytes": 5}],
    },
}


def decoded(node: dict[str, Any]) -> dict[str, Any]:
    found: dict[str, Any] = NODE_SHAPE.event(orjson.dumps({"type": "ADDED", "object": node}))["object"]
    return found


@pytest.mark.parametrize(
    "node",
    [
        NODE,
        NODE | {"metadata": NODE["metadata"] | {"deletionTimestamp": TIME}},
        NODE | {"metadata": {"name": "n", "uid": "u", "resourceVersion": "1"}, "spec": {}, "status": {}},
        NODE | {"metadata": NODE["metadata"] | {"labels": None, "annotations": None}, "spec": None, "status": None},
    ],
    ids=["as kubelets make it", "in deletion", "bare", "with nulls"],
)
def test_a_view_reads_no_key_that_is_not_decoded(node: dict[str, Any]) -> None:
    missing: list[str] = []
    view = view_node(ReadKeys(node, NodeManifest, missing))
    assert missing == []
    assert view_node(decoded(node)) == view == view_node(node)


def test_a_key_that_is_not_in_the_shape_is_found() -> None:
    missing: list[str] = []
    ReadKeys(NODE, NodeManifest, missing)["status"].get("images")
    assert missing == ["Status.images"]


def test_the_largest_parts_of_a_node_are_skipped() -> None:
    found = decoded(NODE)
    assert found["metadata"]["managedFields"] == [{"manager": "kubelet", "time": TIME}]
    assert "images" not in found["status"]
