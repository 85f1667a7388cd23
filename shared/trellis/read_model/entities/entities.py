"""Entities of the console and of ``trellis top``: one flat object each, with an id, health, reason and message.

Pure. In: views and their health. Out: entities, as docs/console/api.md describes them. Called by ``composing``.
Invariants: an id is ``kind/[namespace/]name``; a reference is an id; text from the cluster has no passwords of URLs and
is bounded.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final

from trellis.installer_api.redaction import redact_url
from trellis.lattice.domain.service_views import PodView
from trellis.read_model.entities.cards import AppCard, ControllerCard, Ends, GroupCard, SeenHost, ServiceCard
from trellis.read_model.entities.journal import Entity
from trellis.read_model.explain.application import AppGroup, application_health
from trellis.read_model.explain.hosts import host_health
from trellis.read_model.explain.service import service_health
from trellis.read_model.health import Health, Verdict
from trellis.read_model.tables.nodes import NodeRow
from trellis.read_model.tables.rollout import ShimNode, Standing

_MESSAGE_MOST: Final = 400


@dataclass(frozen=True, slots=True)
class PartStatus:
    """Read status of a kind for a viewer. ``lacking``: by namespace, "" for all, what is unreadable and the resolution.

    ``synced``: all permitted objects were read; ``absent``: the CRD does not exist.
    """

    name: str
    synced: bool
    lacking: Mapping[str, tuple[str, str]]
    absent: bool = False


def identity(kind: str, namespace: str, name: str) -> str:
    """Return an id."""
    return f"{kind}/{namespace}/{name}" if namespace else f"{kind}/{name}"


def of_key(kind: str, key: str) -> str:
    """Return the id for a ``key`` of an informer."""
    return f"{kind}/{key}"


def node_entity(row: NodeRow, architecture: str, shims: Mapping[str, ShimNode]) -> Entity:
    """Return a node; ``shims``: by name of a Shim, the stage of its rollout on the node."""
    return make_entity("node", "", row.name, row.verdict) | {
        "phase": row.state.value,
        "opt_in": row.opt_in,
        "kubelet_ready": row.kubelet_ready,
        "concern": row.concern,
        "architecture": architecture or None,
        "verified": row.verified,
        "digest": row.digest,
        "attempt": row.attempt,
        "shims": {
            name: {"stage": item.stage.value, "attempt": item.attempt, "message": one_line(item.message) or None}
            for name, item in sorted(shims.items())
        },
    }


def shim_entity(standing: Standing, handler: str, *, paused: bool) -> Entity:
    """Return a Shim with its rollout; its nodes have their stages."""
    verdict = standing.verdict
    message = "; ".join(filter(None, (verdict.message or standing.message, standing.advice)))
    return make_entity("shim", "", standing.shim, replace(verdict, message=message)) | {
        "phase": standing.phase.value,
        "advice": standing.advice or None,
        "handler": handler or None,
        "generation": standing.generation,
        "paused": paused,
        "desired": standing.desired,
        "counts": {stage.value: count for stage, count in standing.counts.items()},
    }


def group_entity(card: GroupCard) -> Entity:
    """Return a host group."""
    return make_entity("hostgroup", card.namespace, card.name, card.verdict) | {
        "lattice": card.lattice,
        "workload": card.workload or None,
        "replicas": {"desired": card.desired, "ready": card.ready, "updated": card.updated},
        "applications": list(card.applications),
        "deleting": card.deleting,
    }


def host_entity(pod: PodView, group: GroupCard | None) -> Entity:
    """Return a host: its pod, and the report of the lattice; ``group`` None: not read."""
    host = (group.hosts.get(pod.name) if group else None) or SeenHost()
    verdict = host_health(pod, host.reported, group.verdict if group else None)
    return make_entity("host", pod.namespace, pod.name, verdict) | {
        "group": identity("hostgroup", pod.namespace, pod.group) if pod.group else None,
        "node": identity("node", "", pod.node) if pod.node else None,
        "lattice": (group.lattice if group else "") or None,
        "addresses": list(pod.addresses),
        "ready": pod.serving,
        "reported": host.reported,
        "host_id": host.id or None,
        "version": host.version or None,
        "applications": list(host.applications),
        "components": host.components,
        "providers": host.providers,
    }


def application_entity(card: AppCard, groups: Sequence[AppGroup] | None) -> Entity:
    """Return an application; ``groups`` None: the viewer cannot read host groups."""
    return make_entity("application", card.namespace, card.name, application_health(card.state, groups)) | {
        "application": card.application,
        "lattice": card.lattice or None,
        "phase": card.phase or None,
        "deployed": card.deployed or None,
    }


def service_entity(card: ServiceCard, slices: Iterable[Ends]) -> Entity:
    """Return a Service with its endpoints."""
    pods: dict[str, bool] = {}
    others: list[bool] = []
    for piece in slices:
        for pod, ready in piece.pods:
            pods[pod] = pods.get(pod, False) or ready
        others += piece.others
    count = sum(pods.values()) + sum(others)
    verdict = service_health(count, deleting=card.deleting)
    return make_entity("service", card.namespace, card.name, verdict) | {
        "application": card.application,
        "lattice": card.lattice or None,
        "type": card.type,
        "addresses": list(card.addresses),
        "ports": [
            {
                "name": port.name or None,
                "port": port.port,
                "protocol": port.protocol,
                "node_port": port.node_port or None,
            }
            for port in card.ports
        ],
        "endpoints": {"ready": count, "all": len(pods) + len(others)},
        "hosts": [of_key("host", key) for key in sorted(pods)],
    }


def controller_entity(card: ControllerCard) -> Entity:
    """Return a WasmController with its row of tables."""
    row = card.row
    own = {key: value for key, value in row.items() if key not in {"namespace", "name", "state"}}
    fault = {key: one_line(str(value)) for key, value in (row["last_fault"] or {}).items()}
    own |= {"problem": one_line(row["problem"] or "") or None, "last_fault": fault or None}
    return make_entity("controller", card.namespace, card.name, card.verdict) | own | {"phase": row["state"]}


def part_entity(status: PartStatus) -> Entity:
    """Return the read status of a kind: a kind that cannot be read is unknown, not empty."""
    lacking = [
        {"namespace": namespace or None, "message": one_line(message), "do": one_line(do)}
        for namespace, (message, do) in sorted(status.lacking.items())
    ]
    verdict = Verdict(Health.HEALTHY, "Synced") if status.synced else Verdict(Health.PROGRESSING, "Reading")
    if lacking:
        verdict = Verdict(Health.DEGRADED, "NotReadable", lacking[0]["message"] or "")
    return make_entity("part", "", status.name, verdict) | {
        "synced": status.synced,
        "defined": not status.absent,
        "lacking": lacking,
    }


def make_entity(kind: str, namespace: str, name: str, verdict: Verdict) -> dict[str, Any]:
    """Return the fields that all entities have."""
    return {
        "kind": kind,
        "namespace": namespace or None,
        "name": name,
        "health": verdict.health.value,
        "reason": verdict.reason or None,
        "message": one_line(verdict.message) or None,
    }


def one_line(text: str) -> str:
    """Return a text as one bounded line, without passwords of URLs."""
    line = redact_url(" ".join(text.encode(errors="backslashreplace").decode().split()))
    return line if len(line) <= _MESSAGE_MOST else f"{line[: _MESSAGE_MOST - 1]}…"
