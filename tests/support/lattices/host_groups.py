"""Groups of wasmCloud hosts for tests: what wasmcloud-operator was recorded to make, and what manifests are made of."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import yaml

from host_manager.domain.group import ADOPTED, Group, HostGroupSpec, Inputs, Registry
from trellis.crds.host_config import WasmCloudHostConfigSpec

DATA = Path(__file__).parents[2] / "data" / "host_config"
CASES = ("minimal", "daemonset", "full")
LEAKED = ("WASMCLOUD_OCI_REGISTRY_USER", "WASMCLOUD_OCI_REGISTRY_PASSWORD")
FULL_INPUTS = Inputs(
    credentials=True,
    authorities=((("ca.crt",), ()), ((), ("corp.crt",))),
    registries=(Registry("registry.example.com", "u1", "p1"),),
)
MINIMAL: dict[str, Any] = {"lattice": "default", "version": "1.4.0"}


def custom_resource(case: str) -> dict[str, Any]:
    """Return the recorded resource."""
    found: dict[str, Any] = yaml.safe_load((DATA / case / "cr.yaml").read_text())
    return found


TODAYS_NAME = "wadm-operator"
FORMER_NAME = "wasmcloud-operator"
"""What 0.3.2 to 0.5.0 write where 0.5.1 writes today's: their source says that nothing else of a child is different."""


def children(case: str, operator: str = TODAYS_NAME) -> dict[str, dict[str, Any]]:
    """Return the recorded children by kind, as the operator of a name makes them."""
    texts = [path.read_text().replace(TODAYS_NAME, operator) for path in sorted((DATA / case).glob("*.json"))]
    return {child["kind"]: child for child in map(json.loads, texts)}


def recorded_spec(case: str) -> HostGroupSpec:
    """Return what the recorded children were made from."""
    resource = custom_resource(case)
    metadata = resource["metadata"]
    uid = children(case)["ConfigMap"]["metadata"]["ownerReferences"][0]["uid"]
    group = Group(
        metadata["name"], metadata["namespace"], uid, WasmCloudHostConfigSpec.model_validate(resource["spec"])
    )
    return HostGroupSpec(group, FULL_INPUTS if case == "full" else Inputs(), ADOPTED)


def desired(revision: int, inputs: Inputs | None = None, **spec: Any) -> HostGroupSpec:
    """Return the spec of a group called ``group`` in the namespace ``g``."""
    group = Group("group", "g", "uid-1", WasmCloudHostConfigSpec.model_validate(MINIMAL | spec))
    return HostGroupSpec(group, inputs or Inputs(), revision)


def tidy(value: Any) -> Any:
    """Return a value without what is empty, which means the same as nothing."""
    if isinstance(value, dict):
        return {key: tidy(item) for key, item in value.items() if item not in ([], {}, None)}
    return [tidy(item) for item in value] if isinstance(value, list) else value


_DEFAULTS: dict[str, Any] = {
    "defaultMode": 420,
    "dnsPolicy": "ClusterFirst",
    "internalTrafficPolicy": "Cluster",
    "ipFamilies": ["IPv4"],
    "ipFamilyPolicy": "SingleStack",
    "progressDeadlineSeconds": 600,
    "protocol": "TCP",
    "restartPolicy": "Always",
    "revisionHistoryLimit": 10,
    "schedulerName": "default-scheduler",
    "securityContext": {},
    "sessionAffinity": "None",
    "strategy": {"rollingUpdate": {"maxSurge": "25%", "maxUnavailable": "25%"}, "type": "RollingUpdate"},
    "targetPort": 4222,
    "terminationGracePeriodSeconds": 30,
    "terminationMessagePath": "/dev/termination-log",
    "terminationMessagePolicy": "File",
    "updateStrategy": {"rollingUpdate": {"maxSurge": 0, "maxUnavailable": 1}, "type": "RollingUpdate"},
}
_OF_THE_SERVER = {"clusterIP", "clusterIPs", "annotations"}


def as_applied(value: Any) -> Any:
    """Return a recorded child without what the API server and its controllers added."""
    if isinstance(value, dict):
        kept = {
            key: as_applied(item)
            for key, item in value.items()
            if key not in _OF_THE_SERVER and (key not in _DEFAULTS or item != _DEFAULTS[key])
        }
        if kept.get("kind") == "Service":
            kept["spec"].pop("type", None)
        if kept.get("image") and kept.get("name") == "wasmcloud-host" and kept["imagePullPolicy"] == "IfNotPresent":
            del kept["imagePullPolicy"]
        return tidy(kept)
    return [as_applied(item) for item in value] if isinstance(value, list) else value
