"""Views of pods, their containers and the Events about them.

Pure. In: manifests of any content. Out: views. Called by the reader of pages. Invariants: nothing raises; no view
contains an environment variable, an argument or a volume of a container. Source: PodStatus and ContainerState of the
core API; reasons of the kubelet (Kubernetes, pkg/kubelet/container/sync_result.go, pkg/kubelet/events/event.go).
"""

from __future__ import annotations

import re
import sys
from dataclasses import dataclass, field
from typing import Final

from trellis.v2.fields import Json, items, mapping, message, names, number, seconds, text, texts, words
from trellis.v2.objects import FALSE, Condition, Meta, condition, view_conditions, view_meta
from trellis.v2.pods import STARTING

ALWAYS: Final = "Always"
_DEFAULT_SCHEDULER: Final = "default-scheduler"
_SUCCEEDED: Final = "Succeeded"
_FAILED: Final = "Failed"
_SANDBOX: Final = "PodReadyToStartContainers"
"""Condition of the kubelet, True while a pod has its sandbox (KEP-3085; since Kubernetes 1.29)."""
_TEMPLATE_HASH: Final = "pod-template-hash"
_REPLICA_SET: Final = ("ReplicaSet", "apps")
_OF_CONTAINER: Final = re.compile(r"\{(?P<name>[^}]+)\}\Z")
"""End of the field path of an Event about a container: ``spec.containers{app}``."""

Pairs = tuple[tuple[str, str], ...]


@dataclass(frozen=True, slots=True)
class Toleration:
    """A toleration; "" for a missing field."""

    key: str = ""
    operator: str = ""
    value: str = ""
    effect: str = ""


@dataclass(frozen=True, slots=True)
class Ended:
    """The end of a container. ``message``: its termination message, or the error of the container runtime."""

    code: int
    reason: str = ""
    message: str = ""


@dataclass(frozen=True, slots=True)
class Container:
    """A container of a pod. ``waiting``: reason for which it does not run, "" if it runs or has ended.

    ``init``: the later containers wait for its end; ``sidecar``: they wait for its start, and it restarts
    (KEP-753). ``restart_policy``: its own one, "" if it has that of the pod (KEP-5307). ``memory``: its limit, "" if it
    has none. ``started``: Unix seconds since which it runs, 0.0 if it does not, or if that is not known. ``ended``: how
    it ended, if it does not run and does not restart; ``before``: how its former run ended.
    """

    name: str
    image: str = ""
    init: bool = False
    sidecar: bool = False
    restart_policy: str = ""
    memory: str = ""
    waiting: str = ""
    message: str = ""
    running: bool = False
    started: float = 0.0
    ready: bool = False
    restarts: int = 0
    ended: Ended | None = None
    before: Ended | None = None

    @property
    def last_end(self) -> Ended | None:
        """The end of its newest run, None if none has ended."""
        return self.ended or self.before

    @property
    def was_started(self) -> bool:
        """True if it runs, ran, or was about to."""
        return self.running or self.last_end is not None or self.waiting not in STARTING


@dataclass(frozen=True, slots=True)
class WasmPod:
    """A pod, or the pod template of an owner. ``runtime_class``: "" if none is set; ``node``: "" until it has one.

    ``reason``, ``message``: of the whole pod, as after an eviction. ``sandboxed``: True if it has a sandbox as far as
    its status shows. ``owner_group``: API group of its controller; ``template_hash``: label that the controller of
    Deployments sets, "" without one. ``scheduler``: "" for the default one; ``gates``: of
    its scheduling. ``deletion``: end of its grace period, in RFC 3339; ``finalizers``: that keep it. ``unready``: why
    the kubelet does not report it as ready; ``unready_since``: Unix seconds, 0.0 if it is ready or that is not known.
    """

    meta: Meta
    owner_kind: str = ""
    owner_group: str = ""
    template_hash: str = ""
    runtime_class: str = ""
    node: str = ""
    scheduler: str = ""
    gates: tuple[str, ...] = ()
    deletion: str = ""
    finalizers: tuple[str, ...] = ()
    selector: Pairs = ()
    tolerations: tuple[Toleration, ...] = ()
    restart_policy: str = ALWAYS
    phase: str = ""
    reason: str = ""
    message: str = ""
    ready: bool = False
    unready: str = ""
    unready_since: float = 0.0
    scheduled: Condition = field(default_factory=lambda: Condition("PodScheduled"))
    sandboxed: bool = False
    containers: tuple[Container, ...] = ()

    @property
    def works(self) -> bool:
        """True if it is ready or has completed."""
        return self.ready or self.phase == _SUCCEEDED

    @property
    def deployment(self) -> str:
        """Name of the Deployment of its ReplicaSet, "" if it has none.

        The name of the ReplicaSet is that of the Deployment and the hash of its template (Kubernetes,
        pkg/controller/deployment/sync.go). ReplicaSets of Argo Rollouts have such names, and another label on the pods.
        """
        name, end = self.meta.owner_name, f"-{self.template_hash}"
        of_deployment = (self.owner_kind, self.owner_group) == _REPLICA_SET and bool(self.template_hash)
        return name.removesuffix(end) if of_deployment and name.endswith(end) else ""

    @property
    def ended(self) -> bool:
        """True if its containers do not restart."""
        return self.phase in {_SUCCEEDED, _FAILED}

    @property
    def created_at(self) -> float:
        """Unix seconds of its creation, 0.0 if not known."""
        return self.meta.created or 0.0


