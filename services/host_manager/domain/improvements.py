"""What our own pod template has that wasmcloud-operator's has not.

Pure. Called by ``template`` for groups that are new, and for adopted ones once their user causes a roll anyway.
Invariant: what the user says in podTemplateAdditions wins over each of these.
"""

from __future__ import annotations

from typing import Any, Final

from host_manager.domain.group import HostGroupSpec, Manifest
from host_manager.domain.merging import TemplateError, without_nulls
from trellis import names

DRAIN: Final = 10
"""Seconds: the host's own limit for stopping, unless the group has one."""
LEAF_AFTER_HOST: Final = 5
"""Seconds that the leaf stays longer: the host's last message must get out."""
GRACE_AFTER_LEAF: Final = 15
"""Seconds that the kubelet waits longer still before it kills."""
TLS_DIRECTORY: Final = "/nats/tls"
_TLS_VOLUME: Final = "nats-tls"


def improved(template: Manifest, desired: HostGroupSpec) -> Manifest:
    """Return the template with what is ours."""
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
    """Return how long a host may take to stop."""
    return DRAIN if desired.group.spec.drain_seconds is None else desired.group.spec.drain_seconds


def _leaf(leaf: Manifest, desired: HostGroupSpec, drain: int) -> Manifest:
    """Return the leaf, which outlives the host: both are told to stop at the same moment, and this one waits first."""
    wait = {"preStop": {"exec": {"command": ["sleep", str(drain + LEAF_AFTER_HOST)]}}}
    mounts = leaf["volumeMounts"]
    if tls_secret(desired):
        mounts = [*mounts, {"name": _TLS_VOLUME, "mountPath": TLS_DIRECTORY, "readOnly": True}]
    return leaf | {"lifecycle": leaf["lifecycle"] | wait, "volumeMounts": mounts}


def _added_containers(desired: HostGroupSpec, ours: tuple[str, ...]) -> list[Any]:
    """Return the user's own containers, which wasmcloud-operator leaves out; a pod has each name once."""
    options = desired.group.spec.scheduling_options
    found = options.pod_template_additions.get("containers") if options else None
    if found is not None and not isinstance(found, list):
        raise TemplateError("spec.schedulingOptions.podTemplateAdditions.containers has to be a list")
    return [one for one in without_nulls(found or []) if not (isinstance(one, dict) and one.get("name") in ours)]


def _spread(labels: dict[str, str]) -> Manifest:
    selected = {name: labels[name] for name in ("app.kubernetes.io/name", "app.kubernetes.io/instance")}
    return {
        "maxSkew": 1,
        "topologyKey": "kubernetes.io/hostname",
        "whenUnsatisfiable": "ScheduleAnyway",
        "labelSelector": {"matchLabels": selected},
    }
