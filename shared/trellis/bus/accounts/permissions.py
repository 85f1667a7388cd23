"""NATS users and their permissions: one user per service and cluster, one for the CLI, one for subscribers.

Pure. In: the subject table, the registry of services, names of clusters. Out: the subjects that each user may publish
and subscribe to. Called by ``accounts``, which writes the configuration of the server. Invariants: a service publishes
its own events of its own cluster, reads with its own consumers, and receives its own answers; no user deletes, purges
or changes a stream; only its service uses a durable consumer. Source: subjects of the JetStream API of nats-server 2.10
to 2.15.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from trellis.bus.accounts.naming import (
    CLAIM_STREAM,
    CLAIM_SUBJECTS,
    LAST_EVENTS,
    claim_subject,
    consumer_name,
    inbox_prefix,
)
from trellis.events.subjects import (
    CONSOLE,
    EVENT_SPECS,
    HOST_MANAGER,
    ROOT_DEAD,
    ROOT_EVENTS,
    ROOT_LATTICE,
    STREAM_DEAD,
    STREAM_EVENTS,
    STREAM_LATTICE,
    STREAM_SUBJECTS,
    copies_filter,
    dead_filter,
    escape,
    events_filter,
)
from trellis.services import SERVICES

PUBLISHERS: Final = tuple(service for service in SERVICES if service != CONSOLE)
"""Services with a user that may publish; the console only reads."""

CLI: Final = "cli"
OUTSIDE: Final = "outside"
CLI_INBOX: Final = f"_INBOX_{CLI}"

ADVISORIES: Final = (
    f"$JS.EVENT.ADVISORY.STREAM.DELETED.{STREAM_EVENTS}",
    f"$JS.EVENT.ADVISORY.CONSUMER.DELETED.{STREAM_EVENTS}.*",
)
"""Advisories about deleted streams and consumers; without them a deletion is detected at the next check."""

_API: Final = "$JS.API"
_READ_BY_CONSUMER: Final = ("CREATE", "INFO", "MSG.NEXT")
_EVERY_STREAM: Final = (*STREAM_SUBJECTS, CLAIM_STREAM)


@dataclass(frozen=True, slots=True)
class User:
    """A NATS user and its permissions. ``deny`` removes publish permissions."""

    name: str
    about: str
    publish: tuple[str, ...]
    subscribe: tuple[str, ...]
    deny: tuple[str, ...] = ()

    @property
    def variable(self) -> str:
        """Name of the variable with the user's public key in the configuration of the server."""
        return "NKEY_" + self.name.upper().replace(".", "_").replace("-", "_")


def users(clusters: Sequence[str]) -> list[User]:
    """Return every user of a bus that these clusters share."""
    services = [service_user(service, cluster) for cluster in clusters for service in PUBLISHERS]
    consoles = [console_user(cluster, clusters) for cluster in clusters]
    return [*services, *consoles, cli_user(clusters), outside_user(clusters)]


def service_user(service: str, cluster: str) -> User:
    """Return the user of a service in one cluster.

    The user may create streams, because any service may be the first to find one missing; the request does not change
    an existing stream.
    """
    token = escape(cluster)
    publish = [f"{ROOT_EVENTS}.{token}.{spec.tokens}.>" for spec in EVENT_SPECS if spec.owner == service]
    if service == HOST_MANAGER:
        publish.append(copies_filter(cluster))
    publish += [f"{ROOT_DEAD}.{token}.{escape(service)}.>", claim_subject(cluster)]
    publish += [f"{_API}.STREAM.{verb}.{stream}" for stream in _EVERY_STREAM for verb in ("INFO", "CREATE")]
    publish += [f"{_API}.STREAM.MSG.GET.{CLAIM_STREAM}"]
    for durable in durables(service, cluster):
        publish += [f"{_API}.CONSUMER.{verb}.{STREAM_EVENTS}.{durable}" for verb in _READ_BY_CONSUMER]
        publish += _acknowledgements(durable)
    reader = consumer_name(service, LAST_EVENTS, cluster)
    publish += [f"{_API}.CONSUMER.{verb}.{STREAM_EVENTS}.{reader}" for verb in (*_READ_BY_CONSUMER, "DELETE")]
    return User(
        f"{service}.{cluster}",
        f"{service} of cluster {cluster}",
        tuple(publish),
        (f"{inbox_prefix(service, cluster)}.>", *ADVISORIES),
    )