@dataclass(frozen=True, slots=True)
class EventView:
    """An Event about an object. ``uid``: of the object; ``at``: Unix seconds of its last occurrence, 0.0 if unknown.

    ``container``: that it is about, "" for the whole object.
    """

    uid: str
    reason: str
    message: str
    at: float = 0.0
    container: str = ""


def view_pod(manifest: object) -> WasmPod:
    """Return the view of a pod."""
    meta, status = view_meta(manifest), mapping(manifest, "status")
    conditions = view_conditions(status)
    spec = mapping(manifest, "spec")
    containers = _containers(spec, status)
    metadata = mapping(manifest, "metadata")
    owner = next((item for item in items(metadata, "ownerReferences") if item.get("controller") is True), {})
    phase, ready = text(status, "phase"), condition(conditions, "Ready")
    return WasmPod(
        meta=meta,
        owner_kind=text(owner, "kind"),
        owner_group=sys.intern(text(owner, "apiVersion").rpartition("/")[0]),
        template_hash=sys.intern(meta.labels.get(_TEMPLATE_HASH, "")),
        runtime_class=text(spec, "runtimeClassName"),
        node=text(spec, "nodeName"),
        scheduler=text(spec, "schedulerName").removeprefix(_DEFAULT_SCHEDULER),
        gates=names(spec, "schedulingGates"),
        deletion=text(metadata, "deletionTimestamp"),
        finalizers=words(metadata, "finalizers"),
        selector=tuple(sorted(texts(spec, "nodeSelector").items())),
        tolerations=view_tolerations(spec),
        restart_policy=text(spec, "restartPolicy") or ALWAYS,
        phase=phase,
        reason=text(status, "reason"),
        message=message(status),
        ready=ready.true,
        unready=ready.message,
        unready_since=(ready.since if ready.status == FALSE else None) or 0.0,
        scheduled=_scheduled(status),
        sandboxed=_sandboxed(condition(conditions, _SANDBOX), phase, containers),
        containers=containers,
    )


def view_template(meta: Meta, template: object) -> WasmPod:
    """Return the view of the pods that an owner creates, with the metadata of the owner."""
    spec = mapping(template, "spec")
    return WasmPod(
        meta=meta,
        runtime_class=text(spec, "runtimeClassName"),
        selector=tuple(sorted(texts(spec, "nodeSelector").items())),
        tolerations=view_tolerations(spec),
        restart_policy=text(spec, "restartPolicy") or ALWAYS,
        containers=_containers(spec, {}),
    )


def view_tolerations(spec: Json) -> tuple[Toleration, ...]:
    """Return the tolerations of a pod, or those of the scheduling of a RuntimeClass."""
    return tuple(
        Toleration(text(item, "key"), text(item, "operator"), text(item, "value"), text(item, "effect"))
        for item in items(spec, "tolerations")
    )


def view_event(manifest: object) -> EventView:
    """Return the view of an Event."""
    about, event = mapping(manifest, "involvedObject"), mapping(manifest)
    series = mapping(event, "series")
    times = (text(series, "lastObservedTime"), text(event, "lastTimestamp"), text(event, "eventTime"))
    at = next((found for stamp in times if (found := seconds(stamp)) is not None), 0.0)
    of = _OF_CONTAINER.search(text(about, "fieldPath"))
    return EventView(text(about, "uid"), text(event, "reason"), message(event), at, of["name"] if of else "")


def _sandboxed(found: Condition, phase: str, containers: tuple[Container, ...]) -> bool:
    """Return whether a pod has a sandbox. After a restart of its node it has none, although its containers ran."""
    if found.status and phase not in {_SUCCEEDED, _FAILED}:
        return found.true
    return found.true or any(item.was_started for item in containers)


def _scheduled(status: Json) -> Condition:
    """Return the condition PodScheduled; its reason precedes the message, as only ``SchedulingGated`` matters."""
    found = next((item for item in items(status, "conditions") if text(item, "type") == "PodScheduled"), {})
    found_message = ": ".join(filter(None, (text(found, "reason"), message(found))))
    return Condition("PodScheduled", text(found, "status"), found_message)


def _containers(spec: Json, status: Json) -> tuple[Container, ...]:
    """Return the containers of a pod, those of its initialization first; without a status also."""
    found = []
    for key, states, init in (
        ("initContainers", "initContainerStatuses", True),
        ("containers", "containerStatuses", False),
    ):
        by_name = {text(item, "name"): item for item in items(status, states)}
        for item in items(spec, key):
            name = text(item, "name")
            found.append(_container(item, by_name.get(name, {}), init=init))
    return tuple(found)


def _container(spec: Json, status: Json, *, init: bool) -> Container:
    state = mapping(status, "state")
    waiting, policy = mapping(state, "waiting"), text(spec, "restartPolicy")
    sidecar = init and policy == ALWAYS
    return Container(
        name=text(spec, "name"),
        image=text(spec, "image"),
        init=init and not sidecar,
        sidecar=sidecar,
        restart_policy=policy,
        memory=text(mapping(mapping(spec, "resources"), "limits"), "memory"),
        waiting=text(waiting, "reason"),
        message=message(waiting),
        running="running" in state,
        started=seconds(text(mapping(state, "running"), "startedAt")) or 0.0,
        ready=status.get("ready") is True,
        restarts=number(status, "restartCount") or 0,
        ended=_ended(mapping(state, "terminated")),
        before=_ended(mapping(mapping(status, "lastState"), "terminated")),
    )


def _ended(state: Json) -> Ended | None:
    if not state:
        return None
    code = state.get("exitCode")
    return Ended(code if isinstance(code, int) else 0, text(state, "reason"), message(state))
