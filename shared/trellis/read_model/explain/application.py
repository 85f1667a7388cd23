"""State of an Application, and its cause, from the managers of its fields to its scalers and its Service.

Pure. In: the objects in the cluster. Out: health, the page, and the cause alone. Called by ``explain``, ``status`` and
``entities``. Invariant: wadm's messages are shown unchanged; its present state is only in ``trellis apps --live``.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from trellis import names
from trellis.lattice.domain.group_views import lattice_name
from trellis.lattice.domain.service_views import ServiceView
from trellis.read_model.explain.hosts import group_cause, lattice_lines
from trellis.read_model.explain.page import Explanation, Line, Rank
from trellis.read_model.explain.service import Warned, events_about
from trellis.read_model.explain.subject import NOT_EVALUATED, Absence, Beside, Subject, cause_of, looked_at
from trellis.read_model.health import Health, Verdict
from trellis.read_model.tables.apps import TROUBLE, application_of, condition, history_of, is_paused, row_of

Manifest = Mapping[str, Any]

MANAGER: Final = "application-manager"
SUBJECT: Final = Subject("Application", "application", "trellis apps")
_BESIDES: Final = ("Rejected", "Contended", "Overridden", "FieldsIgnored")
_BAD: Final = frozenset({"Rejected", "Contended"})
_FINE: Final = "deployed"
_UNDER_WAY: Final = frozenset({"Applied", "Restored", "FromWadm", "Pending", "Overridden"})
"""Reasons of ``Synced`` while a change is being synced: not a cause."""
_PHASES: Final[Mapping[str, Health]] = {
    "Deployed": Health.HEALTHY,
    "Reconciling": Health.PROGRESSING,
    "Waiting": Health.PROGRESSING,
    "Failed": Health.DEGRADED,
    "Unhealthy": Health.DEGRADED,
    "Undeployed": Health.SUSPENDED,
}


@dataclass(frozen=True, slots=True)
class AppSnapshot:
    """Objects in the cluster. ``groups`` are raw, None if they are unknown."""

    app: Manifest
    groups: Sequence[Manifest] | None
    services: Sequence[ServiceView] = ()
    warnings: Sequence[Warned] = ()
    beside: Beside = field(default_factory=Beside)


def explain_application(snapshot: AppSnapshot) -> Explanation:
    """Return the page of an Application."""
    verdict = application_health(app_state(snapshot.app), _groups_of(snapshot))
    return SUBJECT.page(snapshot.app, _chain(snapshot), snapshot.beside, verdict)


def explain_no_application(name: str, namespace: str | None, absence: Absence, beside: Beside) -> Explanation:
    """Return the page of an Application that does not exist."""
    hint = Line("hint", "`trellis apps --live` shows applications that exist only in wadm")
    return SUBJECT.absent(name, namespace, absence, hint, *beside.lines())


def is_named(app: Manifest, name: str) -> bool:
    """Return whether a name is that of an Application, in Kubernetes or in wadm."""
    return name in {app["metadata"]["name"], application_of(app["metadata"])}


@dataclass(frozen=True, slots=True)
class AppGroup:
    """A host group as applications of its lattice depend on it; ``lines`` are the steps of their chain."""

    namespace: str
    lattice: str
    lines: tuple[Line, ...]


@dataclass(frozen=True, slots=True)
class AppState:
    """An Application without its hosts. ``troubles``: the failed steps of its chain."""

    namespace: str
    lattice: str
    phase: str
    paused: bool
    troubles: tuple[Line, ...]


def app_group(group: Manifest) -> AppGroup:
    """Return the view of a WasmCloudHostConfig."""
    namespace, spec = str(group["metadata"]["namespace"]), group.get("spec") or {}
    lines = (_group(namespace, group), *lattice_lines(namespace, spec, group.get("status") or {}))
    return AppGroup(namespace, str(spec.get("lattice") or ""), lines)


def app_state(app: Manifest) -> AppState:
    """Return the view of an Application."""
    status, row = app.get("status") or {}, row_of(app)
    lines = (*_sides(status, row.lattice), _object(app["metadata"]), looked_at(app, MANAGER), *_besides(status))
    troubles = tuple(line for line in (*lines, *_phase(app, status)) if line.trouble)
    return AppState(row.namespace, row.lattice, row.phase, is_paused(status), troubles)


def application_health(app: AppState, groups: Sequence[AppGroup] | None) -> Verdict:
    """Return the health of an Application; ``groups`` None: unknown to this account."""
    cause, phase = _cause(app, groups), _PHASES.get(app.phase, Health.UNKNOWN)
    if cause is None:
        return Verdict(phase, app.phase or NOT_EVALUATED)
    if phase is Health.DEGRADED and cause.rank is not Rank.CAUSE:
        return Verdict(phase, app.phase, cause.shown)
    return cause.verdict


def application_cause(app: Manifest, groups: Sequence[Manifest] | None) -> Line | None:
    """Return the cause of an Application that is not healthy: as its page has it, without Services and Events."""
    return _cause(app_state(app), _groups_of(AppSnapshot(app, groups)))


def _cause(app: AppState, groups: Sequence[AppGroup] | None) -> Line | None:
    hosts = [*_hosts(groups, app.namespace, app.lattice)]
    # A paused deletion stays paused in any state of the hosts.
    return cause_of([*app.troubles, *hosts] if app.paused else [*hosts, *app.troubles])


def _groups_of(snapshot: AppSnapshot) -> list[AppGroup] | None:
    return None if snapshot.groups is None else [app_group(group) for group in snapshot.groups]


def _chain(snapshot: AppSnapshot) -> Iterator[Line]:
    item, status = snapshot.app, snapshot.app.get("status") or {}
    yield _object(item["metadata"])
    yield looked_at(item, MANAGER)
    row = row_of(item)
    hosts, sides = [*_hosts(_groups_of(snapshot), row.namespace, row.lattice)], [*_sides(status, row.lattice)]
    yield from (*sides, *hosts) if is_paused(status) else (*hosts, *sides)
    yield from _besides(status)
    yield from _phase(item, status)
    yield from _service(snapshot, row.namespace, row.application, row.lattice)
    # A missing Service is the state of the Service, which has its own page.
    yield from events_about(snapshot.warnings, row.application, Rank.ASIDE)


def _object(metadata: Manifest) -> Line:
    """Return the step with the name of the object and the field managers of its spec."""
    text = f"{metadata['namespace']}/{metadata['name']}"
    if application_of(metadata) != metadata["name"]:
        text += f", in wadm {application_of(metadata)}"
    writers = sorted(
        {
            str(managed_field.get("manager"))
            for managed_field in metadata.get("managedFields") or ()
            if "f:spec" in (managed_field.get("fieldsV1") or {}) and not managed_field.get("subresource")
        }
    )
    shown = ["wash, by wadm" if writer == names.FIELD_MANAGER_WADM else writer for writer in writers]
    text += f"; its spec is managed by {', '.join(shown)}" if shown else ""
    if (metadata.get("annotations") or {}).get(names.ANNOTATION_UNDEPLOY) == names.TRUE:
        text += f"; undeployed ({names.ANNOTATION_UNDEPLOY})"
    if metadata.get("deletionTimestamp"):
        text += "; it is being deleted, and stays until wadm has deleted it"
        return Line("application", text, ok=False, reason="Deleting")
    return Line("application", text, ok=True)


def _hosts(groups: Sequence[AppGroup] | None, namespace: str, lattice: str) -> Iterator[Line]:
    """Yield the host groups of its lattice, and the state of the connection to the lattice."""
    if groups is None:
        yield Line("hosts", f"this account cannot read whether namespace {namespace} has hosts of its lattice")
        return
    here = [group for group in groups if group.namespace == namespace]
    found = [item for item in here if not lattice or item.lattice == lattice]
    lattices = sorted({item.lattice for item in here})
    if not lattice and len(lattices) > 1:
        text = f"it names none of the lattices of namespace {namespace}: {', '.join(lattices)}"
        do = f"set its label {names.LABEL_LATTICE} to {' or '.join(lattices)}"
        yield Line("hosts", text, False, do, Rank.CAUSE, "NoLattice")
        return
    if not found:
        yield _no_hosts(namespace, lattice, lattices)
    for item in found:
        yield from item.lines


def _no_hosts(namespace: str, lattice: str, others: Sequence[str]) -> Line:
    text = f"namespace {namespace} has no host group{f' of lattice {lattice}' if lattice else ''}"
    text += f", only of {', '.join(others)}" if others else ""
    do = f"create a WasmCloudHostConfig{f' with spec.lattice: {lattice}' if lattice else ''}"
    do += f", or set the label {names.LABEL_LATTICE} to {' or '.join(others)}" if others else ""
    return Line("hosts", text, False, do, Rank.CAUSE, "HostGroupMissing")


def _group(namespace: str, group: Manifest) -> Line:
    status, name = group.get("status") or {}, group["metadata"]["name"]
    ready, wanted = status.get("readyReplicas") or 0, status.get("desiredReplicas") or 0
    text = f"{namespace}/{name} of lattice {(group.get('spec') or {}).get('lattice')}, {ready} of {wanted} ready"
    if ready or not wanted:
        return Line("hosts", text, ok=True if wanted else None)
    cause = group_cause(group)
    if cause is None or cause.rank is not Rank.CAUSE:
        do = f"`trellis explain hostgroup/{name} -n {namespace}` shows the cause"
        return Line("hosts", text, False, do, Rank.CAUSE, cause.reason if cause else "HostsNotReady")
    return Line("hosts", f"{text}: {cause.text}", False, cause.do, Rank.CAUSE, cause.reason, cause.state)


def _sides(status: Manifest, lattice: str) -> Iterator[Line]:
    """Yield the step that compares the manifests of Kubernetes and wadm."""
    synced, base = condition(status, "Synced"), status.get("synced") or {}
    since = f", last synced at {base.get('time')} with version {base.get('wadmVersion')}" if base else ", never synced"
    if not synced:
        yield Line("sync", f"unknown{since}", ok=False, reason="SyncUnknown")
        return
    reason, text = str(synced.get("reason") or ""), str(synced.get("message") or synced.get("reason"))
    if synced.get("status") == "True":
        yield Line("sync", text, ok=True)
        return
    rank, do = Rank.SYMPTOM if reason in _UNDER_WAY else Rank.CAUSE, ""
    if is_paused(status):
        text = f"{reason}: {text}"
    if reason == "WadmUnavailable":
        text = f"wadm{f' of lattice {lattice}' if lattice else ''} does not respond: {text}"
        do = "start wadm, or read its log; running applications are not affected, and changes are kept"
    state = Health.UNKNOWN if synced.get("status") == "Unknown" else None
    yield Line("sync", f"{text}{since}", False, do, rank, reason, state)


def _besides(status: Manifest) -> Iterator[Line]:
    for kind in _BESIDES:
        found = condition(status, kind)
        if found.get("status") == "True":
            text, ok = str(found.get("message") or found.get("reason")), False if kind in _BAD else None
            yield Line(kind, text, ok, rank=Rank.CAUSE, reason=str(found.get("reason") or kind))


def _phase(item: Manifest, status: Manifest) -> Iterator[Line]:
    phase = str(status.get("phase") or "")
    if not phase:
        return
    deployed = status.get("deployedVersion")
    versions = len(history_of(item))
    text = f"{phase}, {f'version {deployed} is deployed' if deployed else 'no version is deployed'}, {versions} in wadm"
    text += f": {status['message']}" if status.get("message") else ""
    ok = False if phase in TROUBLE else phase in {"Deployed", "Undeployed"} or None
    rank = Rank.CAUSE if status.get("message") else Rank.SYMPTOM
    yield Line("wadm", text, ok, rank=rank, reason=phase, state=_PHASES.get(phase))
    for scaler in status.get("scalers") or ():
        state, message = str(scaler.get("status") or ""), str(scaler.get("message") or "")
        text = f"{scaler.get('kind')} {scaler.get('name')}: {state}" + (f": {message}" if message else "")
        ok = state.lower() == _FINE or (False if state.lower() == "failed" else None)
        yield Line("scaler", text, ok, rank=Rank.CAUSE, reason="ScalerFailed")


def _service(snapshot: AppSnapshot, namespace: str, application: str, lattice: str) -> Iterator[Line]:
    """Yield the Service that reflects it, which has its own page."""
    for service in snapshot.services:
        reflects = service.application == application and lattice_name(service.lattice) == lattice
        if reflects and service.namespace == namespace:
            yield Line("service", f"{service.key}: `trellis explain service/{service.name} -n {service.namespace}`")
