"""Table of event types, subjects, streams and publishers. No other module spells a subject.

Pure. In: cluster, event data, names. Out: NATS subjects and back. Called by ``trellis.bus``, the generator of schemas,
tests. Invariant: ``unescape(escape(s)) == s`` for every string, and ``escape(s)`` is one NATS token. Source: NATS
subject rules (tokens are separated by dots; ``*``, ``>`` and white space are not allowed in them).
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from enum import StrEnum
from typing import Any, Final

from trellis.events.applications import (
    ApplicationDeleted,
    ApplicationOverridden,
    ApplicationRejected,
    ApplicationSynced,
)
from trellis.events.controllers import ControllerSuspended, ControllerTrapped, ControllerWoken
from trellis.events.envelope import EventData, event_type
from trellis.events.hosts import HostPodGone, HostPodReady, HostsReady, HostsRemoved
from trellis.events.node import NodeGone, NodeOptedIn, NodeOptedOut, NodeReady, NodeReplaced
from trellis.events.provision import ProvisionFailed, ProvisionRemoved, ProvisionStarted, ProvisionSucceeded
from trellis.events.rollout import RolloutHalted, RolloutResumed
from trellis.events.secrets import SecretChanged, SecretDenied, SecretGranted
from trellis.events.services import ServiceReflected, ServiceRemoved
from trellis.events.wasm_workloads import WasmWorkloadFailed, WasmWorkloadRecovered, WasmWorkloadRunning
from trellis.events.wasmcloud_v2 import (
    ArtifactPublished,
    HeartbeatsDenied,
    HeartbeatsLost,
    HeartbeatsRestored,
    WasmHostGone,
    WasmHostReady,
    WasmHostSilent,
    WorkloadDeploymentDegraded,
    WorkloadDeploymentReady,
    WorkloadDeploymentRolled,
    WorkloadFailed,
    WorkloadGone,
    WorkloadStarted,
)

STREAM_EVENTS: Final = "TRELLIS_EVENTS"
STREAM_DEAD: Final = "TRELLIS_DEAD"
STREAM_LATTICE: Final = "TRELLIS_LATTICE"

ROOT_EVENTS: Final = "trellis.evt"
ROOT_DEAD: Final = "trellis.dead"
ROOT_LATTICE: Final = "trellis.lattice"

STREAM_SUBJECTS: Final[dict[str, str]] = {
    STREAM_EVENTS: f"{ROOT_EVENTS}.>",
    STREAM_LATTICE: f"{ROOT_LATTICE}.>",
    STREAM_DEAD: f"{ROOT_DEAD}.>",
}

NODE_WATCHER: Final = "node_watcher"
PROVISIONER: Final = "provisioner"
HOST_MANAGER: Final = "host_manager"
SERVICE_REFLECTOR: Final = "service_reflector"
APPLICATION_MANAGER: Final = "application_manager"
SECRETS_BACKEND: Final = "secrets_backend"
CONTROLLER_HOST: Final = "controller_host"
CONSOLE: Final = "console"
"""Publishes nothing; it reads as its own NATS user."""


@dataclass(frozen=True, slots=True)
class EventSpec:
    """A row of the table: the model of an event, its only publisher, and its stream."""

    model: type[EventData]
    owner: str
    stream: str = STREAM_EVENTS

    @property
    def type(self) -> str:
        """CloudEvents type."""
        return event_type(self.model)

    @property
    def tokens(self) -> str:
        """The two subject tokens that name the event: ``<noun>.<event>``, from the second version on ``…-v2``.

        Each version has its own subjects: readers of the first version treat unknown types as errors, and must not
        receive the second one while both are published.
        """
        version = "" if self.model.version == 1 else f"-v{self.model.version}"
        return f"{self.model.noun}.{self.model.event_name}{version}"

    @property
    def key_fields(self) -> tuple[str, ...]:
        """Fields of the data that are the last tokens of the subject."""
        # Each field holds its own name, so the key tells which fields it is made of.
        names: dict[str, Any] = {name: name for name in self.model.model_fields}
        return self.model.model_construct(**names).key()


EVENT_SPECS: Final[tuple[EventSpec, ...]] = (
    EventSpec(NodeOptedIn, NODE_WATCHER),
    EventSpec(NodeOptedOut, NODE_WATCHER),
    EventSpec(NodeReplaced, NODE_WATCHER),
    EventSpec(NodeGone, NODE_WATCHER),
    EventSpec(NodeReady, NODE_WATCHER),
    EventSpec(ProvisionStarted, PROVISIONER),
    EventSpec(ProvisionSucceeded, PROVISIONER),
    EventSpec(ProvisionFailed, PROVISIONER),
    EventSpec(ProvisionRemoved, PROVISIONER),
    EventSpec(RolloutHalted, PROVISIONER),
    EventSpec(RolloutResumed, PROVISIONER),
    EventSpec(WasmWorkloadRunning, PROVISIONER),
    EventSpec(WasmWorkloadFailed, PROVISIONER),
    EventSpec(WasmWorkloadRecovered, PROVISIONER),
    EventSpec(HostsReady, HOST_MANAGER),
    EventSpec(HostsRemoved, HOST_MANAGER),
    EventSpec(HostPodReady, HOST_MANAGER),
    EventSpec(HostPodGone, HOST_MANAGER),
    EventSpec(WorkloadDeploymentReady, HOST_MANAGER),
    EventSpec(WorkloadDeploymentDegraded, HOST_MANAGER),
    EventSpec(WorkloadDeploymentRolled, HOST_MANAGER),
    EventSpec(WorkloadStarted, HOST_MANAGER),
    EventSpec(WorkloadFailed, HOST_MANAGER),
    EventSpec(WorkloadGone, HOST_MANAGER),
    EventSpec(WasmHostReady, HOST_MANAGER),
    EventSpec(WasmHostSilent, HOST_MANAGER),
    EventSpec(WasmHostGone, HOST_MANAGER),
    EventSpec(HeartbeatsLost, HOST_MANAGER),
    EventSpec(HeartbeatsDenied, HOST_MANAGER),
    EventSpec(HeartbeatsRestored, HOST_MANAGER),
    EventSpec(ArtifactPublished, HOST_MANAGER),
    EventSpec(ServiceReflected, SERVICE_REFLECTOR),
    EventSpec(ServiceRemoved, SERVICE_REFLECTOR),
    EventSpec(ApplicationSynced, APPLICATION_MANAGER),
    EventSpec(ApplicationOverridden, APPLICATION_MANAGER),
    EventSpec(ApplicationRejected, APPLICATION_MANAGER),
    EventSpec(ApplicationDeleted, APPLICATION_MANAGER),
    EventSpec(SecretGranted, SECRETS_BACKEND),
    EventSpec(SecretDenied, SECRETS_BACKEND),
    EventSpec(SecretChanged, SECRETS_BACKEND),
    EventSpec(ControllerWoken, CONTROLLER_HOST),
    EventSpec(ControllerSuspended, CONTROLLER_HOST),
    EventSpec(ControllerTrapped, CONTROLLER_HOST),
)

_BY_MODEL: Final = {spec.model: spec for spec in EVENT_SPECS}
_BY_TYPE: Final = {spec.type: spec for spec in EVENT_SPECS}

_PLAIN = re.compile(r"[A-Za-z0-9_-]")
_ESCAPED = re.compile(r"=([0-9A-F]{2})")
_PUBLISHED_SUBJECT = re.compile(r"trellis\.(?:evt(?:\.[A-Za-z0-9_=-]+){4,}|lattice(?:\.[A-Za-z0-9_=-]+){3,})")
_EMPTY: Final = "="
_ANY: Final = "*"
_REST: Final = ">"
_SHORTEST: Final = 6
"""Tokens of ``trellis.evt.<cluster>.<noun>.<event>.<key>``."""


def escape(name: str) -> str:
    """Return a name as one NATS token: letters, digits, ``_`` and ``-`` as they are, other bytes as ``=XX``.

    ``XX`` are two upper-case hex digits of each UTF-8 byte; the empty string becomes ``=``. A node called
    ``ip-10-0-0-1.ec2.internal`` is ``ip-10-0-0-1=2Eec2=2Einternal``.
    """
    if not name:
        return _EMPTY
    return "".join(
        char if _PLAIN.match(char) else "".join(f"={byte:02X}" for byte in char.encode("utf-8", "surrogatepass"))
        for char in name
    )


def unescape(token: str) -> str:
    """Return the name that :func:`escape` was given.

    Raises:
        ValueError: ``escape`` never returns this token.
    """
    if token == _EMPTY:
        return ""
    raw = bytearray()
    position = 0
    while position < len(token):
        if match := _ESCAPED.match(token, position):
            raw.append(int(match[1], 16))
            position = match.end()
        elif _PLAIN.match(token[position]):
            raw += token[position].encode()
            position += 1
        else:
            break
    name = raw.decode("utf-8", "surrogatepass") if position == len(token) else ""
    if escape(name) != token:
        message = f"{token!r} is not an escaped name"
        raise ValueError(message)
    return name


def spec_of(model: type[EventData]) -> EventSpec:
    """Return the row of a model; KeyError if the table does not contain it."""
    return _BY_MODEL[model]


def spec_of_type(ce_type: str) -> EventSpec | None:
    """Return the row of a CloudEvents type, None for an unknown type."""
    return _BY_TYPE.get(ce_type)


def event_subject(cluster: str, event: EventData) -> str:
    """Return the subject of an event: ``trellis.evt.<cluster>.<noun>.<event>.<key…>``."""
    spec = spec_of(type(event))
    return ".".join((ROOT_EVENTS, escape(cluster), spec.tokens, *map(escape, event.key())))


def event_filter(cluster: str, model: type[EventData]) -> str:
    """Return the subject filter for all events of a model in a cluster."""
    return f"{ROOT_EVENTS}.{escape(cluster)}.{spec_of(model).tokens}.>"


def events_filter(cluster: str | None, noun: str | None = None) -> str:
    """Return the subject filter for all events, of one cluster and one noun if given.

    Without a noun it matches every subject below the cluster (or the root), even those of no known event.
    """
    if cluster is None and noun is None:
        return f"{ROOT_EVENTS}.{_REST}"
    return ".".join((ROOT_EVENTS, _token(cluster), *([noun] if noun else []), _REST))


class PatternFault(StrEnum):
    """Reasons why a pattern is invalid."""

    TOKENS = "InvalidTokens"
    WILDCARD = "WildcardInToken"
    REST_NOT_LAST = "RestNotLast"
    ROOT = "OtherRoot"
    TOO_SHORT = "TooShort"


class PatternError(ValueError):
    """A pattern that no event can match; ``fault``: the reason."""

    def __init__(self, fault: PatternFault, message: str) -> None:
        super().__init__(message)
        self.fault = fault


def pattern_filter(pattern: str, cluster: str | None) -> str:
    """Return the subject filter for a NATS pattern that a user entered.

    Args:
        pattern: ``<noun>.<event>.<key…>`` with wildcards, or the same absolute: ``trellis.evt.<cluster>.…``.
        cluster: cluster of a relative pattern; None matches all.

    Raises:
        PatternError: it is not a pattern, or no event can match it; the message states the valid form.
    """
    tokens = pattern.split(".")
    if not all(tokens) or not pattern.isprintable() or " " in pattern:
        raise PatternError(PatternFault.TOKENS, "needs tokens separated by single dots, without spaces: node.ready.*")
    if any(wildcard in token and token != wildcard for token in tokens for wildcard in (_ANY, _REST)):
        raise PatternError(PatternFault.WILDCARD, "needs wildcards that are whole tokens: node.*.n1, not node.opt*.n1")
    if _REST in tokens[:-1]:
        raise PatternError(PatternFault.REST_NOT_LAST, "needs > as the last token: it matches one or more tokens")
    if tokens[0] != ROOT_EVENTS.split(".", maxsplit=1)[0]:
        tokens = [*ROOT_EVENTS.split("."), _token(cluster), *tokens]
    elif not pattern.startswith(f"{ROOT_EVENTS}."):
        raise PatternError(
            PatternFault.ROOT, f"needs the prefix {ROOT_EVENTS}. if it is absolute: {ROOT_EVENTS}.*.node.>"
        )
    if tokens[-1] != _REST and len(tokens) < _SHORTEST:
        raise PatternError(
            PatternFault.TOO_SHORT,
            "matches no event: the form is <noun>.<event>.<key>; > at the end matches the rest",
        )
    return ".".join(tokens)


def _token(name: str | None) -> str:
    return escape(name) if name else _ANY


def copy_subject(cluster: str, lattice: str, event: str) -> str:
    """Return the subject of a forwarded lattice event: ``trellis.lattice.<cluster>.<lattice>.<event>``."""
    return ".".join((ROOT_LATTICE, escape(cluster), escape(lattice), escape(event)))


def copies_filter(cluster: str | None = None, lattice: str | None = None) -> str:
    """Return the subject filter for forwarded lattice events, of one cluster and one lattice if given."""
    return f"{ROOT_LATTICE}.{_token(cluster)}.{_token(lattice)}.{_REST}"


def dead_filter(cluster: str | None = None) -> str:
    """Return the subject filter for all dead letters, or for those of a cluster."""
    return f"{ROOT_DEAD}.{escape(cluster)}.{_REST}" if cluster else f"{ROOT_DEAD}.{_REST}"


def is_event_subject(subject: str) -> bool:
    """Return whether the subject is one of an event or of a forwarded lattice event."""
    return bool(_PUBLISHED_SUBJECT.fullmatch(subject))


def plain(token: str) -> str:
    """Return the unescaped name of a subject token, or the token itself if it is not escaped."""
    try:
        return unescape(token)
    except ValueError:
        return token


def dead_subject(cluster: str, service: str, noun: str, key: tuple[str, ...]) -> str:
    """Return the subject of a dead letter: ``trellis.dead.<cluster>.<service>.<noun>.<key…>``."""
    return ".".join((ROOT_DEAD, escape(cluster), escape(service), escape(noun), *map(escape, key or ("",))))
