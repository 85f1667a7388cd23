"""Parses messages of wasmCloud hosts: heartbeats, and replies to ``workload.start`` and ``workload.status``.

Pure. In: payloads. Out: messages, or ``Unreadable`` with the reason. Called by code that listens on NATS. Invariants:
nothing raises for any payload; a message is of bounded size. Source: ``wasmcloud.runtime.v2`` in proto3 JSON:
lowerCamelCase or snake_case, 64-bit integers as strings, defaults omitted, unknown fields possible.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Final

from trellis.lattice.domain.reading import LatticeDataError, decoded
from trellis.v2.fields import Json, mapping, message, number, text, texts
from trellis.v2.interfaces import Interface, interfaces_in

HEARTBEATS: Final = "runtime.operator.heartbeat"
"""Subject of heartbeats, followed by the ID of the host."""
LARGEST: Final = 2**20
"""Maximum size of a payload in bytes, the default ``max_payload`` of a NATS server; a heartbeat has 2 KiB."""
_STATE: Final = "WORKLOAD_STATE_"


class WorkloadState(StrEnum):
    """State of a workload on its host, without the prefix of the enum. OTHER: one of a later version."""

    UNSPECIFIED = "UNSPECIFIED"
    STARTING = "STARTING"
    RUNNING = "RUNNING"
    COMPLETED = "COMPLETED"
    STOPPING = "STOPPING"
    ERROR = "ERROR"
    NOT_FOUND = "NOT_FOUND"
    OTHER = "OTHER"


@dataclass(frozen=True, slots=True)
class Unreadable:
    """A payload that is not the expected message."""

    reason: str


@dataclass(frozen=True, slots=True)
class HostHeartbeat:
    """The description of a host by itself. ``imports`` and ``exports``: of its plugins, without built-in interfaces.

    Numbers that proto3 omits are 0; None: the field has another type.
    """

    id: str
    name: str = ""
    address: str = ""
    port: int | None = None
    environment: str = ""
    version: str = ""
    system: str = ""
    started_at: str = ""
    labels: Mapping[str, str] = field(default_factory=dict)
    cpu: float | None = None
    memory_total: int | None = None
    memory_free: int | None = None
    components: int | None = 0
    workloads: int | None = 0
    imports: frozenset[Interface] = frozenset()
    exports: frozenset[Interface] = frozenset()


@dataclass(frozen=True, slots=True)
class WorkloadStatus:
    """State of a workload in a reply of its host; ``message``: the cause of ERROR, without credentials in URLs."""

    id: str
    state: WorkloadState
    message: str = ""


def read_heartbeat(payload: bytes) -> HostHeartbeat | Unreadable:
    """Return the heartbeat in a payload."""
    data = _object(payload)
    if isinstance(data, Unreadable):
        return data
    if not (id_ := text(data, "id")):
        return Unreadable("a heartbeat without `id`")
    return HostHeartbeat(
        id=id_,
        name=text(data, "friendlyName", "friendly_name"),
        address=text(data, "hostname"),
        port=number(data, "httpPort", "http_port") or None,
        environment=text(data, "environment"),
        version=text(data, "version"),
        system=" ".join(filter(None, (text(data, "osName", "os_name"), text(data, "osArch", "os_arch")))),
        started_at=text(data, "startedAt", "started_at"),
        labels=texts(data, "labels"),
        cpu=_fraction(data, "systemCpuUsage", "system_cpu_usage"),
        memory_total=number(data, "systemMemoryTotal", "system_memory_total"),
        memory_free=number(data, "systemMemoryFree", "system_memory_free"),
        components=_count(data, "componentCount", "component_count"),
        workloads=_count(data, "workloadCount", "workload_count"),
        imports=interfaces_in(data, "imports"),
        exports=interfaces_in(data, "exports"),
    )


def read_reply(payload: bytes) -> WorkloadStatus | Unreadable:
    """Return the status of a workload in a reply; other replies on an inbox are ``Unreadable``."""
    data = _object(payload)
    if isinstance(data, Unreadable):
        return data
    found = mapping(data, "workloadStatus") or mapping(data, "workload_status")
    if not (id_ := text(found, "workloadId", "workload_id")):
        return Unreadable("a reply without the status of a workload")
    return WorkloadStatus(id_, state_named(text(found, "workloadState", "workload_state")), message(found))


def state_named(name: str) -> WorkloadState:
    """Return the state of a name in the enum of the protocol: ``WORKLOAD_STATE_RUNNING``; omitted: UNSPECIFIED."""
    try:
        return WorkloadState(name.removeprefix(_STATE)) if name else WorkloadState.UNSPECIFIED
    except ValueError:
        return WorkloadState.OTHER


def _object(payload: bytes) -> Json | Unreadable:
    if len(payload) > LARGEST:
        return Unreadable(f"larger than {LARGEST} bytes")
    try:
        value = decoded(payload)
    except LatticeDataError as error:
        return Unreadable(str(error))
    return value if isinstance(value, dict) else Unreadable("not a JSON object")


def _count(data: Json, key: str, other: str) -> int | None:
    return number(data, key, other) if key in data or other in data else 0


def _fraction(data: Json, key: str, other: str) -> float | None:
    value = data.get(key, data.get(other))
    return float(value) if isinstance(value, int | float) and not isinstance(value, bool) else None
