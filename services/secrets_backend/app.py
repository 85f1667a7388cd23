"""Wires secrets_backend: creates its clients and connects its components.

In: settings (and clients in tests). Out: a service to run. Called by ``__main__`` and
``trellis run``.
"""

from __future__ import annotations

import asyncio
import time
from functools import partial
from typing import Any, Final

from secrets_backend.accounts import Accounts
from secrets_backend.answering import Answering, Parts
from secrets_backend.audit import Audit
from secrets_backend.changes import Changes
from secrets_backend.deletions import GrantDeletions
from secrets_backend.domain.decide import Grant
from secrets_backend.domain.limits import Limits
from secrets_backend.gather import Cache
from secrets_backend.grant_statuses import GrantStatuses
from secrets_backend.key import Key
from secrets_backend.lattice_connections import GroupConnections
from secrets_backend.lookup import Lookup
from secrets_backend.metrics import SecretMetrics
from secrets_backend.permissions import Advice
from secrets_backend.serving import Environment
from secrets_backend.settings import Settings
from secrets_backend.timings import Timings
from secrets_backend.watches import ConnectionsOfGroups, Watches
from trellis.bus.bus import Bus
from trellis.bus.consume.queue import KeyedQueue
from trellis.events.subjects import SECRETS_BACKEND
from trellis.kube.changes import Change
from trellis.kube.client import Kube
from trellis.kube.permissions import MissingPermissions
from trellis.lattice.domain.group_views import GroupView
from trellis.lattice.follow.group_lattices import GroupLattices
from trellis.runtime.run import Base, EqualService, Service, Work
from trellis.telemetry import setup

GROUP_WORKERS: Final = 8
STATUS_WORKERS: Final = 2
_READING: Final = (64, 16)
"""Connections to the API server for reads of Secrets: in total, and for the accounts of one namespace."""
_FOR_ANSWERS: Final = 0.9
"""Share of the shutdown time for answers: with the default grace period more than the time limit of an answer."""


def create_app(
    settings: Settings,
    *,
    bus: Bus | None = None,
    kube: Kube | None = None,
    timings: Timings = Timings(),
) -> Service:
    """Return the service; it connects to Kubernetes and NATS when it is run."""
    return EqualService(
        name=SECRETS_BACKEND,
        settings=settings,
        telemetry=setup(
            SECRETS_BACKEND, otlp_endpoint=settings.otlp_endpoint, sample_ratio=settings.trace_sample_ratio
        ),
        compose=partial(compose, settings, timings=timings),
        namespaces={settings.namespace: {}},
        kube=kube,
        bus=bus,
        describe_error=Advice(settings.namespace).describe_error,
    )


def compose(settings: Settings, base: Base, *, timings: Timings) -> Work:
    """Connect the components."""
    groups = KeyedQueue[str](workers=GROUP_WORKERS, name="groups", telemetry=base.telemetry)
    grants = KeyedQueue[str](workers=STATUS_WORKERS, name="grants", telemetry=base.telemetry)

    def grants_known() -> bool:
        return watches.grants.known and deletions.stands and not any(watch.outdated(timings.stale) for watch in watches)

    cache = Cache({}, {}, grants_known=grants_known)
    deletions = GrantDeletions(base.kube, cache, base.health, timings, settings.namespace)
    users = frozenset(settings.secrets_users)
    statuses = GrantStatuses(base.kube, cache, base.health, users, grants.add, timings)

    def on_grant(change: Change[Grant]) -> None:
        deletions.take(change)
        statuses.on_grant(change)

    def on_group(change: Change[GroupView]) -> None:
        groups.add(change.key)
        statuses.on_group(change)

    watches = Watches(base.kube, cache, on_group, on_grant, timings.watch)
    reading = base.kube.apart(*_READING)
    parts = _parts(settings, base, reading, timings)
    links = GroupConnections(cache, _environment(settings, base, cache, parts, timings))
    permissions = MissingPermissions(base.health, Advice(settings.namespace).remedy)
    of_groups = ConnectionsOfGroups(cache, links, permissions)
    follow = GroupLattices(base.kube, of_groups.groups, of_groups.follow, of_groups.noted, settings.sources_interval)

    def list_all() -> None:
        for key in {*cache.groups, *cache.addresses}:
            groups.add(key)
        for key in cache.grants:
            grants.add(key)

    async def close(seconds: float) -> None:
        # After the last request no new events arise: first the requests end, then the remaining events are published.
        # An answer may need most of the time; events of earlier answers are published in the meantime.
        until = time.monotonic() + seconds
        await links.close(seconds * _FOR_ANSWERS)
        await parts.audit.close(max(0.0, until - time.monotonic()))

    background: list[Any] = [parts.key.run, links.run, parts.audit.run, parts.changes.run]
    background += [partial(deletions.run, watches.grants.synced), partial(_keep_client_open, reading)]
    if settings.secrets_cache_ttl:
        background.append(partial(parts.lookup.run, timings.sweep))
    return Work(
        [*watches],
        {groups: follow.run, grants: statuses.run},
        list_all,
        lambda: None,
        background=background,
        closing=[close],
    )


def _parts(settings: Settings, base: Base, reading: Kube, timings: Timings) -> Parts:
    metrics = base.telemetry.metrics
    return Parts(
        tracer=base.telemetry.tracer,
        key=Key(base.kube, settings.namespace, base.health, timings.key),
        lookup=Lookup(reading, settings.secrets_cache_ttl),
        limits=Limits(settings.secrets_entity_rate),
        audit=Audit(base.bus, base.telemetry, timings.audit),
        changes=Changes(reading, base.bus, base.telemetry, timings),
        metrics=SecretMetrics(metrics, SECRETS_BACKEND),
        backend=settings.secrets_backend,
        users=frozenset(settings.secrets_users),
        timings=timings,
        now=base.kube.now,
    )


def _environment(settings: Settings, base: Base, cache: Cache, parts: Parts, timings: Timings) -> Environment:
    return Environment(
        cache=cache,
        accounts=Accounts(cache, timings.accounts),
        key=parts.key,
        answering=Answering(parts),
        metrics=parts.metrics,
        health=base.health,
        backend=settings.secrets_backend,
        timings=timings,
    )


async def _keep_client_open(reading: Kube) -> None:
    """Keep the client open while this runs."""
    try:
        await asyncio.get_running_loop().create_future()
    finally:
        await reading.close()
