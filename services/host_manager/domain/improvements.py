"""Additions of Trellis to the pod template of wasmcloud-operator.

Pure. Called by ``template`` for new host groups, and for adopted ones when a change of the user causes a roll.
Invariant: podTemplateAdditions of the user take precedence over all additions.
"""

from __future__ import annotations

from typing import Any, Final

from host_manager.domain.group import HostGroupSpec, Manifest
from host_manager.domain.merging import TemplateError, without_nulls
from trellis import names

DRAIN: Final = 10
"""Seconds: the drain timeout of the host, unless the group sets one."""
LEAF_AFTER_HOST: Final = 5
"""Seconds that the leaf runs longer than the host, so that the last message of the host is sent."""
GRACE_AFTER_LEAF: Final = 15
"""Additional seconds before the kubelet kills the pod."""
TLS_DIRECTORY: Final = "/nats/tls"
_TLS_VOLUME: Final = "nats-tls"


def improved(template: Manifest, desired: HostGroupSpec) -> Manifest:
    """Return the template with the additions."""
    leaf, host = template["spec"]["containers"]
    drain = drain_seconds(desired)
    pod: Manifest = {
        "terminationGracePeriodSeconds": drain + LEAF_AFTER_HOST + GRACE_AFTER_LEAF,
    }
    if not desired.group.runs_as_daemonset(desired.revision):
        pod["topologySpreadConstraints"] = [_spread(template["metadata"]["labels"])]
    pod |= template["spec"]
    pod["containers"] = [_leaf(leaf, desired, drain), host, *_added_containers(desired, (leaf["name"], host["name"]))]
    if tls_secret(desired):
        pod["volumes"] = [*pod["volumes"], {"name": _TLS_VOLUME, "secret": {"secretName": tls_secret(desired)}}]
    annotations = {names.ANNOTATION_CHECKSUM: desired.inputs.checksum} if desired.inputs.checksum else {}
    metadata = template["metadata"] | ({"annotations": annotations} if annotations else {})
    return {"metadata": metadata, "spec": pod}


def tls_secret(desired: HostGroupSpec) -> str | None:
    """Return the name of the Secret for TLS between the leaf and its remote."""
    tls = desired.group.spec.leaf_tls
    return tls.secret_name if tls else None


def drain_seconds(desired: HostGroupSpec) -> int:
    """Return the drain timeout of a host in seconds."""
    return DRAIN if desired.group.spec.drain_seconds is None else desired.group.spec.drain_seconds


def _leaf(leaf: Manifest, desired: HostGroupSpec, drain: int) -> Manifest:
    """Return the leaf container, which outlives the host: both get SIGTERM at once, and the leaf waits first."""
    wait = {"preStop": {"exec": {"command": ["sleep", str(drain + LEAF_AFTER_HOST)]}}}
    mounts = leaf["volumeMounts"]
    if tls_secret(desired):
        mounts = [*mounts, {"name": _TLS_VOLUME, "mountPath": TLS_DIRECTORY, "readOnly": True}]
    return leaf | {"lifecycle": leaf["lifecycle"] | wait, "volumeMounts": mounts}


def _added_containers(desired: HostGroupSpec, ours: tuple[str, ...]) -> list[Any]:
    """Return the user's additional containers, which wasmcloud-operator omits; container names are unique in a pod."""
    options = desired.group.spec.scheduling_options
    found = options.pod_template_additions.get("containers") if options else None
    if found is not None and not isinstance(found, list):
        raise TemplateError("spec.schedulingOptions.podTemplateAdditions.containers has to be a list")
    return [
        without_null
        for without_null in without_nulls(found or [])
        if not (isinstance(without_null, dict) and without_null.get("name") in ours)
    ]


def _spread(labels: dict[str, str]) -> Manifest:
    selected = {name: labels[name] for name in ("app.kubernetes.io/name", "app.kubernetes.io/instance")}
    return {
        "maxSkew": 1,
        "topologyKey": "kubernetes.io/hostname",
        "whenUnsatisfiable": "ScheduleAnyway",
        "labelSelector": {"matchLabels": selected},
    }
