"""Views of the pods of Shims for a rollout.

Pure. In: manifests of pods. Out: ``RolloutPod``. Called by the reader of pods. Invariants: nothing raises; the reason
of a pod is the one that ``trellis explain`` shows as far as the pod itself has it: Events, logs and nodes are not read.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Final

from provisioner.domain.pod_readiness import RolloutPod
from trellis.read_model.explain.page import Rank
from trellis.read_model.wasm_pods.explain.containers import failing
from trellis.read_model.wasm_pods.explain.pod import pod_cause
from trellis.read_model.wasm_pods.pods import WasmPod, view_pod
from trellis.read_model.wasm_pods.snapshot import Part, Snapshot
from trellis.v2.fields import mapping
from trellis.v2.objects import condition, view_conditions

_UNREAD: Final[Mapping[Part, str]] = dict.fromkeys(Part, "`trellis explain pod` reads it")
_FAILED: Final = "Failed"
_OF_DEPLOYMENT: Final = re.compile(r"(?P<name>.+)-[bcdfghjklmnpqrstvwxz2456789]{1,10}")
"""Name of a ReplicaSet of a Deployment: the second part is its pod-template-hash, in the alphabet of SafeEncodeString
(Kubernetes, apimachinery/pkg/util/rand). Another ReplicaSet of that form only shares a record."""


def view_rollout_pod(manifest: object) -> RolloutPod:
    """Return the view of a pod."""
    pod = view_pod(manifest)
    ready = condition(view_conditions(mapping(manifest, "status")), "Ready")
    kind, name = _owner(pod)
    broken, reason, message = _cause(pod)
    return RolloutPod(
        namespace=pod.meta.namespace,
        name=pod.meta.name,
        node=pod.node,
        owner_kind=kind,
        owner_name=name,
        created_at=int(pod.meta.created or 0),
        ready=pod.ready,
        ready_since=int(ready.since or 0),
        completed=pod.ended and pod.works,
        failed=pod.phase == _FAILED,
        deleting=pod.meta.deleting,
        broken=broken,
        reason=reason,
        message=message,
    )


def _owner(pod: WasmPod) -> tuple[str, str]:
    """Return kind and name of the owner: the Deployment of a ReplicaSet, so that a new ReplicaSet is the same owner."""
    if pod.owner_kind == "ReplicaSet" and (found := _OF_DEPLOYMENT.fullmatch(pod.meta.owner_name)) is not None:
        return "Deployment", found["name"]
    return pod.owner_kind, pod.meta.owner_name


def _cause(pod: WasmPod) -> tuple[bool, str, str]:
    """Return whether a pod fails, and the reason and text of its cause.

    A container that was restarted after an error does not fail: the restart of the runtime ends each container once. A
    pod without a node has no container of the new version yet: it can wait for room on a node that was drained.
    """
    if pod.works:
        return False, "", ""
    line = pod_cause(Snapshot(pods=(pod,), unread=_UNREAD), pod)
    if line is None:
        return False, "", ""
    ended = failing(pod)
    broken = line.rank is Rank.CAUSE and bool(pod.node) and not (ended is not None and ended.running)
    return broken, line.reason, line.text
