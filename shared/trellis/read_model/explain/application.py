"""Why an Application is as it is: the whole chain, from who writes its object to its scalers and its Service.

Pure. In: what stands in the cluster. Out: the page, and the cause alone. Called by ``explain`` and ``status``.
Invariant: words of wadm's are shown as they are; what only wadm knows now is named as such: ``trellis apps --live``.
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
from trellis.read_model.explain.service import Warned, told_of
from trellis.read_model.explain.subject import Absence, Beside, Subject, cause_of, looked_at
from trellis.read_model.tables.apps import TROUBLE, application_of, condition, history_of, is_held, row_of

Manifest = Mapping[str, Any]

MANAGER: Final = "application-manager"
SUBJECT: Final = Subject("Application", "application", "trellis apps")
_BESIDES: Final = ("Rejected", "Contended", "Overridden", "FieldsIgnored")
_BAD: Final = frozenset({"Rejected", "Contended"})
_FINE: Final = "deployed"
_UNDER_WAY: Final = frozenset({"Applied", "Restored", "FromWadm", "Pending", "Overridden"})
"""Reasons of ``Synced`` while it is being carried over: no cause of anything."""


@dataclass(frozen=True, slots=True)
class AppSnapshot:
    """What stands in the cluster. ``groups`` are raw, None if they are not known."""

    app: Manifest
    groups: Sequence[Manifest] | None
    services: Sequence[ServiceView] = ()
    warnings: Sequence[Warned] = ()
    beside: Beside = field(default_factory=Beside)


def explain_application(world: AppSnapshot) -> Explanation:
    """Return the page of an Application."""
    return SUBJECT.page(world.app, _chain(world), world.beside)


def explain_no_application(name: str, namespace: str | None, absence: Absence, beside: Beside) -> Explanation:
    """Return the page of an Application that is not there."""
    hint = Line("hint", "`trellis apps --live` shows what wadm has and Kubernetes does not")
    return SUBJECT.absent(name, namespace, absence, hint, *beside.lines())


def is_named(app: Manifest, name: str) -> bool:
    """Say whether an Application is of a name: its own, or the one in wadm."""
    return name in {app["metadata"]["name"], application_of(app["metadata"])}


def application_cause(app: Manifest, groups: Sequence[Manifest] | None) -> Line | None:
    """Return why an Application does not go on, None if it does: what its page says, but for services and Events."""
    return cause_of(_chain(AppSnapshot(app, groups)))


def _chain(world: AppSnapshot) -> Iterator[Line]:
    item, status = world.app, world.app.get("status") or {}
    yield _object(item["metadata"])
    yield looked_at(item, MANAGER)
    row = row_of(item)
    hosts, sides = [*_hosts(world, row.namespace, row.lattice)], [*_sides(status, row.lattice)]
    # A deletion that is held stays so whatever becomes of the hosts.
    yield from (*sides, *hosts) if is_held(status) else (*hosts, *sides)
    yield from _besides(status)
    yield from _phase(item, status)
    yield from _service(world, row.namespace, row.application, row.lattice)
    mirrored = any(one.application == row.application and one.namespace == row.namespace for one in world.services)
    yield from told_of(world.warnings, row.application, Rank.ASIDE if mirrored else Rank.CAUSE)


def _object(metadata: Manifest) -> Line:
    """Tell whose the object is, and what it asks for."""
    text = f"{metadata['namespace']}/{metadata['name']}"
    if application_of(metadata) != metadata["name"]:
        text += f", in wadm {application_of(metadata)}"
    writers = sorted(
        {
            str(one.get("manager"))
            for one in metadata.get("managedFields") or ()
            if "f:spec" in (one.get("fieldsV1") or {}) and not one.get("subresource")
        }
    )
    shown = ["wash, by wadm" if one == names.FIELD_MANAGER_WADM else one for one in writers]
    text += f"; its spec is of {', '.join(shown)}" if shown else ""
    if (metadata.get("annotations") or {}).get(names.ANNOTATION_UNDEPLOY) == names.TRUE:
        text += f"; it is not to run ({names.ANNOTATION_UNDEPLOY})"
    if metadata.get("deletionTimestamp"):
        return Line("application", f"{text}; it is being deleted, and goes once wadm does not have it", well=False)
    return Line("application", text, well=True)


def _hosts(world: AppSnapshot, namespace: str, lattice: str) -> Iterator[Line]:
    """Tell of the groups of hosts of its lattice, and of a lattice that is away."""
    if world.groups is None:
        yield Line("hosts", f"whether namespace {namespace} has hosts of its lattice is not known to this account")
        return
    there = [one for one in world.groups if one["metadata"]["namespace"] == namespace]
    found = [one for one in there if not lattice or (one.get("spec") or {}).get("lattice") == lattice]
    if not found:
        yield _no_hosts(namespace, lattice, there)
    for one in found:
        yield _group(namespace, one)
        yield from lattice_lines(namespace, one.get("spec") or {}, one.get("status") or {})


def _no_hosts(namespace: str, lattice: str, there: Sequence[Manifest]) -> Line:
    others = sorted({str((one.get("spec") or {}).get("lattice")) for one in there})
    text = f"namespace {namespace} has no group of hosts{f' of lattice {lattice}' if lattice else ''}"
    text += f", only of {', '.join(others)}" if others else ""
    do = f"create a WasmCloudHostConfig{f' with spec.lattice: {lattice}' if lattice else ''}"
    do += f", or set the label {names.LABEL_LATTICE} to {' or '.join(others)}" if others else ""
    return Line("hosts", text, False, do, Rank.CAUSE)


def _group(namespace: str, group: Manifest) -> Line:
    status, name = group.get("status") or {}, group["metadata"]["name"]
    ready, wanted = status.get("readyReplicas") or 0, status.get("desiredReplicas") or 0
    text = f"{namespace}/{name} on lattice {(group.get('spec') or {}).get('lattice')}, {ready} of {wanted} ready"
    if ready or not wanted:
        return Line("hosts", text, well=True if wanted else None)
    cause = group_cause(group)
    if cause is None or cause.rank is not Rank.CAUSE:
        return Line("hosts", text, False, f"`trellis explain hostgroup/{name} -n {namespace}` says why", Rank.CAUSE)
    return Line("hosts", f"{text}: {cause.text}", False, cause.do, Rank.CAUSE)


def _sides(status: Manifest, lattice: str) -> Iterator[Line]:
    """Tell whether both sides have the same."""
    synced, base = condition(status, "Synced"), status.get("synced") or {}
    since = f", last equal at {base.get('time')} with version {base.get('wadmVersion')}" if base else ", never equal"
    if not synced:
        yield Line("both sides", f"not known{since}", well=False)
        return
    reason, text = str(synced.get("reason") or ""), str(synced.get("message") or synced.get("reason"))
    if synced.get("status") == "True":
        yield Line("both sides", text, well=True)
        return
    rank, do = Rank.SYMPTOM if reason in _UNDER_WAY else Rank.CAUSE, ""
    if is_held(status):
        text = f"{reason}: {text}"
    if reason == "WadmUnavailable":
        text = f"wadm{f' of lattice {lattice}' if lattice else ''} does not answer: {text}"
        do = "start wadm, or see its log; what runs there runs on, and nothing is lost meanwhile"
    yield Line("both sides", f"{text}{since}", False, do, rank)


def _besides(status: Manifest) -> Iterator[Line]:
    for kind in _BESIDES:
        found = condition(status, kind)
        if found.get("status") == "True":
            text, well = str(found.get("message") or found.get("reason")), False if kind in _BAD else None
            yield Line(kind, text, well, rank=Rank.CAUSE)


def _phase(item: Manifest, status: Manifest) -> Iterator[Line]:
    phase = str(status.get("phase") or "")
    if not phase:
        return
    deployed = status.get("deployedVersion")
    versions = len(history_of(item))
    text = f"{phase}, {f'version {deployed} is deployed' if deployed else 'no version is deployed'}, {versions} there"
    text += f": {status['message']}" if status.get("message") else ""
    well = False if phase in TROUBLE else phase in {"Deployed", "Undeployed"} or None
    yield Line("wadm", text, well, rank=Rank.CAUSE if status.get("message") else Rank.SYMPTOM)
    for one in status.get("scalers") or ():
        state, words = str(one.get("status") or ""), str(one.get("message") or "")
        told = f"{one.get('kind')} {one.get('name')}: {state}" + (f": {words}" if words else "")
        well = state.lower() == _FINE or (False if state.lower() == "failed" else None)
        yield Line("scaler", told, well, rank=Rank.CAUSE)


def _service(world: AppSnapshot, namespace: str, application: str, lattice: str) -> Iterator[Line]:
    """Name the Service that mirrors it, which has a page of its own."""
    for one in world.services:
        mirrors = one.application == application and lattice_name(one.lattice) == lattice
        if mirrors and one.namespace == namespace:
            yield Line("service", f"{one.key}: `trellis explain service/{one.name} -n {one.namespace}`")
