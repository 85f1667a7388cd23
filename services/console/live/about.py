"""The object of a message of the bus, and the permission that the message requires.

Pure. In: an event, a forwarded lattice event, a dead letter. Out: the permission, and the fields of filters. Called by
``feed`` and ``replays``. Invariant: a message without a known object requires the permission on messages; the data of
a message, which is untrusted, grants nothing.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

from console.access.permissions import MESSAGES, Permission, lattice_permission, permission_to
from trellis.bus.dead_letters.read import DeadLetter
from trellis.bus.streams.tail import NOUN_LATTICE, TailedEvent
from trellis.events.subjects import ROOT_LATTICE
from trellis.kube.resources import (
    APPLICATIONS,
    ARTIFACTS,
    HOST_CONFIGS,
    NODES,
    PODS,
    SECRETS,
    SERVICES,
    SHIMS,
    WASM_CONTROLLERS,
    WASM_HOSTS,
    WORKLOAD_DEPLOYMENTS,
    WORKLOAD_REPLICA_SETS,
    WORKLOADS,
    Resource,
)
from trellis.read_model.reading.pod_kinds import RESOURCES

_ROLLOUT: Final = "rollout"
_WASM_WORKLOAD: Final = "wasm_workload"
_HEARTBEATS: Final = "heartbeats"
_KINDS: Final[Mapping[str, tuple[Resource, str]]] = {
    "node": (NODES, "node"),
    "provision": (NODES, "node"),
    "hosts": (HOST_CONFIGS, "hostgroup"),
    "host_pod": (PODS, "host"),
    "service": (SERVICES, "service"),
    "application": (APPLICATIONS, "application"),
    "secret": (SECRETS, "secret"),
    "controller": (WASM_CONTROLLERS, "controller"),
    "workload_deployment": (WORKLOAD_DEPLOYMENTS, "workloaddeployment"),
    "workload": (WORKLOADS, "workload"),
    "wasm_host": (WASM_HOSTS, "whost"),
    "artifact": (ARTIFACTS, "artifact"),
}
"""By the noun of a subject: the kind that its key names, and the kind of the entity."""
_OWNERS: Final[Mapping[str, tuple[Resource, str]]] = {
    "WorkloadDeployment": _KINDS["workload_deployment"],
    "WorkloadReplicaSet": (WORKLOAD_REPLICA_SETS, "workloadreplicaset"),
    "Workload": _KINDS["workload"],
}
"""Owners of failed Workloads of wasmCloud v2, by the kind in the key of the event."""
_OF_PODS: Final = {resource.kind: (resource, kind) for kind, resource in RESOURCES.items()}
"""Owners of Wasm pods, by the kind in the key of the event."""
OF_OBJECTS: Final = (
    *dict.fromkeys(
        permission_to(resource, "", "")
        for resource in (SHIMS, WORKLOAD_REPLICA_SETS, *(item for item, _ in (*_KINDS.values(), *_OF_PODS.values())))
    ),
    MESSAGES,
)
"""Permissions that show all events and dead letters."""
OF_LATTICES: Final = (lattice_permission(""),)
"""Permissions that show all forwarded lattice events."""


@dataclass(frozen=True, slots=True)
class About:
    """``kind``, ``namespace`` and ``name``: as of an entity, "" without one. ``lattice``: its lattice, "" without one.

    ``permission``: the required permission.
    """

    permission: Permission
    kind: str = ""
    namespace: str = ""
    name: str = ""
    lattice: str = ""

    @property
    def id(self) -> str | None:
        """The id of the entity."""
        if not self.kind:
            return None
        return f"{self.kind}/{self.namespace}/{self.name}" if self.namespace else f"{self.kind}/{self.name}"


def about_event(event: TailedEvent) -> About:
    """Return the object of an event, or of a forwarded lattice event."""
    data = event.event.get("data")
    fields = data if isinstance(data, dict) else {}
    if event.noun == NOUN_LATTICE and event.subject.startswith(f"{ROOT_LATTICE}."):
        lattice = event.key[0] if event.key else ""
        return About(lattice_permission(lattice) if lattice else MESSAGES, lattice=lattice)
    return _about(event.noun, event.key, fields)


def dead_letter_object(dead_letter: DeadLetter, fields: Mapping[str, Any] | None = None) -> About:
    """Return the object of a dead letter; ``fields``: the data of its body, if it was read."""
    return _about(dead_letter.noun, dead_letter.key, fields or {})


def _about(noun: str, key: tuple[str, ...], fields: Mapping[str, Any]) -> About:
    lattice = _text(fields.get("lattice"))
    if noun == _ROLLOUT:
        # Their key is a digest; only the data, which only provisioner can publish, names the Shim.
        shim = _text(fields.get("shim"))
        return About(permission_to(SHIMS, "", shim), "shim", "", shim) if shim else About(MESSAGES)
    if noun == _HEARTBEATS and len(key) == 2 and all(key):
        # About all Hosts, of one namespace or of the cluster, and about no single one.
        namespace = key[1] if key[0] == "Namespace" else ""
        return About(permission_to(WASM_HOSTS, namespace, ""), namespace=namespace)
    found = _KINDS.get(noun)
    if noun == _WASM_WORKLOAD and len(key) > 2:
        namespace, owner_kind, name, *_ = key
        found, key = _OF_PODS.get(owner_kind), (namespace, name)
    if found is None or not all(key):
        return About(MESSAGES, lattice=lattice)
    resource, kind = found
    match resource.namespaced, key:
        case False, (name,):
            return About(permission_to(resource, "", name), kind, "", name, lattice)
        case True, (namespace, owner_kind, owner, _) if resource is WORKLOADS and owner_kind in _OWNERS:
            resource, kind = _OWNERS[owner_kind]
            return About(permission_to(resource, namespace, owner), kind, namespace, owner)
        case True, (namespace, name):
            return About(permission_to(resource, namespace, name), kind, namespace, name, lattice)
        case _:
            return About(MESSAGES, lattice=lattice)


def _text(value: object) -> str:
    return value if isinstance(value, str) else ""