def console_user(cluster: str, clusters: Sequence[str]) -> User:
    """Return the user of the console of one cluster: it reads only messages of that cluster, dead letters included.

    The filter of a consumer is part of the subject of the request that creates it, so a permission can enforce it.
    """
    filters = {
        STREAM_EVENTS: events_filter(cluster),
        STREAM_LATTICE: copies_filter(cluster),
        STREAM_DEAD: dead_filter(cluster),
    }
    publish = [f"{_API}.STREAM.INFO.{stream}" for stream in filters]
    publish += [f"{_API}.CONSUMER.CREATE.{stream}.*.{subjects}" for stream, subjects in filters.items()]
    publish += [f"{_API}.CONSUMER.{verb}.{stream}.*" for stream in filters for verb in ("INFO", "MSG.NEXT", "DELETE")]
    return User(
        f"{CONSOLE}.{cluster}",
        f"the console of cluster {cluster}, read-only",
        tuple(publish),
        (f"{inbox_prefix(CONSOLE, cluster)}.>",),
        _no_durables(clusters),
    )


def cli_user(clusters: Sequence[str]) -> User:
    """Return the user of the command line: reads everything, replays and removes dead letters, releases names."""
    streams = (STREAM_EVENTS, STREAM_LATTICE, STREAM_DEAD)
    publish = [f"{_API}.INFO", f"{_API}.STREAM.NAMES", f"{_API}.STREAM.LIST"]
    publish += [f"{_API}.STREAM.INFO.{stream}" for stream in _EVERY_STREAM]
    publish += [subject for stream in (*streams, CLAIM_STREAM) for subject in _get(stream)]
    publish += [subject for stream in streams for subject in _consume(stream)]
    publish += [f"{ROOT_EVENTS}.>", f"{ROOT_LATTICE}.>", f"{_API}.STREAM.MSG.DELETE.{STREAM_DEAD}", CLAIM_SUBJECTS]
    return User(
        CLI,
        "command line: reads everything, replays and removes dead letters, frees names of clusters",
        tuple(publish),
        (f"{CLI_INBOX}.>", *(f"{root}.>" for root in (ROOT_EVENTS, ROOT_LATTICE, ROOT_DEAD)), "$JS.EVENT.>"),
        _no_durables(clusters),
    )


def outside_user(clusters: Sequence[str]) -> User:
    """Return the user of external subscribers: events and forwarded lattice events, live and replayed."""
    streams = (STREAM_EVENTS, STREAM_LATTICE)
    publish = [f"{_API}.INFO", f"{_API}.STREAM.NAMES"]
    publish += [f"{_API}.STREAM.INFO.{stream}" for stream in streams]
    publish += [subject for stream in streams for subject in (*_get(stream), *_consume(stream))]
    publish += [subject for stream in streams for subject in _acknowledgements("*", stream)]
    return User(
        OUTSIDE,
        "external subscribers, read-only",
        tuple(publish),
        ("_INBOX.>", f"{ROOT_EVENTS}.>", f"{ROOT_LATTICE}.>"),
        _no_durables(clusters),
    )


def durables(service: str, cluster: str) -> list[str]:
    """Return the names of a service's durable consumers in a cluster."""
    return [consumer_name(service, subscription, cluster) for subscription in SERVICES[service].subscriptions]


def _get(stream: str) -> tuple[str, ...]:
    return tuple(
        f"{_API}.{verb}" for verb in (f"STREAM.MSG.GET.{stream}", f"DIRECT.GET.{stream}", f"DIRECT.GET.{stream}.>")
    )


def _consume(stream: str) -> tuple[str, ...]:
    """Return the subjects for reading with own consumers; created by name only, so that names can be denied."""
    return (
        f"{_API}.CONSUMER.CREATE.{stream}.>",
        *(f"{_API}.CONSUMER.{verb}.{stream}.*" for verb in ("INFO", "MSG.NEXT", "DELETE")),
        *(f"{_API}.CONSUMER.{verb}.{stream}" for verb in ("NAMES", "LIST")),
    )


def _acknowledgements(consumer: str, stream: str = STREAM_EVENTS) -> tuple[str, ...]:
    """Return the subjects of acknowledgements: the current ones, and those with domain and account (NATS ADR-15)."""
    return (f"$JS.ACK.{stream}.{consumer}.>", f"$JS.ACK.*.*.{stream}.{consumer}.>")


def _no_durables(clusters: Sequence[str]) -> tuple[str, ...]:
    """Return the denied subjects that protect the durable consumers of services; reading their state is allowed."""
    names = [name for cluster in clusters for service in PUBLISHERS for name in durables(service, cluster)]
    names += [consumer_name(service, LAST_EVENTS, cluster) for cluster in clusters for service in PUBLISHERS]
    verbs = ("CREATE", "MSG.NEXT", "DELETE")
    denied = [f"{_API}.CONSUMER.{verb}.{STREAM_EVENTS}.{name}" for name in names for verb in verbs]
    denied += [f"{_API}.CONSUMER.CREATE.{STREAM_EVENTS}.{name}.>" for name in names]
    return (*denied, *(subject for name in names for subject in _acknowledgements(name)))
