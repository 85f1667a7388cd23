"""The decoded fields of a Node are all fields of its view."""

from __future__ import annotations

from typing import Any, get_args, get_type_hints, is_typeddict

import orjson
import pytest

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


class Read(dict[str, Any]):
    """A part of a manifest that notes which keys are read, and whether a shape has them."""

    def __init__(self, part: dict[str, Any], shape: Any, missing: list[str]) -> None:
        super().__init__({key: _read(value, get_type_hints(shape).get(key), missing) for key, value in part.items()})
        self.shape, self.missing = shape, missing

    def _note(self, key: object) -> None:
        if key not in get_type_hints(self.shape):
            self.missing.append(f"{self.shape.__name__}.{key}")

    def get(self, key: str, default: Any = None) -> Any:
        self._note(key)
        return super().get(key, default)

    def __getitem__(self, key: str) -> Any:
        self._note(key)
        return super().__getitem__(key)

    def __contains__(self, key: object) -> bool:
        self._note(key)
        return super().__contains__(key)


def _read(value: Any, shape: Any, missing: list[str]) -> Any:
    for entry in (shape, *get_args(shape)):
        if is_typeddict(entry) and isinstance(value, dict):
            return Read(value, entry, missing)
        if isinstance(value, list) and get_args(entry) and is_typeddict(get_args(entry)[0]):
            return [Read(item, get_args(entry)[0], missing) for item in value]
    return value


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
    view = view_node(Read(node, NodeManifest, missing))
    assert missing == []
    assert view_node(decoded(node)) == view == view_node(node)


def test_a_key_that_is_not_in_the_shape_is_found() -> None:
    missing: list[str] = []
    Read(NODE, NodeManifest, missing)["status"].get("images")
    assert missing == ["Status.images"]


def test_the_largest_parts_of_a_node_are_skipped() -> None:
    found = decoded(NODE)
    assert found["metadata"]["managedFields"] == [{"manager": "kubelet", "time": TIME}]
    assert "images" not in found["status"]
