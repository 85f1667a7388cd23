"""The real API server takes good controllers as they are, and says of a bad one what is wrong in it.

Objects are sent by server-side dry run.
"""

from __future__ import annotations

import http
from typing import Any

import pytest

from support.cluster.definitions import ensure_served
from trellis.crds.wasm_controllers import WasmController
from trellis.kube.resources import WASM_CONTROLLERS
from trellis_dev.localcluster.api import Api

pytestmark = pytest.mark.cluster

SHA = "0123456789abcdef" * 4
IMAGE = f"registry.example:5000/team/ttl:1.2@sha256:{SHA}"
JOBS = {"apiVersion": "batch/v1", "kind": "Job"}
OCI = {"oci": {"image": IMAGE}}
SMALLEST: dict[str, Any] = {"module": OCI, "serviceAccountName": "ttl", "watches": [JOBS]}


def source(**module: Any) -> dict[str, Any]:
    return SMALLEST | {"module": module}


def watch(**fields: Any) -> dict[str, Any]:
    return SMALLEST | {"watches": [JOBS | fields]}


def limits(**fields: Any) -> dict[str, Any]:
    return SMALLEST | {"limits": fields}


def labels(*expressions: dict[str, Any]) -> dict[str, Any]:
    return watch(labelSelector={"matchExpressions": list(expressions)})


GOOD: dict[str, dict[str, Any]] = {
    "the smallest": SMALLEST,
    "an image by tag, whose module is pinned": source(oci={"image": "ghcr.io/team/ttl:1"}, sha256=SHA),
    "an image with credentials": source(oci={"image": IMAGE, "pullSecret": {"name": "registry"}}),
    "a ConfigMap": source(configMap={"name": "ttl", "key": "module.wasm"}),
    "an address": source(url="https://example.com/ttl.wasm?v=1", sha256=SHA),
    "a volume": source(pvc={"claimName": "modules", "path": "dir/x.wasm"}, sha256=SHA),
    "a file": source(path="dir..d/x..wasm", sha256=SHA),
    "namespaces": watch(namespaces=["team-a", "team-b"]),
    "every namespace": watch(namespaces=["*"]),
    "every kind of label": watch(
        labelSelector={
            "matchLabels": {"app": "ttl", "example.com/empty": ""},
            "matchExpressions": [
                {"key": "tier", "operator": "In", "values": ["web", "db"]},
                {"key": "old", "operator": "NotIn", "values": ["true"]},
                {"key": "example.com/ttl", "operator": "Exists"},
                {"key": "keep", "operator": "DoesNotExist"},
            ],
        }
    ),
    "a kind that is a Secret to others": SMALLEST | {"watches": [{"apiVersion": "example.com/v1", "kind": "Secret"}]},
    "memory in bytes": limits(memory=67108864),
    "everything": SMALLEST
    | {
        "config": {"ttl": 60, "deep": [{"a": None}]},
        "configMapRefs": [{"name": "settings"}],
        "secretRefs": [{"name": "token"}],
        "limits": {
            "memory": "64Mi",
            "cpuPerCall": "1.5s",
            "timePerCall": "1m30s",
            "callsPerSecond": 50,
            "hostCallsPerSecond": 100,
        },
        "idle": {"suspendAfter": "0s", "policy": "Pinned"},
        "paused": True,
    },
    "as much as there may be": SMALLEST
    | {
        "watches": [JOBS | {"namespaces": [f"n{number}" for number in range(64)]} for _ in range(16)],
        "configMapRefs": [{"name": f"c{number}"} for number in range(16)],
    },
}

