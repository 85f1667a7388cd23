"""Manifests of canaries: the pod that tests a Shim on one node, its RuntimeClass, and the view of the pod.

Pure and total: arguments in, manifest out. Called by ``canary_apply`` and the informer of canary pods.
Invariants: a canary has no privileges; its RuntimeClass has no scheduling, because the label that the RuntimeClass of
the Shim selects is set only after the verification (ADR 21).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from provisioner.domain.canary import Canary, CanaryPod, class_of
from provisioner.domain.resources import Installer
from trellis import names
from trellis.provisioning.installer_pods import STARTING, reason_and_message
from trellis.provisioning.views import JobView

Manifest = dict[str, Any]

CANARY_PODS: Final = f"{names.LABEL_CANARY}=true"
"""Label selector of canary pods."""
_NOBODY: Final = 65532
_LOST: Final = ("ContainerStatusUnknown", "Unknown")
"""Reasons of a container whose state the kubelet lost: the node was restarted."""


def make_canary_class(canary: Canary) -> Manifest:
    """Return the RuntimeClass of a Shim's canaries; the Shim owns it."""
    owner = {
        "apiVersion": "runtime.spinkube.dev/v1alpha1",
        "kind": "Shim",
        "name": canary.shim,
        "uid": canary.shim_uid,
    }
    return {
        "apiVersion": "node.k8s.io/v1",
        "kind": "RuntimeClass",
        "metadata": {
            "name": class_of(canary),
            "labels": {
                names.LABEL_MANAGED_BY: names.MANAGED_BY,
                names.LABEL_SHIM: names.shim_label(canary.shim),
                names.LABEL_CANARY: "true",
            },
            "ownerReferences": [owner],
        },
        "handler": canary.handler,
    }


def make_canary_pod(installer: Installer, job: JobView, canary: Canary, seconds: float) -> Manifest:
    """Return the pod that tests a Shim on the Job's node; the Job owns it. ``seconds``: its deadline."""
    secrets = [{"name": name} for name in installer.installer_env.image_pull_secrets]
    container: Manifest = {
        "name": names.CANARY_CONTAINER,
        "image": canary.image,
        "imagePullPolicy": installer.pull_policy,
        "securityContext": {"allowPrivilegeEscalation": False, "capabilities": {"drop": ["ALL"]}},
        "resources": {"requests": {"cpu": "10m", "memory": "16Mi"}},
        "terminationMessagePolicy": "FallbackToLogsOnError",
    }
    if canary.command:
        container["command"] = list(canary.command)
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {
            "name": names.canary_name(job.node, job.uid, canary.shim),
            "namespace": job.namespace,
            "labels": {
                names.LABEL_CANARY: "true",
                names.LABEL_MANAGED_BY: names.MANAGED_BY,
                names.LABEL_NODE_UID: job.node_uid,
                names.LABEL_JOB_UID: job.uid,
            },
            "annotations": {names.ANNOTATION_NODE: job.node, names.ANNOTATION_SHIM: canary.shim},
            "ownerReferences": [{"apiVersion": "batch/v1", "kind": "Job", "name": job.name, "uid": job.uid}],
        },
        "spec": {
            "nodeName": job.node,
            "runtimeClassName": class_of(canary),
            "restartPolicy": "Never",
            "activeDeadlineSeconds": max(1, round(seconds)),
            # A shim that hangs must not delay the deletion of its pod.
            "terminationGracePeriodSeconds": 0,
            "automountServiceAccountToken": False,
            "enableServiceLinks": False,
            "securityContext": {"runAsNonRoot": True, "runAsUser": _NOBODY, "runAsGroup": _NOBODY},
            # nodeName passes by the scheduler, but a NoExecute taint would still evict it.
            "tolerations": [{"operator": "Exists"}],
            "containers": [container],
            **({"imagePullSecrets": secrets} if secrets else {}),
        },
    }


def view_canary(manifest: Manifest) -> CanaryPod:
    """Return the view of a canary pod as the API server returns it."""
    metadata = manifest["metadata"]
    status: Mapping[str, Any] = manifest.get("status") or {}
    annotations: Mapping[str, str] = metadata.get("annotations") or {}
    ended = _terminated(status)
    node, ran_on = annotations.get(names.ANNOTATION_NODE, ""), (manifest.get("spec") or {}).get("nodeName")
    elsewhere = f"admission put it on node {ran_on}, so it verifies nothing here" if ran_on not in {None, node} else ""
    return CanaryPod(
        namespace=metadata["namespace"],
        name=metadata["name"],
        uid=metadata["uid"],
        resource_version=metadata["resourceVersion"],
        job_uid=(metadata.get("labels") or {}).get(names.LABEL_JOB_UID, ""),
        node=node,
        shim=annotations.get(names.ANNOTATION_SHIM, ""),
        phase="Failed" if elsewhere else str(status.get("phase") or "Pending"),
        # A reason of the pod itself is set by the kubelet or the node controller, not by the container.
        interrupted=(bool(status.get("reason")) and status.get("reason") != "DeadlineExceeded")
        or ended.get("reason") in _LOST,
        trouble=elsewhere or _trouble(status, ended),
        deleting="deletionTimestamp" in metadata,
    )


def _terminated(status: Mapping[str, Any]) -> Mapping[str, Any]:
    for container in status.get("containerStatuses") or ():
        return (container.get("state") or {}).get("terminated") or {}
    return {}


def _trouble(status: Mapping[str, Any], ended: Mapping[str, Any]) -> str:
    """Return why a pod does not run, or how it ended; "" while it starts or runs without a problem."""
    if ended:
        code = f"exit code {ended.get('exitCode')} ({ended.get('reason', 'Unknown')})"
        return f"{code}: {' '.join(str(ended['message']).split())}" if ended.get("message") else code
    for container in status.get("containerStatuses") or ():
        waiting: Mapping[str, Any] = (container.get("state") or {}).get("waiting") or {}
        if waiting and waiting.get("reason") not in STARTING:
            return reason_and_message(waiting)
    return reason_and_message(status)
