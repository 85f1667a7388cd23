"""Which events are to be said of Applications, and which were said.

Pure, but for remembering; ``cache`` keeps it. Called after a run of a key, for an object that is gone, and with the
last events of the bus at start. Invariant: an event is said whenever its state holds and it is not known to have been
said; ids name what was observed, so that saying it twice stores it once.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field

from application_manager.domain.actions import Decision, Lost, Record
from application_manager.domain.sides import Object
from trellis.events.applications import (
    ApplicationDeleted,
    ApplicationFact,
    ApplicationOverridden,
    ApplicationRejected,
    ApplicationSynced,
)


@dataclass(frozen=True, slots=True)
class Identity:
    """Whom events are about. ``name`` is the object's, ``application`` the one in wadm."""

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
        """What every event carries."""
        return {
            "namespace": self.namespace,
            "name": self.name,
            "uid": self.uid,
            "lattice": self.lattice,
            "application": self.application,
        }


@dataclass(frozen=True, slots=True)
class Due:
    """An event, and the id by which the bus knows that it has it."""

    fact: ApplicationFact
    dedup: str


def facts_of(
    about: Identity,
    found: Object,
    decision: Decision,
    overridden: Lost | None = None,
    rejected: tuple[str, str] | None = None,
) -> list[Due]:
    """Return what holds of an object now.

    Args:
        about: whose events.
        found: the object that was decided about.
        decision: what is done about it; while there is more than to record, the sides are not equal.
        overridden: the change that lost, as its status has it or is given it.
        rejected: reason and words of wadm's refusal, None if it refuses nothing.
    """
    facts = []
    base = found.base
    for action in decision.actions:
        base = action.base if isinstance(action, Record) else None
    # A base can also be recorded while the object differs: then only what wadm has besides was written down.
    equal = base is not None and (base.digest, base.undeploy) == (found.digest, found.undeploy)
    if base is not None and equal and decision.waits is None and rejected is None and not found.deleting:
        fact = ApplicationSynced(
            **about.fields,
            generation=about.generation,
            shown=base.version,
            deployed=base.deployed,
            digest=base.digest,
        )
        facts.append(Due(fact, f"{about.uid}.{about.generation}-{base.serial}.synced"))
    if overridden is not None:
        lost = ApplicationOverridden(**about.fields, side=overridden.side.value, kept=overridden.version)
        facts.append(Due(lost, f"{about.uid}.{about.resource_version}.overridden"))
    if rejected is not None:
        reason, message = rejected
        refusal = ApplicationRejected(**about.fields, generation=about.generation, reason=reason, message=message)
        facts.append(Due(refusal, f"{about.uid}.{about.resource_version}.rejected"))
    return facts


@dataclass(slots=True)
class Published:
    """What was published of objects: by key of an object the last event of each kind."""

    facts: dict[str, dict[str, ApplicationFact]] = field(default_factory=dict)

    def due(self, key: str, holds: Iterable[Due]) -> list[Due]:
        """Return what is to be said of an object: what holds and was not said, and that a former one is gone.

        What was said and does not hold any more is forgotten, so that it is said again when it holds again.
        """
        holds = list(holds)
        said = self.facts.get(key, {})
        due = []
        uid = holds[0].fact.uid if holds else None
        former = next((one for one in said.values() if uid is not None and one.uid != uid), None)
        if former is not None:
            due.append(_deleted(former))
            said.clear()
        current = {one.fact.fact for one in holds}
        for kind in [kind for kind in said if kind not in current and kind != ApplicationSynced.fact]:
            del said[kind]
        return due + [one for one in holds if said.get(one.fact.fact) != one.fact]

    def objects_of(self, name: str) -> list[str]:
        """Return the keys of objects of which something was said; ``name``: their application's, or the key of one."""
        return [key for key, said in self.facts.items() if any(name in {one.application, key} for one in said.values())]

    def gone(self, key: str) -> list[Due]:
        """Return what is to be said of an object that is gone; nothing if nothing was ever said of it."""
        said = next(iter(self.facts.get(key, {}).values()), None)
        return [] if said is None else [_deleted(said)]

    def note(self, fact: ApplicationFact) -> None:
        """Remember that an event was said, or is on the bus already; they are told in the order in which they were."""
        key = f"{fact.namespace}/{fact.name}"
        if not isinstance(fact, ApplicationDeleted):
            self.facts.setdefault(key, {})[fact.fact] = fact
        elif all(one.uid == fact.uid for one in self.facts.get(key, {}).values()):
            self.facts.pop(key, None)

    def needs_applications(self) -> str | None:
        """Return why Applications have to be listed: events on the bus name one; None if none does."""
        first = min(self.facts, default=None)
        return None if first is None else f"Application {first} was published: nothing in wadm is changed"

    def forget(self) -> None:
        """Take nothing for said any more."""
        self.facts.clear()


def _deleted(said: ApplicationFact) -> Due:
    fact = ApplicationDeleted(
        namespace=said.namespace,
        name=said.name,
        uid=said.uid,
        lattice=said.lattice,
        application=said.application,
    )
    return Due(fact, f"{said.uid}.deleted")
