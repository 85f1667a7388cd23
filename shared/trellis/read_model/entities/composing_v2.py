"""Entities of wasmCloud v2 of one viewer: which of them change if an object changes, or with the time.

Pure, with a memory. In: changes of views, the time, heartbeats. Out: entities that may differ, None for a deleted one.
Called by ``live_model``, about once a second. Invariants: after any sequence of changes the entities are those of a
composer that received only the final state; a run evaluates only what can differ: changed objects, objects that depend
on them, and some of the objects with a problem, whose texts have ages; before each kind is read, nothing is concluded.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, replace
from typing import Any, Final, TypeAlias

from trellis.read_model.entities import v2_entities
from trellis.read_model.entities.entities import PartStatus, identity, of_key, part_entity
from trellis.read_model.entities.journal import Entity
from trellis.read_model.entities.v2_entities import DEPLOYMENT, HOST, HOST_GROUP, WORKLOAD
from trellis.read_model.entities.v2_relations import OF_PART, Relations
from trellis.read_model.health import Health
from trellis.v2.cluster import Cluster
from trellis.v2.explain.hosting import heartbeat_missing
from trellis.v2.explain.service import is_routed
from trellis.v2.host_messages import HostMessages
from trellis.v2.hosts import HostView
from trellis.v2.operator import State
from trellis.v2.snapshot import Part, Snapshot
from trellis.v2.timings import V2Timings
from trellis.v2.workloads import WorkloadView

PARTS: Final[Mapping[str, Part]] = {
    "whosts": Part.HOSTS,
    "workloads": Part.WORKLOADS,
    "workloadreplicasets": Part.REPLICA_SETS,
    "workloaddeployments": Part.DEPLOYMENTS,
    "artifacts": Part.ARTIFACTS,
    "wservices": Part.SERVICES,
    "wslices": Part.SLICES,
    "wpods": Part.PODS,
}
"""Names of the parts; each has a read status."""
INSTALLED: Final = "wasmcloud-v2"
"""Name of the part with the read status of the API group: not defined without wasmCloud v2."""
_NAMESPACED: Final = frozenset({Part.WORKLOADS, Part.REPLICA_SETS, Part.DEPLOYMENTS, Part.ARTIFACTS})
_HostState: TypeAlias = tuple[HostView, str]
"""State of a host for its Workloads: the host without its numbers, and why its heartbeat counts as missing."""
HEARTBEATS: Final = "heartbeats"
"""Name of the part with the state of the NATS of wasmCloud v2; it exists only if one is configured."""
EVALUATED_MOST: Final = 2_000
"""Evaluations in one run, which lasts 0.3 s: the other viewers of a console wait meanwhile. That of a
WorkloadDeployment contains those of its Workloads."""
RECHECK_SECONDS: Final = 10.0
"""Interval of evaluations of an object with a problem: its text can contain ages, and it can end by time alone."""
RECHECKS_MOST: Final = 200
"""Such evaluations in one run; more of them take turns."""


class V2Composer:
    """The entities of wasmCloud v2 of one viewer. ``limited``: why only some namespaces are watched, "" if all are."""

    def __init__(self, limited: str = "", timings: V2Timings | None = None) -> None:
        self._limited: Final = limited
        self._timings: Final = timings or V2Timings()
        self._views: Final[dict[Part, dict[str, Any]]] = {part: {} for part in Part}
        self._relations: Final = Relations()
        self._statuses: dict[str, PartStatus] = {}
        self._removed: set[str] = set()
        self._dirty: set[str] = set()
        self._late: set[str] = set()
        """Ids that exceeded the bound of the last run. Those that depend on them were evaluated, or are among them."""
        self._checked: dict[str, float] = {}
        """Time of the last evaluation of objects with a problem, the oldest first."""
        self._common: object = None
        self._host_states: dict[str, _HostState] = {}
        self._starting: list[str] = []
        self._beats: dict[str, float] = {}
        self._moved: list[WorkloadView] = []
        self._former: list[tuple[float, WorkloadView]] = []
        self._groups: set[str] = set()
        """Ids of the host groups of the last run, whose end no watch reports."""
        self._pods_changed = False
        """A pod of a host group changed since the last run."""

    def take(self, name: str, key: str, new: Any) -> None:  # noqa: ANN401 - the view that belongs to the part
        """Store the current view of an object, None if it is deleted; ``flush`` computes the entities."""
        part = PARTS[name]
        held = self._views[part]
        old = held.pop(key, None)
        if new is not None:
            held[key] = new
        if part in OF_PART:
            self._dirty.add(of_key(OF_PART[part], key))
        for view in (old, new):
            if view is not None:
                self._dirty.update(self._relations.dependents(part, view))
        self._relations.change(part, old, new)
        self._pods_changed |= part is Part.PODS
        if part is Part.WORKLOADS and old is not None and (new is None or new.host_id != old.host_id):
            self._moved.append(old)

    def report(self, statuses: Iterable[PartStatus]) -> None:
        """Store the read status of the parts; parts that are no longer among them are removed."""
        found = {status.name: status for status in statuses}
        self._removed |= self._statuses.keys() - found.keys()
        self._statuses = found

    def flush(self, now: float, messages: HostMessages | None) -> dict[str, Entity | None]:
        """Return the entities that may differ from the last flush; None for deleted ones.

        ``now``: Unix seconds by the clock of the API server; ``messages``: heartbeats, None if no NATS is configured.
        """
        changes: dict[str, Entity | None] = {identity("part", "", name): None for name in self._removed}
        self._removed.clear()
        if self._read or not any(self._views.values()):  # otherwise the first lists are not complete
            changes |= self._evaluated(now, messages)
        for name, status in self._statuses.items():
            synced = status.synced and not (name == INSTALLED and self.behind)
            changes[identity("part", "", name)] = part_entity(replace(status, synced=synced))
        return changes

    @property
    def behind(self) -> bool:
        """True if the next run has to evaluate what exceeded the bound of the last one."""
        return bool(self._late)

    @property
    def former(self) -> list[WorkloadView]:
        """Workloads that were deleted or moved lately: the last heartbeat of their host can still count them."""
        return [*(view for _, view in self._former), *self._moved]

    def _evaluated(self, now: float, messages: HostMessages | None) -> dict[str, Entity | None]:
        changes: dict[str, Entity | None] = {}
        cluster = Cluster(self._snapshot(now, messages))
        ids = sorted(self._changed(cluster, now) | self._late, key=_urgency)
        most = self._portion(cluster, ids)
        self._late = {*ids[most:]}
        for id_ in ids[:most]:
            entity = changes[id_] = self._entity(cluster, id_)
            self._checked.pop(id_, None)
            if entity is not None and (entity["health"] != Health.HEALTHY or entity["message"]):
                self._checked[id_] = now
        return changes

    def _portion(self, cluster: Cluster, ids: Sequence[str]) -> int:
        """Return how many of the ids one run evaluates: a WorkloadDeployment counts with its Workloads."""
        count, prefix = 0, f"{DEPLOYMENT}/"
        for number, id_ in enumerate(ids):
            count += 1
            view = self._views[Part.DEPLOYMENTS].get(id_.removeprefix(prefix)) if id_.startswith(prefix) else None
            if view is not None:
                count += len(cluster.workloads_of(cluster.replica_set(view, view.current)))
            if number and count > EVALUATED_MOST:
                return number
        return len(ids)

    @property
    def _read(self) -> bool:
        """True once each part is read, or known to be unreadable."""
        found = [self._statuses.get(name) for name in PARTS]
        return all(status is not None and (status.synced or status.lacking) for status in found)

    def _snapshot(self, now: float, messages: HostMessages | None) -> Snapshot:
        self._former += [(now, view) for view in self._moved]
        self._moved.clear()
        self._former = [(time, view) for time, view in self._former if now - time <= self._timings.silence]
        views = {part: [*held.values()] for part, held in self._views.items()}
        unread = self._unread()
        return Snapshot(
            now=now,
            hosts=views[Part.HOSTS],
            workloads=views[Part.WORKLOADS],
            replica_sets=views[Part.REPLICA_SETS],
            deployments=views[Part.DEPLOYMENTS],
            artifacts=views[Part.ARTIFACTS],
            services=views[Part.SERVICES],
            slices=views[Part.SLICES],
            pods=views[Part.PODS],
            unread=unread,
            limited=dict.fromkeys(_NAMESPACED, self._limited) if self._limited else {},
            messages=None if Part.HOSTS in unread else messages,
            former=[view for _, view in self._former],
            timings=self._timings,
        )

    def _unread(self) -> dict[Part, str]:
        lacking = ((PARTS[name], self._statuses[name].lacking) for name in PARTS if name in self._statuses)
        return {part: "; ".join(dict.fromkeys(text for text, _ in found.values())) for part, found in lacking if found}

    def _changed(self, cluster: Cluster, now: float) -> set[str]:
        """Return the ids to evaluate: changed, dependent on a change, and those whose turn it is."""
        dirty, self._dirty = self._dirty, set()
        every, self._pods_changed = self._pods_changed, False
        common = (_operators(cluster, now), cluster.snapshot.unread, cluster.snapshot.messages is None)
        if common != self._common:
            self._common = common
            every = True
            dirty |= {of_key(kind, key) for part, kind in OF_PART.items() for key in self._views[part]}
        hosts = self._changed_hosts(cluster)
        dirty |= {of_key(HOST, key) for key in hosts.keys}
        for id_ in hosts.ids:
            dirty |= {of_key(WORKLOAD, item.meta.key) for item in cluster.workloads_on(id_)}
        starting = [item.meta.key for part in cluster.parts for item in part.starting]
        if every:
            dirty |= {of_key(HOST, key) for key in self._views[Part.HOSTS]}
        if every or hosts.ids or starting != self._starting:
            # The texts of problems name hosts, their pods, and the workload that the operator waits for.
            self._starting = starting
            dirty |= self._checked.keys()
        dirty |= self._in_turn(now) | self._changed_groups(cluster, every=every or bool(hosts.ids))
        for part in (Part.WORKLOADS, Part.DEPLOYMENTS):
            kind = f"{OF_PART[part]}/"
            views = [self._views[part].get(id_.removeprefix(kind)) for id_ in dirty if id_.startswith(kind)]
            dirty |= {id_ for view in views if view is not None for id_ in self._relations.dependents(part, view)}
        return dirty

    def _changed_groups(self, cluster: Cluster, *, every: bool) -> set[str]:
        """Return the ids of the host groups to evaluate, also of those that do not exist any more."""
        current = {of_key(HOST_GROUP, key) for key in cluster.host_groups}
        found = current ^ self._groups | (current if every else set())
        self._groups = current
        return found

    def _in_turn(self, now: float) -> set[str]:
        found: set[str] = set()
        for id_, time in self._checked.items():
            if len(found) >= RECHECKS_MOST or 0 <= now - time < RECHECK_SECONDS:
                break
            found.add(id_)
        return found

    def _changed_hosts(self, cluster: Cluster) -> _ChangedHosts:
        """Return the changed hosts. The numbers in the status of a Host change all the time; no Workload needs them."""
        states: dict[str, _HostState] = {}
        beats: dict[str, float] = {}
        keys, ids = set[str](), set[str]()
        for key, host in self._views[Part.HOSTS].items():
            missing = heartbeat_missing(cluster, host)
            states[key] = state = (_lasting(host), missing.reason if missing is not None else "")
            last = cluster.last_message(host.id)
            beats[key] = last.at if last is not None else 0.0
            former = self._host_states.get(key)
            if state != former:
                ids |= {host.id} | ({former[0].id} if former is not None else set())
            if state != former or beats[key] != self._beats.get(key):
                keys.add(key)
        ids |= {former[0].id for key, former in self._host_states.items() if key not in states}
        self._host_states, self._beats = states, beats
        return _ChangedHosts(keys, ids)

    def _entity(self, cluster: Cluster, id_: str) -> Entity | None:
        kind, _, key = id_.partition("/")
        if kind == HOST_GROUP:
            group = cluster.host_groups.get(key)
            return v2_entities.v2_host_group_entity(cluster, group) if group is not None else None
        part = next(part for part, its in OF_PART.items() if its == kind)
        view = self._views[part].get(key)
        if view is None:
            return None
        match kind:
            case v2_entities.HOST:
                return v2_entities.v2_host_entity(cluster, view)
            case v2_entities.WORKLOAD:
                return v2_entities.workload_entity(cluster, view, self._relations.deployment_of(view))
            case v2_entities.DEPLOYMENT:
                return v2_entities.v2_deployment_entity(cluster, view)
            case v2_entities.ARTIFACT:
                return v2_entities.artifact_entity(cluster, view)
            case _:
                return v2_entities.routed_service_entity(cluster, view) if is_routed(cluster, view) else None


@dataclass(frozen=True, slots=True)
class _ChangedHosts:
    """``keys``: hosts to evaluate; ``ids``: IDs of hosts whose Workloads have to be evaluated, too."""

    keys: AbstractSet[str]
    ids: AbstractSet[str]


def _urgency(id_: str) -> tuple[bool, str]:
    """Return the order of evaluations: Workloads, which are the most, are the last."""
    return id_.startswith(f"{WORKLOAD}/"), id_


def _operators(cluster: Cluster, now: float) -> object:
    """Return the states of all operators, and the namespaces that they own; of one operator, its state only."""
    if not cluster.several:
        return _operator(cluster, now)
    return [(part.place, _operator(part, now)) for part in cluster.parts], cluster.operators.namespaces


def _operator(cluster: Cluster, now: float) -> object:
    """Return the state of the operator; while it does not work, with what texts name as the evidence."""
    found = cluster.operator
    if found.state is State.WORKING:
        return found.state
    return found.state, found.hosts, None if found.age is None else round(now - found.age, 1)


def _lasting(host: HostView) -> HostView:
    """Return a host without the fields that each heartbeat changes."""
    return replace(
        host,
        version="",
        system="",
        memory_total=None,
        memory_free=None,
        components=None,
        workloads=None,
        last_seen=None,
    )
