"""Manifests the provisioner writes: the installer Job and the rollout ledger.

Pure and total: arguments in, manifest out; each variant has a golden file. Called by ``apply``.
Invariants: names and label values fit Kubernetes' 63 characters for any node name; a manifest is a function of its
arguments alone, so a repeated create meets its own former self.
Source of the Job's shape: KWasm operator (peers keep their manifests and RBAC); design section 5.1, step 3.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from provisioner.plan import Entry, Ledger
from trellis import names
from trellis.provisioning import PROVISION, NodeView

Manifest = dict[str, Any]


@dataclass(frozen=True, slots=True)
class Installer:
    """What runs on each node. ``deadline`` in seconds; ``retries`` are the Job's own, within one attempt."""

    image: str
    pull_policy: str
    handler: str | None
    namespace: str
    deadline: int
    retries: int
    cpu: str
    memory: str
    service_account: str

    def spec(self) -> Mapping[str, str | None]:
        """Return what makes two installations the same: its digest is what nodes carry."""
        return {"image": self.image, "handler": self.handler}


def make_installer_job(
    installer: Installer, node: NodeView, digest: str, attempt: int, traceparent: str | None
) -> Manifest:
    """Return the privileged Job that installs the runtime on one node."""
    labels = {
        names.LABEL_JOB: "true",
        names.LABEL_MANAGED_BY: names.MANAGED_BY,
        names.LABEL_NODE_UID: node.uid,
        names.LABEL_DIGEST: digest,
        names.LABEL_OPERATION: PROVISION,
        names.LABEL_ATTEMPT: str(attempt),
    }
    annotations = {names.ANNOTATION_NODE: node.name}
    if installer.handler:
        annotations[names.ANNOTATION_HANDLER] = installer.handler
    if traceparent:
        annotations[names.ANNOTATION_TRACEPARENT] = traceparent
    return {
        "apiVersion": "batch/v1",
        "kind": "Job",
        "metadata": {
            "name": names.installer_job_name(node.name, node.uid, digest, PROVISION, attempt),
            "namespace": installer.namespace,
            "labels": labels,
            "annotations": annotations,
            # The garbage collector takes the Job when its node goes, whoever leads then.
            "ownerReferences": [{"apiVersion": "v1", "kind": "Node", "name": node.name, "uid": node.uid}],
        },
        "spec": {
            "backoffLimit": installer.retries,
            "activeDeadlineSeconds": installer.deadline,
            "template": {
                "metadata": {"labels": labels, "annotations": annotations},
                "spec": _pod_spec(installer, node, traceparent),
            },
        },
    }


def _pod_spec(installer: Installer, node: NodeView, traceparent: str | None) -> Manifest:
    env = [{"name": "NODE_ROOT", "value": names.NODE_ROOT}]
    if traceparent:
        env.append({"name": "TRACEPARENT", "value": traceparent})
    resources = {"cpu": installer.cpu, "memory": installer.memory}
    return {
        "nodeName": node.name,
        "hostPID": True,
        "restartPolicy": "Never",
        "serviceAccountName": installer.service_account,
        "automountServiceAccountToken": False,
        # nodeName passes by the scheduler, but a NoExecute taint would still evict the installer half-way.
        "tolerations": [{"operator": "Exists"}],
        "volumes": [{"name": "node-root", "hostPath": {"path": "/", "type": "Directory"}}],
        "containers": [
            {
                "name": names.JOB_CONTAINER,
                "image": installer.image,
                "imagePullPolicy": installer.pull_policy,
                "env": env,
                "securityContext": {"privileged": True},
                "resources": {"requests": resources, "limits": {"memory": installer.memory}},
                # So that an installer that writes no termination message still leaves its last log lines.
                "terminationMessagePolicy": "FallbackToLogsOnError",
                "volumeMounts": [{"name": "node-root", "mountPath": names.NODE_ROOT}],
            }
        ],
    }


def make_ledger(namespace: str, ledger: Ledger, resource_version: str | None) -> Manifest:
    """Return the ledger's ConfigMap: an entry a node in work, keyed by Node uid (about 100 bytes each).

    With the resourceVersion of what was read, writing it is a compare-and-swap.
    """
    marks = {names.ANNOTATION_HALTED: ledger.halted, names.ANNOTATION_HALT_TOLD: ledger.told}
    metadata: Manifest = {
        "name": names.LEDGER,
        "namespace": namespace,
        "labels": {names.LABEL_MANAGED_BY: names.MANAGED_BY},
        "annotations": {key: value for key, value in marks.items() if value},
    }
    if resource_version:
        metadata["resourceVersion"] = resource_version
    return {
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": metadata,
        "data": {uid: f"{entry.digest}/{entry.attempt}/{entry.since}" for uid, entry in sorted(ledger.entries.items())},
    }


def read_ledger(manifest: Manifest) -> Ledger:
    """Read a ledger as the API server returns it; an entry someone broke is left out (its Job is adopted again)."""
    entries: dict[str, Entry] = {}
    for uid, value in (manifest.get("data") or {}).items():
        digest, _, rest = value.partition("/")
        attempt, _, since = rest.partition("/")
        if digest and attempt.isdigit() and since.isdigit():
            entries[uid] = Entry(digest, int(attempt), int(since))
    annotations = manifest["metadata"].get("annotations") or {}
    return Ledger(entries, annotations.get(names.ANNOTATION_HALTED), annotations.get(names.ANNOTATION_HALT_TOLD))
