"""Lookups in a snapshot, each computed once.

Pure. In: a snapshot. Out: its objects by name, ID and owner. Used by health and causes. Invariants: objects are found
by namespace and name, or by UID, so hosts of one name in two namespaces are two hosts; nothing depends on the order of
the lists; a row for 10,000 Workloads takes one pass over them.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Hashable, Iterable, Mapping
from functools import cached_property
from typing import Any, Final, TypeVar

from trellis.v2.clock import first_delay, operator_lead
from trellis.v2.deployments import ArtifactView, DeploymentView, ReplicaSetView
from trellis.v2.host_groups import HostGroup, host_groups
from trellis.v2.host_messages import LastHeartbeat
from trellis.v2.hosts import HostView
from trellis.v2.messages import HostHeartbeat, WorkloadStatus
from trellis.v2.operator import NO_RESPONDERS, Judgement, joint, judge
from trellis.v2.operators import Operators, part_of, view_operators
from trellis.v2.pods import HostPod
from trellis.v2.routes import RoutedService, RouteSlice, is_address, unroutable
from trellis.v2.silence import Silence, attribute
from trellis.v2.snapshot import Part, Snapshot
from trellis.v2.workloads import WorkloadView

V = TypeVar("V")
K = TypeVar("K")


class Cluster:
    """Lookups in a snapshot; each is computed once. ``place``: namespace of the operator if it is one of several.

    Of several operators, each object is to be judged in the cluster of its own one: ``within``, ``of_namespace``,
    ``of_workload``.
    """

    def __init__(self, snapshot: Snapshot, place: str = "") -> None:
        self.snapshot = snapshot
        self.place: Final = place
        self._computed: dict[Hashable, Any] = {}

    @cached_property
    def operators(self) -> Operators:
        """The operators by the namespaces of their Hosts."""
        return view_operators(self.snapshot)

    @property
    def several(self) -> bool:
        """True if this is the cluster of several operators."""
        return len(self.operators.places) > 1

    @property
    def parts(self) -> list[Cluster]:
        """The clusters of the operators, by the namespaces of their Hosts; this one if there are no several."""
        return [self.within(place) for place in self.operators.places] if self.several else [self]

    def within(self, place: str) -> Cluster:
        """Return the cluster of the operator of a namespace of Hosts; this one if there are no several, or no such."""
        if not self.several or place not in self.operators.places:
            return self
        return self.once(("within", place), lambda: Cluster(part_of(self.snapshot, self.operators, place), place))

    def of_namespace(self, namespace: str) -> Cluster:
        """Return the cluster of the operator that owns a namespace; this one if it is not known."""
        return self.within(self.operators.owner(namespace))

    def of_workload(self, workload: WorkloadView) -> Cluster:
        """Return the cluster of the operator that placed a Workload, or that owns its namespace."""
        place = self.operators.place_of(workload.host_id)
        return self.within(place) if place else self.of_namespace(workload.meta.namespace)

    def once(self, key: Hashable, compute: Callable[[], V]) -> V:
        """Return a value that many objects have in common; only the first call with a key computes it."""
        if key not in self._computed:
            self._computed[key] = compute()
        found: V = self._computed[key]
        return found

    @cached_property
    def hosts(self) -> list[HostView]:
        """All Hosts, by namespace and name: no list of the API server has an order."""
        return sorted(self.snapshot.hosts, key=lambda host: host.meta.key)

    @cached_property
    def workloads(self) -> list[WorkloadView]:
        """All Workloads, by namespace and name."""
        return sorted(self.snapshot.workloads, key=lambda workload: workload.meta.key)

    @cached_property
    def pods(self) -> list[HostPod]:
        """The pods of host groups, by namespace and name."""
        return sorted(self.snapshot.pods, key=lambda pod: pod.meta.key)

    @cached_property
    def host_groups(self) -> Mapping[str, HostGroup]:
        """The host groups by ``namespace/name``, in this order."""
        return host_groups(self.hosts, self.pods)

    @cached_property
    def operator(self) -> Judgement:
        """State of the operator; of several ones, the state that they have in common."""
        if self.several:
            return joint([part.operator for part in self.parts])
        seen: dict[str, float] = {}
        for host in self.hosts:
            if (time := self._recorded(host)) is not None:
                seen[host.id] = max(time, seen.get(host.id, time))
        return judge(self.snapshot, seen, self.no_heartbeats and not any(map(self.disconnected, self.hosts)))

    @cached_property
    def clock_lead(self) -> float:
        """Seconds that the clock of the operator is ahead of that of the API server; 0 if no difference is known."""
        if self.several:
            return 0.0
        return operator_lead(self.hosts, self.snapshot.workloads, self.snapshot.now, self.snapshot.timings)

    @cached_property
    def clock_doubtful(self) -> bool:
        """True if Hosts without recent heartbeats can be those of an operator whose clock is behind.

        No object shows a difference of the clocks then, and none shows that there is no difference.
        """
        if not self.hosts or self.clock_lead:
            return False
        delay = first_delay(self.hosts, self.snapshot.workloads, self.snapshot.timings)
        return delay is None or abs(delay) > self.snapshot.timings.settle

    @cached_property
    def unregistered(self) -> int:
        """Number of hosts that sent a heartbeat and have no Host; 0 if the Hosts are not known."""
        messages = self.snapshot.messages
        if messages is None or not self.snapshot.knows(Part.HOSTS):
            return 0
        return sum(host_id not in self._hosts for host_id in messages.hosts)

    @cached_property
    def starting(self) -> list[WorkloadView]:
        """Workloads that their hosts have been starting for longer than usual: an image is being pulled."""
        return [item for item in self.workloads if self.is_starting(item)]

    @cached_property
    def stopping(self) -> list[WorkloadView]:
        """Workloads that are being deleted on a host that does not answer, of one host: the operator waits for it.

        NATS reports a host without a connection at once, so the process of this one exists. The operator stops one
        Workload at a time, and starts none meanwhile.
        """
        timings = self.snapshot.timings
        found = [it for it in self.workloads if it.condition("Placement").true and self._is_silent(it.host_id)]
        due = [it for it in found if self.older(it.deleted, timings.settle + timings.slack)]
        if not due or self.operator.unavailable:
            return []
        first = min(due, key=lambda it: (it.deleted or 0.0, it.meta.key))
        return [it for it in found if it.host_id == first.host_id and it.deleted is not None]

    def _is_silent(self, host_id: str) -> bool:
        """Return whether a host has no Host any more, or one without heartbeats."""
        host = self.host(host_id)
        return self.heartbeat_missing(host) if host is not None else self.snapshot.knows_all(Part.HOSTS)

    @cached_property
    def _hosts(self) -> Mapping[str, list[HostView]]:
        return _grouped(self.hosts, lambda host: host.id)

    @cached_property
    def _workloads_by_host(self) -> Mapping[str, list[WorkloadView]]:
        return _grouped(self.workloads, lambda item: item.host_id)

    @cached_property
    def _known_on_host(self) -> Mapping[str, set[str]]:
        found: dict[str, set[str]] = defaultdict(set)
        for workload in (*self.snapshot.workloads, *self.snapshot.former):
            found[workload.host_id].add(workload.meta.uid or workload.meta.key)
        return found

    @cached_property
    def _workloads_by_owner(self) -> Mapping[tuple[str, str], list[WorkloadView]]:
        return _grouped(self.workloads, lambda item: (item.meta.namespace, item.meta.owner_name))

    @cached_property
    def _replica_sets(self) -> Mapping[tuple[str, str], list[ReplicaSetView]]:
        return _grouped(
            sorted(self.snapshot.replica_sets, key=lambda item: item.meta.key),
            lambda item: (item.meta.namespace, item.deployment),
        )

    @cached_property
    def _replica_sets_by_key(self) -> Mapping[str, list[ReplicaSetView]]:
        return _grouped(self.snapshot.replica_sets, lambda item: item.meta.key)

    @cached_property
    def _slices(self) -> Mapping[str, list[RouteSlice]]:
        return _grouped(self.snapshot.slices, lambda item: item.service_key)

    @cached_property
    def _services(self) -> Mapping[str, list[RoutedService]]:
        return _grouped(self.snapshot.services, lambda item: item.meta.key)

    @cached_property
    def _deployments_by_service(self) -> Mapping[str, list[DeploymentView]]:
        named = (item for item in self.snapshot.deployments if item.service)
        return _grouped(sorted(named, key=lambda item: item.meta.key), lambda it: f"{it.meta.namespace}/{it.service}")

    @cached_property
    def _workloads_by_service(self) -> Mapping[str, list[WorkloadView]]:
        named = (item for item in self.workloads if item.spec.service)
        return _grouped(named, lambda item: f"{item.meta.namespace}/{item.spec.service}")

    @cached_property
    def _artifacts(self) -> Mapping[str, list[ArtifactView]]:
        return _grouped(self.snapshot.artifacts, lambda item: item.meta.key)

    @property
    def _replies(self) -> Mapping[str, WorkloadStatus]:
        return (self.snapshot.messages.replies if self.snapshot.messages is not None else None) or {}

    @cached_property
    def _heirs(self) -> Mapping[str, WorkloadStatus]:
        """Failed starts by the WorkloadReplicaSet of their workload: its Workload may have been replaced since."""
        found: dict[str, WorkloadStatus] = {}
        replies = self._replies
        for workload in (*self.snapshot.former, *self.snapshot.workloads):
            if (reply := replies.get(workload.id)) is not None and workload.meta.owner_name:
                found[f"{workload.meta.namespace}/{workload.meta.owner_name}"] = reply
        return found

    @cached_property
    def _pods_by_address(self) -> Mapping[str, list[HostPod]]:
        pairs = [(place, pod) for pod in self.pods for place in pod.places]
        return {address: [pod for _, pod in found] for address, found in _grouped(pairs, lambda it: it[0]).items()}

    @cached_property
    def _hosts_by_address(self) -> Mapping[str, list[HostView]]:
        return _grouped((host for host in self.hosts if host.address), lambda host: host.address)

    def pod_of(self, host: HostView) -> HostPod | None:
        """Return the pod of a host: the one with its address or name, of its host group if several; None if unknown.

        Pods in the network of their node share its address.
        """
        found = self._pods_by_address.get(host.address, ()) if host.address else ()
        return next((pod for pod in found if pod.group == host.group), next(iter(found), None))

    def unroutable(self, host: HostView) -> str:
        """Return why the operator writes no endpoint for a host, "" if it writes one, or if that is not known.

        It writes the address of the host, or of the pod with its name.
        """
        if not host.address or is_address(host.address):
            return unroutable(host.address)
        if (pod := self.pod_of(host)) is not None:
            return unroutable(pod.addresses[0]) if pod.addresses else ""
        return unroutable(host.address) if self.snapshot.knows_all(Part.PODS) else ""

    def hosts_at(self, pod: HostPod) -> list[HostView]:
        """Return the Hosts with the address of a pod: several, after a restart of its process."""
        return [host for place in pod.places for host in self._hosts_by_address.get(place, ())]

    def host(self, host_id: str) -> HostView | None:
        """Return the Host of an ID, None if there is none or if it is not known."""
        return next(iter(self._hosts.get(host_id, ()) if host_id else ()), None)

    def workloads_of(self, replica_set: ReplicaSetView | None) -> list[WorkloadView]:
        """Return the Workloads of a WorkloadReplicaSet, by name."""
        if replica_set is None:
            return []
        return self._workloads_by_owner.get((replica_set.meta.namespace, replica_set.meta.name), [])

    def replica_set_of(self, workload: WorkloadView) -> ReplicaSetView | None:
        """Return the WorkloadReplicaSet of a Workload, None if it has none or if it is not known."""
        key = f"{workload.meta.namespace}/{workload.meta.owner_name}"
        return next(iter(self._replica_sets_by_key.get(key, ())), None)

    def replica_sets_of(self, deployment: DeploymentView) -> list[ReplicaSetView]:
        """Return the WorkloadReplicaSets of a WorkloadDeployment, by name."""
        return self._replica_sets.get((deployment.meta.namespace, deployment.meta.name), [])

    def replica_set(self, deployment: DeploymentView, name: str) -> ReplicaSetView | None:
        """Return the WorkloadReplicaSet of this name, None if there is none or if it is not known."""
        return next((item for item in self.replica_sets_of(deployment) if name and item.meta.name == name), None)

    def service(self, namespace: str, name: str) -> RoutedService | None:
        """Return a Service, None if there is none or if it is not known."""
        return next(iter(self._services.get(f"{namespace}/{name}", ())), None)

    def deployments_of(self, service: RoutedService) -> list[DeploymentView]:
        """Return the WorkloadDeployments that name a Service, by name."""
        return self._deployments_by_service.get(service.meta.key, [])

    def workloads_behind(self, service: RoutedService) -> list[WorkloadView]:
        """Return the Workloads of a Service: of the current WorkloadReplicaSets, and those that name it, by name."""
        found = {item.meta.key: item for item in self._workloads_by_service.get(service.meta.key, ())}
        for deployment in self.deployments_of(service):
            current = self.replica_set(deployment, deployment.current)
            found |= {item.meta.key: item for item in self.workloads_of(current)}
        return [found[key] for key in sorted(found)]

    def slices_of(self, namespace: str, name: str) -> list[RouteSlice]:
        """Return the EndpointSlices of a Service that the operator wrote."""
        return self._slices.get(f"{namespace}/{name}", [])

    def addresses_of(self, service: RoutedService) -> list[str]:
        """Return the addresses that the operator wrote for a Service, sorted."""
        slices = self.slices_of(service.meta.namespace, service.meta.name)
        return sorted({address for piece in slices for address in piece.addresses})

    def artifact(self, namespace: str, name: str) -> ArtifactView | None:
        """Return an Artifact, None if there is none or if it is not known."""
        return next(iter(self._artifacts.get(f"{namespace}/{name}", ())), None)

    def workloads_on(self, host_id: str) -> list[WorkloadView]:
        """Return the Workloads on a host, by namespace and name."""
        return self._workloads_by_host.get(host_id, []) if host_id else []

    def known_on(self, host_id: str) -> int:
        """Return the number of Workloads on a host, before or after listening: it may run any of them."""
        return len(self._known_on_host.get(host_id, ()))

    def last_message(self, host_id: str) -> LastHeartbeat | None:
        """Return the last message of a host, None if none arrived or if this command did not listen."""
        return self.snapshot.messages.hosts.get(host_id) if self.snapshot.messages is not None else None

    def description(self, host_id: str) -> HostHeartbeat | None:
        """Return the last heartbeat of a host, None if none arrived or if it cannot be parsed."""
        last = self.last_message(host_id)
        return last.heartbeat if last is not None else None

    def failed_start(self, workload: WorkloadView) -> WorkloadStatus | None:
        """Return the reply that has the cause of a failed start of a workload, or of the one that it replaced."""
        own = self._replies.get(workload.id)
        if own is not None or not workload.meta.owner_name:
            return own
        return self._heirs.get(f"{workload.meta.namespace}/{workload.meta.owner_name}")

    @cached_property
    def other_nats(self) -> bool:
        """True if the operator recorded heartbeats while this command listened and received none."""
        messages = self.snapshot.messages
        if messages is None or messages.error or messages.hosts:
            return False
        return any(self._recorded_meanwhile(host, messages.seconds) for host in self.hosts)

    def missed(self, host: HostView) -> bool:
        """Return whether this command listened for a heartbeat of a host for long enough, and none arrived.

        One that the operator recorded meanwhile shows that the host sent it, on another NATS or account.
        """
        if (own := self.within(host.meta.namespace)) is not self:
            return own.missed(host)
        messages, timings = self.snapshot.messages, self.snapshot.timings
        least = timings.heartbeat + timings.slack
        return (
            messages is not None
            and messages.missed(host.id, least)
            and not self._recorded_meanwhile(host, messages.seconds)
        )

    @cached_property
    def newest_heartbeat(self) -> float | None:
        """Unix time of the newest known heartbeat of all hosts; one of the future is of another clock."""
        latest = self.snapshot.now + self.snapshot.timings.slack
        times = (self.last_heartbeat(host) for host in self.hosts)
        return max((time for time in times if time is not None and time <= latest), default=None)

    @cached_property
    def no_heartbeats(self) -> bool:
        """True if the heartbeats of all hosts are missing, and neither starts of workloads nor pods explain all."""
        if not all(self.heartbeat_missing(host) for host in self.hosts):
            return False
        busy = {item.host_id for item in self.starting}
        return any(host.id not in busy and not self.without_process(host) for host in self.hosts)

    def silence(self, host: HostView) -> Silence:
        """Return whose silence the missing heartbeat of a host is."""
        if (own := self.within(host.meta.namespace)) is not self:
            return own.silence(host)
        if not self.heartbeat_missing(host):
            return Silence.NONE
        if self.without_process(host) or self.disconnected(host):
            return Silence.OWN
        last, snapshot = self.last_heartbeat(host), self.snapshot
        return attribute(last, self.newest_heartbeat, snapshot.now, common=self.no_heartbeats, timings=snapshot.timings)

    def without_process(self, host: HostView) -> bool:
        """Return whether the pods prove that a host does not run: its pod is not ready, or does not exist any more.

        A host group without pods runs outside of this cluster.
        """
        pod = self.pod_of(host)
        if pod is not None:
            return not pod.ready or pod.meta.deleting
        return self.has_pods(host.meta.namespace, host.group) and self.snapshot.knows_all(Part.PODS)

    def disconnected(self, host: HostView) -> bool:
        """Return whether NATS reported to the operator that the only host is not connected, and it sent nothing since.

        Several hosts without a connection have a common cause. After an outage of NATS, hosts connect some seconds
        later than the operator.
        """
        if len(self.hosts) > 1:
            return False
        timings, since, last = self.snapshot.timings, self._undelivered.get(host.id), self.last_heartbeat(host)
        later = since is not None and (last is None or since > last)
        return later and self.older(since, timings.settle + timings.slack)

    @cached_property
    def _undelivered(self) -> Mapping[str, float]:
        """Unix time of the newest request of the operator that had no receiver, by the ID of its host."""
        found: dict[str, float] = {}
        reported = [(host.id, host.reporting) for host in self.hosts]
        reported += [(it.host_id, it.condition(kind)) for it in self.workloads for kind in ("Placement", "Sync")]
        for host_id, condition in reported:
            since = self.by_server(condition.since) if NO_RESPONDERS in condition.message else None
            if since is not None and not condition.true:
                found[host_id] = max(since, found.get(host_id, since))
        return found

    def has_pods(self, namespace: str, group: str) -> bool:
        """Return whether a host group has pods that are neither deleted nor ended, as far as known."""
        return (namespace, group) in self._groups_with_pods

    @cached_property
    def _groups_with_pods(self) -> set[tuple[str, str]]:
        return {(group.namespace, group.name) for group in self.host_groups.values() if group.live}

    def heartbeat_missing(self, host: HostView) -> bool:
        """Return whether the heartbeat of a host is missing; ``silence`` attributes it."""
        return self.missed(host) or self.older(self.last_heartbeat(host), self.snapshot.timings.silence)

    def _recorded_meanwhile(self, host: HostView, seconds: float) -> bool:
        recorded = self._recorded(host)
        return recorded is not None and not self.older(recorded, seconds - self.snapshot.timings.slack)

    def _recorded(self, host: HostView) -> float | None:
        return self.within(host.meta.namespace).by_server(host.last_seen)

    def by_server(self, time: float | None) -> float | None:
        """Return a time that the operator wrote by the clock of the API server, as all other times; Unix seconds."""
        return None if time is None else time - self.clock_lead

    def age(self, since: float | None) -> float | None:
        """Return the seconds since a time, at least 0; None if it is not known."""
        return None if since is None else max(self.snapshot.now - since, 0.0)

    def older(self, since: float | None, than: float) -> bool:
        """Return whether a time is known, and further in the past than ``than`` seconds."""
        age = self.age(since)
        return age is not None and age > than

    def is_starting(self, workload: WorkloadView) -> bool:
        """Return whether a host has been starting a Workload for longer than usual, and the operator waits for it."""
        timings, since = self.snapshot.timings, self.by_server(workload.chosen.since)
        waits = self.older(since, timings.settle) and not self.older(since, timings.start + timings.slack)
        return workload.starting and waits

    def changed(self, workload: WorkloadView) -> float | None:
        """Return the Unix time of the last known change of a Workload, None if not known."""
        reported = max((item.since for item in workload.conditions.values() if item.since is not None), default=None)
        times = (workload.meta.created, self.by_server(reported))
        return max((time for time in times if time is not None), default=None)

    def last_heartbeat(self, host: HostView) -> float | None:
        """Return the Unix time of the last known heartbeat of a host, received or recorded by the operator."""
        last = self.last_message(host.id)
        times = [time for time in (self._recorded(host), last.at if last else None) if time is not None]
        return max(times, default=None)


def _grouped(values: Iterable[V], key: Callable[[V], K]) -> dict[K, list[V]]:
    found: dict[K, list[V]] = {}
    for value in values:
        found.setdefault(key(value), []).append(value)
    return found
