"""What a page is given of each thing: one flat object, with an id, a state of six, and why.

Pure. In: views and what they hang together with. Out: entities, as docs/console.md has them. Called by ``composing``.
Invariants: an id is ``kind/[namespace/]name``; what leads elsewhere is an id; text from the cluster has no passwords of
URLs and no end that is out of sight.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Any, Final

from trellis.installer_api.redaction import redact_url
from trellis.lattice.domain.service_views import PodView
from trellis.read_model.entities.cards import AppCard, ControllerCard, Ends, GroupCard, SeenHost, ServiceCard
from trellis.read_model.entities.journal import Entity
from trellis.read_model.explain.page import Rank
from trellis.read_model.tables.nodes import NodeRow, NodeState
from trellis.read_model.tables.rollout import Phase, ShimNode, Standing

_WHY_MOST: Final = 400


class State(StrEnum):
    """How something is, the same six for everything; pages colour by it."""

    WELL = "well"
    WORKING = "working"
    WAITING = "waiting"
    TROUBLED = "troubled"
    OFF = "off"
    UNKNOWN = "unknown"


_NODES: Final[Mapping[NodeState, State]] = {
    NodeState.READY: State.WELL,
    NodeState.PROVISIONING: State.WORKING,
    NodeState.VERIFYING: State.WORKING,
    NodeState.WAITING: State.WAITING,
    NodeState.FAILED: State.TROUBLED,
    NodeState.INVALID_ANNOTATION: State.TROUBLED,
    NodeState.NOT_OPTED_IN: State.OFF,
}
_PHASES: Final[Mapping[Phase, State]] = {
    Phase.COMPLETE: State.WELL,
    Phase.PROGRESSING: State.WORKING,
    Phase.REMOVING: State.WORKING,
    Phase.PAUSED: State.WAITING,
    Phase.HALTED: State.TROUBLED,
    Phase.DEGRADED: State.TROUBLED,
}
_APPS: Final[Mapping[str, State]] = {
    "Deployed": State.WELL,
    "Reconciling": State.WORKING,
    "Waiting": State.WAITING,
    "Failed": State.TROUBLED,
    "Unhealthy": State.TROUBLED,
    "Undeployed": State.OFF,
}


@dataclass(frozen=True, slots=True)
class PartStatus:
    """How one kind is read for a viewer. ``lacking``: by namespace, "" for all, what cannot be read and what to do.

    ``synced``: all that may be read was; ``absent``: the cluster does not know the kind.
    """

    name: str
    synced: bool
    lacking: Mapping[str, tuple[str, str]]
    absent: bool = False


def identity(kind: str, namespace: str, name: str) -> str:
    """Return an id."""
    return f"{kind}/{namespace}/{name}" if namespace else f"{kind}/{name}"


def of_key(kind: str, key: str) -> str:
    """Return the id of what an informer calls ``key``."""
    return f"{kind}/{key}"


def node_entity(row: NodeRow, architecture: str, shims: Mapping[str, ShimNode]) -> Entity:
    """Return a node; ``shims``: by name of a Shim how far it is with that."""
    return _entity("node", "", row.name, _NODES[row.state], row.message) | {
        "phase": row.state.value,
        "wish": row.wish.value,
        "kubelet_ready": row.kubelet_ready,
        "concern": row.concern,
        "architecture": architecture or None,
        "verified": row.verified,
        "digest": row.digest,
        "attempt": row.attempt,
        "shims": {
            name: {"stage": one.stage.value, "attempt": one.attempt, "message": _text(one.message) or None}
            for name, one in sorted(shims.items())
        },
    }


def shim_entity(standing: Standing, handler: str, *, paused: bool) -> Entity:
    """Return a Shim: where its rollout stands; its nodes say of themselves how far they are."""
    why = "; ".join(filter(None, (standing.message, standing.advice)))
    return _entity("shim", "", standing.shim, _PHASES[standing.phase], why) | {
        "phase": standing.phase.value,
        "advice": standing.advice or None,
        "handler": handler or None,
        "generation": standing.generation,
        "paused": paused,
        "desired": standing.desired,
        "counts": {stage.value: count for stage, count in standing.counts.items()},
    }


def group_entity(card: GroupCard) -> Entity:
    """Return a group of hosts."""
    cause, state = card.cause, State.WELL
    if cause is not None:
        state = State.TROUBLED if cause.rank is Rank.CAUSE else State.WORKING
    return _entity("hostgroup", card.namespace, card.name, state, cause.shown if cause else "") | {
        "lattice": card.lattice,
        "workload": card.workload or None,
        "replicas": {"desired": card.desired, "ready": card.ready, "updated": card.updated},
        "applications": list(card.applications),
        "deleting": card.deleting,
    }


def host_entity(pod: PodView, lattice: str, seen: SeenHost | None) -> Entity:
    """Return a host: its pod, and what the lattice says of it."""
    host = seen or SeenHost()
    state, why = State.WELL, ""
    if pod.terminating:
        state, why = State.WORKING, "its pod is ending"
    elif not pod.serving:
        state, why = State.WAITING, "its pod is not ready"
    elif host.reported == "No":
        state, why = State.TROUBLED, "its pod is ready, and the lattice hears nothing of the host"
    return _entity("host", pod.namespace, pod.name, state, why) | {
        "group": identity("hostgroup", pod.namespace, pod.group) if pod.group else None,
        "node": identity("node", "", pod.node) if pod.node else None,
        "lattice": lattice or None,
        "addresses": list(pod.addresses),
        "ready": pod.serving,
        "reported": host.reported,
        "host_id": host.id or None,
        "version": host.version or None,
        "applications": list(host.applications),
        "components": host.components,
        "providers": host.providers,
    }


def application_entity(card: AppCard) -> Entity:
    """Return an application."""
    return _entity("application", card.namespace, card.name, _APPS.get(card.phase, State.UNKNOWN), card.problem) | {
        "application": card.application,
        "lattice": card.lattice or None,
        "phase": card.phase or None,
        "deployed": card.deployed or None,
    }


def service_entity(card: ServiceCard, slices: Iterable[Ends]) -> Entity:
    """Return a Service and where it leads."""
    pods: dict[str, bool] = {}
    others: list[bool] = []
    for piece in slices:
        for pod, ready in piece.pods:
            pods[pod] = pods.get(pod, False) or ready
        others += piece.others
    count = sum(pods.values()) + sum(others)
    state, why = (State.WELL, "") if count else (State.TROUBLED, "it leads to no ready host")
    if card.deleting:
        state, why = State.WORKING, "it is being deleted"
    return _entity("service", card.namespace, card.name, state, why) | {
        "application": card.application,
        "lattice": card.lattice or None,
        "type": card.type,
        "addresses": list(card.addresses),
        "ports": [
            {"name": one.name or None, "port": one.port, "protocol": one.protocol, "node_port": one.node_port or None}
            for one in card.ports
        ],
        "endpoints": {"ready": count, "all": len(pods) + len(others)},
        "hosts": [of_key("host", key) for key in sorted(pods)],
    }


def controller_entity(card: ControllerCard) -> Entity:
    """Return a controller in Wasm, with its row as tables have it."""
    row = card.row
    paused = row["state"] == "Paused"
    state = State.OFF if paused else State.TROUBLED if card.cause else State.WELL if row["ready"] else State.WORKING
    own = {key: value for key, value in row.items() if key not in {"namespace", "name", "state"}}
    fault = {key: _text(str(value)) for key, value in (row["last_fault"] or {}).items()}
    own |= {"problem": _text(row["problem"] or "") or None, "last_fault": fault or None}
    return _entity("controller", card.namespace, card.name, state, card.cause) | own | {"phase": row["state"]}


def part_entity(status: PartStatus) -> Entity:
    """Return how a kind is read: what cannot be read is said in its place, and is not empty."""
    lacking = [
        {"namespace": namespace or None, "say": _text(say), "do": _text(do)}
        for namespace, (say, do) in sorted(status.lacking.items())
    ]
    state = State.TROUBLED if lacking else State.WELL if status.synced else State.WORKING
    why = lacking[0]["say"] or "" if lacking else "" if status.synced else "it is still being read"
    return _entity("part", "", status.name, state, why) | {
        "synced": status.synced,
        "defined": not status.absent,
        "lacking": lacking,
    }


def _entity(kind: str, namespace: str, name: str, state: State, why: str) -> dict[str, Any]:
    return {
        "kind": kind,
        "namespace": namespace or None,
        "name": name,
        "state": state.value,
        "why": _text(why) or None,
    }


def _text(text: str) -> str:
    line = redact_url(" ".join(text.encode(errors="backslashreplace").decode().split()))
    return line if len(line) <= _WHY_MOST else f"{line[: _WHY_MOST - 1]}…"
