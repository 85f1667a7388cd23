"""The faults of a run: the kind, the target, the time and the duration of each.

Pure. In: a random generator, a length, how many servers NATS has. Out: steps of the part ``faults``. Called by
``schedule``. Invariants: each fault is over when the run's time is; no target (a process, a connection to a server, a
server) has two faults at once. ``rarer`` draws from a generator of its own, so that seeds keep what they had before its
faults were known.
"""

from __future__ import annotations

import random
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from enum import StrEnum
from typing import Final

from chaos.steps import Step

PART: Final = "faults"
REPLICAS: Final = ("first", "second")
_EVERY_SECONDS: Final = 1.5
_FIRST_SECONDS: Final = 2.0


class Fault(StrEnum):
    """A kind of fault. ``on``: a replica, a server, the lattice, or a service's lease."""

    KILL = "kill"
    KILL_BEFORE_WRITE = "kill-before-its-next-write"
    KILL_AFTER_WRITE = "kill-after-its-next-write"
    STOP = "stop"
    TERMINATE = "terminate"
    CLOCK = "step-clock-of"
    KUBE_CUT = "cut-kube-of"
    KUBE_REFUSED = "refuse-kube-to"
    KUBE_SILENT = "silence-kube-to"
    KUBE_LATE = "delay-kube-to"
    KUBE_BUSY = "429-to"
    KUBE_BROKEN = "500-to"
    KUBE_EXPIRED = "401-to"
    KUBE_GONE = "410-to-watches-of"
    KUBE_ANSWERS_LOST = "lose-answers-to"
    BUS_CUT = "cut-bus-of"
    BUS_REFUSED = "refuse-bus-to"
    BUS_SILENT = "silence-bus-to"
    BUS_LATE = "delay-bus-to"
    NATS_KILL = "kill-nats"
    NATS_STOP = "end-nats"
    NATS_FREEZE = "freeze-nats"
    NATS_WIPE = "wipe-nats"
    NATS_ROLL = "roll-nats"
    GARBAGE = "garbage-on-bus"
    API_RESTART = "restart-kube-apiserver"
    API_FREEZE = "freeze-kube-apiserver"
    LATTICE_CUT = "cut-way-to"
    LATTICE_REFUSED = "refuse-way-to"
    LATTICE_SILENT = "silence-way-to"
    LATTICE_LATE = "delay-way-to"
    LATTICE_RESTART = "restart-nats-of"
    WADM_RESTART = "restart-wadm-of"
    LEASE_STOLEN = "steal-lease-of"
    LEASE_DELETED = "delete-lease-of"
    NATS_FULL = "fill-disk-of-nats"
    HISTORY_COMPACTED = "compact-history-of"
    NATS_PARTED = "part-nats"
    NATS_PARTED_SILENTLY = "part-nats-silently"


@dataclass(frozen=True, slots=True)
class Kind:
    """The frequency, the duration and the targets of a fault, and the faults that it must not meet (``place``)."""

    weight: float
    seconds: tuple[float, float]
    place: str
    targets: tuple[str, ...] = REPLICAS
    values: tuple[str, ...] = ("",)