MODULE = "spec.module: "
EXPRESSION = "spec.watches[0].labelSelector.matchExpressions[0]: "
BAD: dict[str, tuple[Any, str]] = {
    "nothing": (None, "spec: Required"),
    "no module": (SMALLEST | {"module": {}}, MODULE),
    "two modules": (source(path="x", configMap={"name": "a", "key": "b"}, sha256=SHA), MODULE),
    "an address alone": (source(url="https://example.com/x"), MODULE),
    "an address without TLS": (source(url="http://example.com/x", sha256=SHA), "spec.module.url"),
    "a file by address": (source(url="file:///etc/passwd", sha256=SHA), "spec.module.url"),
    "an address with a password": (source(url="https://a:b@example.com/x", sha256=SHA), "spec.module.url"),
    "a volume alone": (source(pvc={"claimName": "a", "path": "x"}), MODULE),
    "a file alone": (source(path="x"), MODULE),
    "an image that may move": (source(oci={"image": "ghcr.io/team/ttl:1"}), MODULE),
    "an image of no registry": (source(oci={"image": f"ttl@sha256:{SHA}"}), "spec.module.oci.image"),
    "an image in capitals": (source(oci={"image": f"ghcr.io/Team/ttl@sha256:{SHA}"}), "spec.module.oci.image"),
    "a way out": (source(path="../x.wasm", sha256=SHA), "spec.module.path: "),
    "a way out later": (source(pvc={"claimName": "a", "path": "a/../../x"}, sha256=SHA), "spec.module.pvc.path: "),
    "an absolute path": (source(path="/etc/passwd", sha256=SHA), "spec.module.path: "),
    "a checksum cut short": (source(path="x", sha256=SHA[1:]), "spec.module.sha256"),
    "no account": ({"module": OCI, "watches": [JOBS]}, "spec.serviceAccountName: Required"),
    "an account of another namespace": (SMALLEST | {"serviceAccountName": "kube-system:admin"}, "serviceAccountName"),
    "no watches": (SMALLEST | {"watches": []}, "spec.watches"),
    "too many watches": (SMALLEST | {"watches": [JOBS] * 17}, "spec.watches: Too many"),
    "Secrets": (
        SMALLEST | {"watches": [JOBS, {"apiVersion": "v1", "kind": "Secret"}]},
        "spec.watches[1]: ",
    ),
    "a kind without a version": (SMALLEST | {"watches": [{"kind": "Job"}]}, "spec.watches[0].apiVersion: Required"),
    "a version that is none": (watch(apiVersion="batch"), "spec.watches[0].apiVersion"),
    "a kind that is none": (watch(kind="jobs/status"), "spec.watches[0].kind"),
    "no namespace of any": (watch(namespaces=[]), "spec.watches[0].namespaces"),
    "all namespaces and one": (watch(namespaces=["*", "a"]), "spec.watches[0].namespaces: "),
    "a namespace twice": (watch(namespaces=["a", "a"]), "Duplicate value"),
    "a pattern of namespaces": (watch(namespaces=["team-*"]), "spec.watches[0].namespaces[0]"),
    "a label value that is none": (watch(labelSelector={"matchLabels": {"a": "b c"}}), "matchLabels.a"),
    "In of nothing": (labels({"key": "a", "operator": "In"}), EXPRESSION),
    "NotIn of an empty list": (labels({"key": "a", "operator": "NotIn", "values": []}), EXPRESSION),
    "Exists with a value": (labels({"key": "a", "operator": "Exists", "values": ["b"]}), EXPRESSION),
    "an unknown operator": (labels({"key": "a", "operator": "Gt", "values": ["1"]}), "operator: Unsupported value"),
    "hardly any memory": (limits(memory="1Ki"), "spec.limits.memory: "),
    "hardly any memory in bytes": (limits(memory=1024), "spec.limits.memory: "),
    "more memory than can be": (limits(memory="5Gi"), "spec.limits.memory: "),
    "memory that is none": (limits(memory="much"), "spec.limits.memory"),
    "time without a unit": (limits(timePerCall="30"), "spec.limits.timePerCall"),
    "no time": (limits(timePerCall="0s"), "spec.limits.timePerCall: "),
    "an hour of processor time": (limits(cpuPerCall="1h"), "spec.limits.cpuPerCall: "),
    "no calls": (limits(callsPerSecond=0), "spec.limits.callsPerSecond"),
    "a policy that is none": (SMALLEST | {"idle": {"policy": "Sleep"}}, "spec.idle.policy"),
    "a ConfigMap twice": (SMALLEST | {"configMapRefs": [{"name": "a"}, {"name": "a"}]}, "Duplicate value"),
    "config that is no object": (SMALLEST | {"config": "ttl=60"}, "spec.config"),
}


@pytest.fixture(scope="module")
def api(cluster_api: Api) -> Api:
    ensure_served(cluster_api, WASM_CONTROLLERS)
    return cluster_api


def send(api: Api, spec: Any) -> tuple[int, Any]:
    manifest: dict[str, Any] = {
        "apiVersion": WASM_CONTROLLERS.api_version,
        "kind": WASM_CONTROLLERS.kind,
        "metadata": {"name": "ttl"},
    }
    if spec is not None:
        manifest["spec"] = spec
    return api.call("POST", WASM_CONTROLLERS.path("default") + "?dryRun=All", manifest)


@pytest.mark.parametrize("name", GOOD)
def test_a_good_controller_is_kept_as_it_is_and_read_by_the_model(api: Api, name: str) -> None:
    status, answer = send(api, GOOD[name])
    assert status == http.HTTPStatus.CREATED, answer
    assert answer["spec"] == GOOD[name]
    read = WasmController.model_validate(answer).spec
    assert read.model_dump(mode="json", by_alias=True, exclude_unset=True) == GOOD[name]


@pytest.mark.parametrize("name", BAD)
def test_a_bad_controller_is_refused_and_the_mistake_is_named(api: Api, name: str) -> None:
    spec, expected_text = BAD[name]
    status, answer = send(api, spec)
    assert status == http.HTTPStatus.UNPROCESSABLE_ENTITY, answer
    assert expected_text in answer["message"]


def test_a_status_is_written_apart_and_read_by_the_model(api: Api) -> None:
    metadata = {"name": "status-of-a-controller"}
    manifest = {"apiVersion": WASM_CONTROLLERS.api_version, "kind": WASM_CONTROLLERS.kind, "metadata": metadata}
    code, made = api.call("POST", WASM_CONTROLLERS.path("default"), manifest | {"spec": SMALLEST})
    assert code == http.HTTPStatus.CREATED, made
    status = {
        "observedGeneration": 1,
        "state": "Suspended",
        "module": {"sha256": SHA, "abi": 1, "bytes": 4096},
        "wakes": 3,
        "wakeP99": "0.41ms",
        "lastFault": {"kind": "Trapped", "message": "unreachable", "time": "2026-01-01T00:00:00Z"},
    }
    path = WASM_CONTROLLERS.path("default", metadata["name"])
    try:
        code, answer = api.call("PUT", f"{path}/status", made | {"status": status})
        assert code == http.HTTPStatus.OK, answer
        read = WasmController.model_validate(answer)
        assert read.status is not None
        assert read.status.model_dump(mode="json", by_alias=True, exclude_unset=True) == status
    finally:
        api.call("DELETE", path)
