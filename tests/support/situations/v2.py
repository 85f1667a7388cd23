"""Situations of wasmCloud v2 as they were recorded, with the health and the reason that all surfaces show.

In: nothing. Out: a table by name; surfaces of an object. Called by tests.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from support.situations.objects import explained, shown
from support.v2.entities import seen
from support.v2.host_pods import COUNTRY, OTHER, both, host_pod
from support.v2.recordings import recording
from trellis.read_model.explain.page import Explanation
from trellis.read_model.explain.subject import Beside
from trellis.read_model.health import Health
from trellis.v2.cluster import Cluster
from trellis.v2.explain.artifact import explain_artifact
from trellis.v2.explain.deployment import explain_deployment
from trellis.v2.explain.host import explain_host
from trellis.v2.explain.host_group import explain_host_group
from trellis.v2.explain.service import explain_routed_service
from trellis.v2.explain.workload import explain_workload
from trellis.v2.reasons import Reason
from trellis.v2.snapshot import Part, Snapshot
from trellis_cli.top.model import SHEETS, Kind

GROUP: Final = "whostgroup/wasmcloud-system/default"
SON: Final = "whost/wasmcloud-system/uppity-son-5573"


@dataclass(frozen=True)
class Found:
    """An object at a moment of a recording; ``listened``: seconds of heartbeats before it.

    ``pods``: of host groups, which no recording has; None: they cannot be read.
    """

    situation: str
    at: float
    id: str
    listened: float = 0.0
    pods: Sequence[Mapping[str, Any]] | None = ()

    def surfaces(self) -> list[tuple[str, str]]:
        """Return health and reason on the page, as an entity, and in the sheet of ``trellis top`` if there is one."""
        found = recording(self.situation)
        messages = found.messages(self.at - self.listened, self.at) if self.listened else None
        pods = [dict(pod) for pod in self.pods or ()]
        hidden = ["wpods"] if self.pods is None else []
        entities = seen(self.situation, self.at, messages=messages, pods=pods, lacking=hidden)
        unread = {Part.PODS: "refused"} if self.pods is None else {}
        snapshot = found.snapshot(self.at, listened=self.listened, pods=pods, unread=unread)
        page = explained(page_of(snapshot, self.id))
        kind = next((kind for kind in Kind if SHEETS[kind].of == self.id.partition("/")[0]), None)
        if kind is not None:
            return [page, *shown(entities, self.id, kind)]
        entity: dict[str, Any] = entities[self.id]
        return [page, (entity["health"], entity["reason"])]


def page_of(snapshot: Snapshot, id_: str) -> Explanation:
    """Return the page of an entity."""
    kind, _, key = id_.partition("/")
    match kind:
        case "whostgroup":
            return explain_host_group(snapshot, Cluster(snapshot).host_groups[key], Beside())
        case "whost":
            return explain_host(snapshot, _of_key(snapshot.hosts, key), Beside())
        case "workload":
            return explain_workload(snapshot, _of_key(snapshot.workloads, key), Beside())
        case "workloaddeployment":
            return explain_deployment(snapshot, _of_key(snapshot.deployments, key), Beside())
        case "artifact":
            return explain_artifact(snapshot, _of_key(snapshot.artifacts, key), Beside())
        case _:
            return explain_routed_service(snapshot, _of_key(snapshot.services, key), Beside())


def _of_key(views: Any, key: str) -> Any:
    [found] = [view for view in views if view.meta.key == key]
    return found


def _deployment(situation: str, at: float, name: str, listened: float = 0.0) -> Found:
    return Found(situation, at, f"workloaddeployment/apps/{name}", listened)


V2: Final[dict[str, tuple[Found, Health, str]]] = {
    "no host": (_deployment("00", 5, "lonely"), Health.DEGRADED, Reason.NO_HOST),
    "a host": (Found("01", 20, SON), Health.HEALTHY, Reason.HEALTHY),
    "a host before its conditions": (Found("01", 0.035, SON), Health.PROGRESSING, Reason.WAITING),
    "a host group": (Found("03", 20, GROUP, pods=both()), Health.HEALTHY, Reason.HEALTHY),
    "a host group outside of the cluster": (Found("03", 20, GROUP), Health.HEALTHY, Reason.HEALTHY),
    "a host group whose pods cannot be read": (Found("03", 20, GROUP, pods=None), Health.UNKNOWN, Reason.PODS_UNKNOWN),
    "a pod that crashes": (
        Found("03", 20, GROUP, pods=[*both(), host_pod("c", OTHER, "CrashLoopBackOff")]),
        Health.DEGRADED, Reason.POD_CRASHING,
    ),
    "a pod whose image cannot be pulled": (
        Found("03", 20, GROUP, pods=[*both(), host_pod("c", "", "ImagePullBackOff")]),
        Health.DEGRADED, Reason.POD_PULL_FAILED,
    ),
    "a pod without a node": (
        Found("03", 20, GROUP, pods=[*both(), host_pod("c", "", "Unschedulable")]),
        Health.DEGRADED, Reason.POD_UNSCHEDULABLE,
    ),
    "a pod that starts": (
        Found("03", 20, GROUP, pods=[*both(), host_pod("c", "", "ContainerCreating")]),
        Health.PROGRESSING, Reason.POD_STARTING,
    ),
    "a pod without a Host": (
        Found("03", 20, GROUP, pods=[*both(), host_pod("c", OTHER)]), Health.DEGRADED, Reason.POD_WITHOUT_HOST,
    ),
    "a Host without a pod": (Found("03", 20, GROUP, pods=both()[:1]), Health.PROGRESSING, Reason.HOST_WITHOUT_POD),
    "a host group without a Host": (
        Found("00", 5, GROUP, pods=[host_pod("c", OTHER, "CrashLoopBackOff")]), Health.DEGRADED, Reason.POD_CRASHING,
    ),
    "a host whose pod crashes": (
        Found("03", 20, SON, pods=[host_pod("a", COUNTRY), host_pod("b", "10.77.77.11", "CrashLoopBackOff")]),
        Health.HEALTHY, Reason.HEALTHY,
    ),
    "ready": (_deployment("02", 6, "hello"), Health.HEALTHY, Reason.HEALTHY),
    "an image that is missing": (_deployment("04", 64, "no-tag"), Health.DEGRADED, Reason.PULL_FAILED),
    "a registry that does not answer": (
        _deployment("04b", 12, "blackhole"), Health.PROGRESSING, Reason.REGISTRY_TIMEOUT,
    ),
    "its host": (Found("04b", 29, SON, 21.0), Health.PROGRESSING, Reason.REGISTRY_TIMEOUT),
    "an interface without a plugin, by heartbeats": (
        _deployment("06", 21, "old-draft", 21.0), Health.DEGRADED, Reason.PLUGIN_MISSING,
    ),
    "an import that is not declared": (
        _deployment("06", 14, "widget-undeclared"), Health.DEGRADED, Reason.START_FAILED,
    ),
    "a selector that matches nothing": (_deployment("07", 15, "picky"), Health.DEGRADED, Reason.NO_HOST_MATCHES),
    "a host ID that does not exist": (_deployment("07", 15, "pinned"), Health.DEGRADED, Reason.HOST_NOT_FOUND),
    "a ConfigMap that is missing": (_deployment("08", 6, "env-configmap"), Health.DEGRADED, Reason.CONFIG_MISSING),
    "a port without a name": (_deployment("09", 30, "svc-unnamed"), Health.DEGRADED, Reason.PORT_NOT_NAMED),
    "its Service": (Found("09", 30, "wservice/apps/svc-unnamed"), Health.DEGRADED, Reason.PORT_NOT_NAMED),
    "a Service": (Found("09", 30, "wservice/apps/svc-named"), Health.HEALTHY, Reason.HEALTHY),
    "a Service that was created later": (
        Found("09", 45, "wservice/apps/svc-late"), Health.DEGRADED, Reason.SERVICE_NEWER,
    ),
    "a Service of a deployment that is scaled to 0": (
        Found("09", 90, "wservice/apps/svc-named"), Health.SUSPENDED, Reason.SCALED_TO_ZERO,
    ),
    "scaled to 0": (_deployment("09", 90, "svc-named"), Health.SUSPENDED, Reason.SCALED_TO_ZERO),
    "a host with a loopback address": (
        Found("09b", 20, "wservice/apps/svc-loop"), Health.DEGRADED, Reason.ADDRESS_NOT_ROUTABLE,
    ),
    "a host that was killed": (_deployment("10", 40, "hello"), Health.DEGRADED, Reason.HEARTBEAT_MISSING),
    "all heartbeats stopped": (_deployment("12", 33.5, "hello"), Health.UNKNOWN, Reason.HEARTBEATS_STOPPED),
    "a host whose heartbeat stopped with all others": (
        Found("12", 33.5, SON), Health.UNKNOWN, Reason.HEARTBEATS_STOPPED,
    ),
    "a host group whose heartbeats stopped": (
        Found("12", 33.5, GROUP, pods=both()), Health.UNKNOWN, Reason.HEARTBEATS_STOPPED,
    ),
    "NATS away": (_deployment("12", 45, "hello"), Health.UNKNOWN, Reason.NATS_UNREACHABLE),
    "workloads that Kubernetes does not have": (
        Found("12", 96, "whost/wasmcloud-system/uppity-country-8876", 21.0), Health.DEGRADED, Reason.UNKNOWN_WORKLOADS,
    ),
    "no operator": (_deployment("13", 12, "hello"), Health.PROGRESSING, Reason.NOT_OBSERVED),
    "a rollout": (_deployment("14", 1.0, "hello"), Health.PROGRESSING, Reason.WAITING),
    "an Artifact": (Found("15", 30, "artifact/apps/hello-code"), Health.HEALTHY, Reason.HEALTHY),
    "an Artifact that does not exist": (
        _deployment("15", 3.1, "art-early"), Health.DEGRADED, Reason.ARTIFACT_NOT_FOUND,
    ),
    "an Artifact without a controller": (
        Found("15b", 8, "artifact/apps/hello-code"), Health.DEGRADED, Reason.ARTIFACT_NOT_PUBLISHED,
    ),
    "another environment": (_deployment("17", 20, "stranger"), Health.DEGRADED, Reason.ENVIRONMENT_DENIED),
}  # fmt: skip