_AT_ONCE: Final = (0.0, 0.0)
_LATTICE: Final = ("lattice",)
_LEASES: Final = (
    "node-watcher",
    "provisioner",
    "host-manager",
    "service-reflector",
    "application-manager",
    "controller-host",
)
_KINDS: Final = {
    Fault.KILL: Kind(5, _AT_ONCE, "process"),
    Fault.KILL_BEFORE_WRITE: Kind(3, (8.0, 8.0), "process"),
    Fault.KILL_AFTER_WRITE: Kind(4, (8.0, 8.0), "process"),
    Fault.STOP: Kind(3, (1.0, 14.0), "process"),
    Fault.TERMINATE: Kind(2, _AT_ONCE, "process"),
    Fault.CLOCK: Kind(1, (3.0, 10.0), "clock", values=("3600", "-3600", "2592000")),
    Fault.KUBE_CUT: Kind(2, _AT_ONCE, "kube"),
    Fault.KUBE_REFUSED: Kind(2, (1.0, 12.0), "kube"),
    Fault.KUBE_SILENT: Kind(2, (2.0, 12.0), "kube"),
    Fault.KUBE_LATE: Kind(2, (3.0, 10.0), "kube", values=("0.5", "5")),
    Fault.KUBE_BUSY: Kind(2, (2.0, 8.0), "kube"),
    Fault.KUBE_BROKEN: Kind(2, (2.0, 8.0), "kube"),
    Fault.KUBE_EXPIRED: Kind(2, (2.0, 8.0), "kube"),
    Fault.KUBE_GONE: Kind(2, (2.0, 8.0), "kube"),
    Fault.KUBE_ANSWERS_LOST: Kind(2, (2.0, 8.0), "kube"),
    Fault.BUS_CUT: Kind(2, _AT_ONCE, "bus"),
    Fault.BUS_REFUSED: Kind(2, (1.0, 12.0), "bus"),
    Fault.BUS_SILENT: Kind(2, (2.0, 12.0), "bus"),
    Fault.BUS_LATE: Kind(1, (3.0, 10.0), "bus", values=("0.3", "2")),
    Fault.NATS_KILL: Kind(2, (0.5, 6.0), "nats", ("nats",)),
    Fault.NATS_STOP: Kind(1, (0.5, 3.0), "nats", ("nats",)),
    Fault.NATS_FREEZE: Kind(1, (2.0, 8.0), "nats", ("nats",)),
    Fault.NATS_WIPE: Kind(2, (0.5, 3.0), "nats", ("nats",)),
    Fault.NATS_ROLL: Kind(2, (6.0, 6.0), "nats", ("nats",)),
    Fault.GARBAGE: Kind(1, _AT_ONCE, "garbage", ("nats",)),
    Fault.API_RESTART: Kind(2, _AT_ONCE, "api", ("kube-apiserver",)),
    Fault.API_FREEZE: Kind(1, (2.0, 8.0), "api", ("kube-apiserver",)),
    Fault.LATTICE_CUT: Kind(1, _AT_ONCE, "lattice", _LATTICE),
    Fault.LATTICE_REFUSED: Kind(1, (1.0, 10.0), "lattice", _LATTICE),
    Fault.LATTICE_SILENT: Kind(1, (2.0, 10.0), "lattice", _LATTICE),
    Fault.LATTICE_LATE: Kind(1, (3.0, 10.0), "lattice", _LATTICE, ("0.3", "2")),
    Fault.LATTICE_RESTART: Kind(1, _AT_ONCE, "lattice", _LATTICE),
    Fault.WADM_RESTART: Kind(2, _AT_ONCE, "lattice", _LATTICE),
    Fault.LEASE_STOLEN: Kind(1, _AT_ONCE, "lease", _LEASES),
    Fault.LEASE_DELETED: Kind(1, _AT_ONCE, "lease", _LEASES),
}
_RARER: Final = {
    Fault.NATS_FULL: Kind(0.3, (3.0, 8.0), "nats", ("nats",)),
    Fault.HISTORY_COMPACTED: Kind(0.3, _AT_ONCE, "api", ("kube-apiserver",)),
    Fault.NATS_PARTED: Kind(0.4, (4.0, 10.0), "nats", ("nats",)),
    Fault.NATS_PARTED_SILENTLY: Kind(0.4, (4.0, 10.0), "nats", ("nats",)),
}
"""Each of them comes at most once a run; the weight is how likely. A new one goes to the end, after what is drawn."""
_OF_THREE: Final = frozenset({Fault.NATS_ROLL, Fault.NATS_PARTED, Fault.NATS_PARTED_SILENTLY})
"""Faults of one server among others."""


def faults(rng: random.Random, seconds: float, servers: int) -> Iterator[Step]:
    """Yield what goes wrong in so many seconds."""
    taken: dict[tuple[str, str], float] = {}
    at = _FIRST_SECONDS
    able = [item for item in _KINDS if servers > 1 or item not in _OF_THREE]
    while at < seconds:
        act = rng.choices(able, [_KINDS[item].weight for item in able])[0]
        kind = _KINDS[act]
        on, value = rng.choice(kind.targets), rng.choice(kind.values)
        step = Step(round(at, 2), PART, act, on, value, round(rng.uniform(*kind.seconds), 1))
        if taken.get((kind.place, on), 0.0) <= step.at and step.until <= seconds:
            if kind.place == "nats" and act is not Fault.NATS_ROLL:
                step = replace(step, value=str(rng.randrange(servers)))
            taken[kind.place, on] = max(step.until, step.at + 1.0)
            yield step
        at += rng.expovariate(1 / _EVERY_SECONDS)


def rarer(rng: random.Random, seconds: float, servers: int, others: Iterable[Step]) -> Iterator[Step]:
    """Yield what goes wrong beside ``others``, where those leave room for it."""
    busy = [(place_of(step), step.on, step.at, max(step.until, step.at + 1.0)) for step in others]
    for act, kind in _RARER.items():
        if servers == 1 and act in _OF_THREE:
            continue
        comes, on = rng.random() < kind.weight, rng.choice(kind.targets)
        lasts = round(rng.uniform(*kind.seconds), 1)
        at = round(rng.uniform(_FIRST_SECONDS, max(_FIRST_SECONDS, seconds - lasts)), 2)
        value = str(rng.randrange(servers)) if kind.place == "nats" else ""
        there = [(begin, end) for place, who, begin, end in busy if (place, who) == (kind.place, on)]
        meets = any(begin <= at + lasts and at <= end for begin, end in there)
        if comes and not meets and at + lasts <= seconds:
            busy.append((kind.place, on, at, max(at + lasts, at + 1.0)))
            yield Step(at, PART, act, on, value, lasts)


def place_of(step: Step) -> str:
    """Return the kind of place that a fault is at."""
    return (_KINDS | _RARER)[Fault(step.act)].place
