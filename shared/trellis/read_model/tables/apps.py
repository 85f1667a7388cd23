"""Rows of applications in Kubernetes and in wadm, and the differences between both.

Pure. In: raw Applications, the models of wadm. Out: rows. Called by ``apps``, ``explain`` and ``status``.
Invariant: unknown state is shown as unknown, and never as a difference.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Final

from trellis import names
from trellis.lattice.domain.models import Model
from trellis.lattice.domain.replies import Version

Manifest = Mapping[str, Any]

TROUBLE: Final = frozenset({"Failed", "Unhealthy"})
"""Phases of an application that does not run as requested."""
KEPT: Final = "overridden-"
"""Prefix of versions that only preserve an overridden change."""


@dataclass(frozen=True, slots=True)
class AppRow:
    """An Application. ``application``: its name in wadm; ``synced_at``: time of the last sync, or None."""

    namespace: str
    name: str
    application: str
    lattice: str
    phase: str
    deployed: str
    synced_at: datetime | None
    problem: str = ""

    @property
    def key(self) -> str:
        """``namespace/name``."""
        return f"{self.namespace}/{self.name}"

    def document(self, now: datetime) -> dict[str, Any]:
        """Return the row for JSON."""
        age = None if self.synced_at is None else round((now - self.synced_at).total_seconds(), 1)
        return {
            "namespace": self.namespace,
            "name": self.name,
            "application": self.application,
            "lattice": self.lattice or None,
            "phase": self.phase or None,
            "deployed": self.deployed or None,
            "synced_seconds_ago": age,
            "problem": self.problem or None,
        }


def row_of(item: Manifest) -> AppRow:
    """Return the row of an object; one that is not reconciled yet has no phase."""
    metadata, status = item["metadata"], item.get("status") or {}
    label = (metadata.get("labels") or {}).get(names.LABEL_LATTICE)
    return AppRow(
        namespace=str(metadata["namespace"]),
        name=str(metadata["name"]),
        application=application_of(metadata),
        lattice=str(status.get("lattice") or label or ""),
        phase=str(status.get("phase") or ""),
        deployed=str(status.get("deployedVersion") or ""),
        synced_at=_moment((status.get("synced") or {}).get("time")),
        problem=_problem(metadata, status),
    )


def application_of(metadata: Manifest) -> str:
    """Return the name of an object in wadm."""
    return str((metadata.get("annotations") or {}).get(names.ANNOTATION_APP_NAME) or metadata["name"])


def condition(status: Manifest, kind: str) -> Manifest:
    """Return a condition of a status, an empty one if there is none."""
    return next((item for item in status.get("conditions") or () if item.get("type") == kind), {})


def is_paused(status: Manifest) -> bool:
    """Return whether the circuit breaker pauses the deletion of an application on one side."""
    return bool(condition(status, "Synced").get("reason") == "MassDeletion")


def _problem(metadata: Manifest, status: Manifest) -> str:
    """Return the problem besides the phase, "" if there is none."""
    if is_paused(status):
        return f"MassDeletion: {condition(status, 'Synced').get('message')}"
    if metadata.get("deletionTimestamp"):
        return "it is being deleted, and stays until wadm has deleted it"
    if not status:
        return "application-manager has not reconciled it yet"
    if (status.get("observedGeneration") or 0) < (metadata.get("generation") or 0):
        return "application-manager has not reconciled its last change yet"
    ready = condition(status, "Ready")
    if ready.get("status") in {"False", "Unknown"}:
        return ": ".join(filter(None, (str(ready.get("reason") or ""), str(ready.get("message") or ""))))
    phase = str(status.get("phase") or "")
    return str(status.get("message") or phase) if phase in TROUBLE else ""


def _moment(text: object) -> datetime | None:
    try:
        found = datetime.fromisoformat(str(text)) if text else None
    except ValueError:
        return None
    return found if found is not None and found.tzinfo is not None else None


@dataclass(frozen=True, slots=True)
class LiveRow:
    """One application on both sides. ``app`` or ``model`` is None if that side does not have it.

    ``differences``: between both; ``unknown``: reason that wadm did not respond, "" if it did.
    """

    lattice: str
    application: str
    app: AppRow | None
    model: Model | None
    differences: tuple[str, ...] = ()
    unknown: str = ""

    def document(self, now: datetime) -> dict[str, Any]:
        """Return the row for JSON."""
        there = None
        if self.model is not None:
            there = {"status": self.model.status, "deployed": self.model.deployed or None, "newest": self.model.version}
        return {
            "lattice": self.lattice,
            "application": self.application,
            "kubernetes": None if self.app is None else self.app.document(now),
            "wadm": there,
            "differences": list(self.differences),
            "unknown": self.unknown or None,
        }


def compare(lattice: str, apps: Iterable[AppRow], models: Iterable[Model], other: Mapping[str, str]) -> list[LiveRow]:
    """Return one lattice's applications of both sides, by name.

    Args:
        lattice: its name.
        apps: objects that belong to it.
        models: what wadm has.
        other: by key of an object the difference of its manifest from that of wadm.
    """
    by_name: dict[str, list[AppRow]] = {}
    for app in apps:
        by_name.setdefault(app.application, []).append(app)
    there = {model.name: model for model in models}
    rows = []
    for name in sorted(by_name.keys() | there.keys()):
        model = there.get(name)
        here: list[AppRow | None] = [*by_name.get(name, ())] or [None]
        for found in here:
            differences = tuple(_differences(found, model))
            if found is not None and found.key in other:
                differences += (other[found.key],)
            rows.append(LiveRow(lattice, name, found, model, differences))
    return rows


def without_reply(lattice: str, apps: Iterable[AppRow], reason: str) -> list[LiveRow]:
    """Return the rows of a lattice whose wadm did not respond."""
    found = sorted(apps, key=lambda app: app.key)
    return [LiveRow(lattice, app.application, app, None, unknown=reason) for app in found]


def _differences(app: AppRow | None, model: Model | None) -> Iterable[str]:
    if app is None:
        yield "not in Kubernetes"
    elif model is None:
        yield "not in wadm"
    else:
        if app.deployed != model.deployed:
            yield f"deployed is {app.deployed or 'none'} here, {model.deployed or 'none'} in wadm"
        # For an undeployed application, wadm's list has its last status, or Waiting.
        status = model.status if model.deployed else "undeployed"
        if app.phase and status and app.phase.lower() != status.lower():
            yield f"{app.phase} here, {status} in wadm"


@dataclass(frozen=True, slots=True)
class VersionRow:
    """A version of an application. ``shown``: the object has it; ``note``: its origin, if it is special."""

    version: str
    deployed: bool
    shown: bool
    note: str = ""

    def document(self) -> dict[str, Any]:
        """Return the row for JSON."""
        return {
            "version": self.version,
            "deployed": self.deployed,
            "shown": self.shown,
            "note": self.note or None,
        }


def history_of(item: Manifest, versions: Sequence[Version] | None = None) -> list[VersionRow]:
    """Return the versions of an application, oldest first: those of wadm's reply, else of its status."""
    status = item.get("status") or {}
    if versions is None:
        entries = status.get("versions") or ()
        versions = [Version(str(entry.get("version")), bool(entry.get("deployed"))) for entry in entries]
    shown = str((status.get("synced") or {}).get("wadmVersion") or "")
    lost = status.get("overridden") or {}
    rows = []
    for version in versions:
        note = ""
        if lost.get("version") == version.version:
            note = f"the change in {lost.get('side')} that was overridden when both sides had changed"
        elif version.version.startswith(KEPT):
            note = "a change in Kubernetes that was overridden when both sides had changed"
        rows.append(VersionRow(version.version, version.deployed, version.version == shown, note))
    return rows
