"""Metadata and conditions of the objects of wasmCloud v2.

Pure. In: manifests of any content. Out: views. Called by the views of each kind. Invariant: nothing raises. Source:
conditions of ``runtime.wasmcloud.dev/v1alpha1``, whose reasons are only ``Available`` and ``Reconcile``: the message
has the cause.
"""

from __future__ import annotations

import sys
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final

from trellis.v2.fields import Json, items, mapping, message, number, seconds, text, texts

GROUP: Final = "runtime.wasmcloud.dev"
TRUE: Final = "True"
FALSE: Final = "False"
UNKNOWN: Final = "Unknown"


@dataclass(frozen=True, slots=True)
class Meta:
    """Metadata of an object. ``created``: Unix seconds, None if not known; ``owner``: UID of its controller.

    ``owner_name``: name of the controller, "" if there is none.
    """

    namespace: str = ""
    name: str = ""
    uid: str = ""
    created: float | None = None
    deleting: bool = False
    generation: int = 0
    owner: str = ""
    owner_name: str = ""
    labels: Mapping[str, str] = field(default_factory=dict)

    @property
    def key(self) -> str:
        """``namespace/name``."""
        return f"{self.namespace}/{self.name}" if self.namespace else self.name


@dataclass(frozen=True, slots=True)
class Condition:
    """A condition. ``status``: True, False or Unknown, "" if the object does not have it; ``since``: Unix seconds."""

    type: str
    status: str = ""
    message: str = ""
    since: float | None = None

    @property
    def true(self) -> bool:
        """True if the condition is met."""
        return self.status == TRUE


Conditions = Mapping[str, Condition]


def view_meta(manifest: object) -> Meta:
    """Return the metadata of an object."""
    found = mapping(manifest, "metadata")
    owner = next((item for item in items(found, "ownerReferences") if item.get("controller") is True), {})
    return Meta(
        namespace=text(found, "namespace"),
        name=text(found, "name"),
        uid=text(found, "uid"),
        created=seconds(text(found, "creationTimestamp")),
        deleting=bool(text(found, "deletionTimestamp")),
        generation=number(found, "generation") or 0,
        owner=text(owner, "uid"),
        owner_name=text(owner, "name"),
        labels=texts(found, "labels"),
    )


def view_conditions(status: Json) -> dict[str, Condition]:
    """Return the conditions of a status by type, in its order."""
    found: dict[str, Condition] = {}
    for item in items(status, "conditions"):
        if kind := text(item, "type"):
            since = seconds(text(item, "lastTransitionTime"))
            # 10,000 Workloads have 50,000 conditions of a few types.
            state = sys.intern(text(item, "status"))
            new, old = Condition(sys.intern(kind), state, message(item), since), found.get(kind)
            if old is None or _supersedes(new, old):
                found[kind] = new
    return found


def _supersedes(new: Condition, old: Condition) -> bool:
    """Return whether a further condition of one type counts: the newer one does, of equally old ones a problem."""
    times = (new.since or 0.0, old.since or 0.0)
    return times[0] > times[1] or (times[0] == times[1] and not new.true)


def condition(conditions: Conditions, kind: str) -> Condition:
    """Return a condition, one without status if there is none."""
    return conditions.get(kind) or Condition(kind)


def first_unmet(conditions: Conditions, order: tuple[str, ...]) -> Condition | None:
    """Return the first condition of an order that is not True, None if all are."""
    return next((found for kind in order if not (found := condition(conditions, kind)).true), None)
