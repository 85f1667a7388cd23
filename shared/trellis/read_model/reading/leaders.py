"""Reads the leader of a service from its Lease.

In: a connection, the namespace of the installation. Out: the holder, and the age of its last renewal. Called by code
that shows services. Writes nothing.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Final

from trellis import names
from trellis.kube.client import Kube
from trellis.kube.errors import NotFound
from trellis.kube.lease import read_lease
from trellis.kube.resources import LEASES, Manifest

SKEW_SECONDS: Final = 60.0
"""Tolerated difference between the clocks of this machine and of a leader."""
WAITING_SECONDS: Final = 120.0
"""Seconds after which a waiting installation counts as removed: it updates its record every 20 s."""


@dataclass(frozen=True, slots=True)
class Leadership:
    """The leader of one service. ``age``: seconds since the last renewal by this machine's clock.

    ``foreign``: the holder of the Lease is not a replica of the service.
    """

    holder: str
    age: float | None
    duration: float
    foreign: bool = False


async def read_leadership(kube: Kube, service: str, namespace: str, now: datetime) -> Leadership:
    """Return the leadership of a service (``node-watcher``); raises NotFound if it never ran, or another KubeError."""
    record = read_lease(await kube.get(LEASES, names.LEASE_PREFIX + service, namespace))
    age = (now - datetime.fromisoformat(record.renewed)).total_seconds() if record.renewed else None
    return Leadership(record.holder, age, record.duration, record.foreign)


def trouble_of(lead: Leadership) -> str:
    """Return the problem of a held Lease of a service, "" if there is none."""
    age = lead.age
    if age is not None and age < -max(lead.duration, SKEW_SECONDS):
        return of_the_future("its Lease", -age, "another one leads once the Lease did not change for its duration")
    if lead.foreign:
        return "its Lease is held by other software, so no replica leads: stop that software, or delete the Lease"
    if age is None or age > lead.duration:
        return "the leader does not renew its lease: has it crashed? another one takes over"
    return ""


def of_the_future(what: str, seconds: float, then: str) -> str:
    """Return the problem of a Lease whose renewal is this many seconds in the future."""
    return (
        f"{what} was renewed {seconds:.0f} s in the future by this machine's clock: compare the clocks; if it is not "
        f"renewed, {then}"
    )


@dataclass(frozen=True, slots=True)
class NodesClaim:
    """The installation that provisions the nodes, by its namespace, and those that wait for its removal.

    ``holder`` is "" if the last one has not renewed its claim for two minutes by this machine's clock. ``ahead``:
    seconds by which the renewal is in the future.
    """

    holder: str
    waiting: tuple[str, ...]
    ahead: float = 0.0


async def read_claim(kube: Kube, namespace: str, now: datetime) -> NodesClaim | None:
    """Return the holder of the claim on the Nodes, None if there is none; raises KubeError if it cannot be read."""
    try:
        lease = await kube.get(LEASES, names.LEASE_NODES, namespace)
    except NotFound:
        return None
    return claim_of(lease, now)


def claim_of(lease: Manifest, now: datetime) -> NodesClaim:
    """Return the holder of the claim on the Nodes by its Lease."""
    record = read_lease(lease)
    waiting = (
        key.removeprefix(names.WAITING_PREFIX)
        for key, since in (lease["metadata"].get("annotations") or {}).items()
        if key.startswith(names.WAITING_PREFIX) and abs(_seconds_since(str(since), now)) < WAITING_SECONDS
    )
    age = _seconds_since(record.renewed, now)
    holder = record.holder if age < WAITING_SECONDS else ""
    return NodesClaim(holder, tuple(sorted(waiting)), max(0.0, -age))


def _seconds_since(timestamp: str, now: datetime) -> float:
    try:
        return (now - datetime.fromisoformat(timestamp)).total_seconds()
    except (ValueError, TypeError):
        return float("inf")


async def read_leader(kube: Kube, namespace: str, service: str) -> tuple[str, str]:
    """Return the leader of a service, "" if no replica leads, and the problem of its Lease; raises KubeError."""
    try:
        lead = await read_leadership(kube, service, namespace, datetime.now(UTC))
    except NotFound:
        return "", ""
    led = lead.holder and lead.age is not None and lead.age <= lead.duration
    return ("" if lead.foreign else lead.holder, trouble_of(lead)) if led else ("", "")
