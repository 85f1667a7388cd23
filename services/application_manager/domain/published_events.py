"""Events about Applications: those to publish, and those that are published.

Pure, except for the state of ``Published``; ``cache`` keeps it. Called after a reconcile, for a deleted object, and at
start with the last events on the bus. Invariant: an event is published whenever its state holds and it is not known to
be published; its id names the observation, so that a second publish stores nothing.
"""

from __future__ import annotations

import sys
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Self

from application_manager.domain.actions import Decision, Lost, Record
from application_manager.domain.sides import Object
from trellis.events.applications import (
    ApplicationDeleted,
    ApplicationEventData,
    ApplicationOverridden,
    ApplicationRejected,
    ApplicationSynced,
)


@dataclass(frozen=True, slots=True)
class Identity:
    """The object that events are about. ``name``: of the object; ``application``: its name in wadm."""

    namespace: str
    name: str
    uid: str
    resource_version: str
    generation: int
    lattice: str
    application: str

    @property
    def key(self) -> str:
        """Return ``namespace/name``."""
        return f"{self.namespace}/{self.name}"

    @property
    def fields(self) -> dict[str, str]:
        """Fields of every event."""
        return {
            "namespace": self.namespace,
            "name": self.name,
            "uid": self.uid,
            "lattice": self.lattice,
            "application": self.application,
        }


@dataclass(frozen=True, slots=True)
class Due:
    """An event, and its deduplication id on the bus."""

    event: ApplicationEventData
    dedup: str


def events_of(
    about: Identity,
    found: Object,
    decision: Decision,
    overridden: Lost | None = None,
    rejected: tuple[str, str] | None = None,
) -> list[Due]:
    """Return the events whose state holds for an object now.

    Args:
        about: identity of the object.
        found: the object that was decided about.
        decision: the decision about it; while it has more than a record, the sides are not equal.
        overridden: the overridden change, as in the former or the new status.
        rejected: reason and message of wadm's rejection, None if there is none.
    """
    events = []
    base = found.base
    for action in decision.actions:
        base = action.base if isinstance(action, Record) else None
    # A base can also be recorded while the object differs: then only the newest version of wadm was recorded.
    equal = base is not None and (base.digest, base.undeploy) == (found.digest, found.undeploy)
    if base is not None and equal and decision.waits is None and rejected is None and not found.deleting:
        event = ApplicationSynced(
            **about.fields,
            generation=about.generation,
            shown=base.version,
            deployed=base.deployed,
            digest=base.digest,
        )
        events.append(Due(event, f"{about.uid}.{about.generation}-{base.serial}.synced"))
    if overridden is not None:
        lost = ApplicationOverridden(**about.fields, side=overridden.side.value, kept=overridden.version)
        events.append(Due(lost, f"{about.uid}.{about.resource_version}.overridden"))
    if rejected is not None:
        reason, message = rejected
        refusal = ApplicationRejected(**about.fields, generation=about.generation, reason=reason, message=message)
        events.append(Due(refusal, f"{about.uid}.{about.resource_version}.rejected"))
    return events


@dataclass(frozen=True, slots=True)
class Noted:
    """A published event: the fields of a deletion of its object, and the whole event as JSON.

    The model of an event needs three times the memory.
    """

    uid: str
    lattice: str
    application: str
    json: bytes

    @classmethod
    def of(cls, event: ApplicationEventData) -> Self:
        """Return the cached form of an event."""
        return cls(event.uid, sys.intern(event.lattice), event.application, event.model_dump_json().encode())


@dataclass(slots=True)
class Published:
    """Published events: by key of the object, the last event of each kind."""

    events: dict[str, dict[str, Noted]] = field(default_factory=dict)

    def due(self, key: str, holds: Iterable[Due]) -> list[Due]:
        """Return the events to publish about an object: new ones, and the deletion of a former object of this name.

        An event whose state no longer holds is dropped, so that it is published again when the state returns.
        """
        holds = list(holds)
        published = self.events.get(key, {})
        due = []
        uid = holds[0].event.uid if holds else None
        former = next((item for item in published.values() if uid is not None and item.uid != uid), None)
        if former is not None:
            due.append(_deleted(key, former))
            published.clear()
        current = {hold.event.event_name for hold in holds}
        for kind in [kind for kind in published if kind not in current and kind != ApplicationSynced.event_name]:
            del published[kind]
        return due + [hold for hold in holds if published.get(hold.event.event_name) != Noted.of(hold.event)]

    def objects_of(self, name: str) -> list[str]:
        """Return the keys of objects with published events; ``name``: of their application, or the key of one."""
        return [
            key
            for key, published in self.events.items()
            if any(name in {item.application, key} for item in published.values())
        ]

    def deletion_events(self, key: str) -> list[Due]:
        """Return the deletion event of a deleted object; empty if no event about it was published."""
        published = next(iter(self.events.get(key, {}).values()), None)
        return [] if published is None else [_deleted(key, published)]

    def note(self, event: ApplicationEventData) -> None:
        """Record an event that was published, or that is on the bus already; called in the order of publication."""
        key = f"{event.namespace}/{event.name}"
        if not isinstance(event, ApplicationDeleted):
            self.events.setdefault(key, {})[event.event_name] = Noted.of(event)
        elif all(item.uid == event.uid for item in self.events.get(key, {}).values()):
            self.events.pop(key, None)

    def needs_applications(self) -> str | None:
        """Return why Applications have to be listed: events on the bus name one; None if none does."""
        first = min(self.events, default=None)
        return None if first is None else f"Application {first} was published: nothing in wadm is changed"

    def forget(self) -> None:
        """Drop all records of published events."""
        self.events.clear()


def _deleted(key: str, published: Noted) -> Due:
    namespace, _, name = key.partition("/")
    event = ApplicationDeleted(
        namespace=namespace,
        name=name,
        uid=published.uid,
        lattice=published.lattice,
        application=published.application,
    )
    return Due(event, f"{published.uid}.deleted")
