"""Why an Application is as it is: the whole chain, from who writes its object to its scalers and its Service.

Pure. In: what stands in the cluster. Out: lines, the first problem of which is the reason. Called by ``explain``.
Invariant: words of wadm's are shown as they are; what only wadm knows now is named as such: ``trellis apps --live``.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from service_reflector.views import ServiceView
from trellis import names
from trellis_bundle.apps_model import TROUBLE, application_of, condition, history_of, row_of
from trellis_bundle.explain_service import Line

Manifest = Mapping[str, Any]

MANAGER: Final = "application-manager"
_BESIDES: Final = ("Rejected", "Contended", "Overridden", "FieldsIgnored")
_BAD: Final = frozenset({"Rejected", "Contended"})
_FINE: Final = "deployed"


@dataclass(frozen=True, slots=True)
class AppWorld:
    """What stands in the cluster. ``groups`` are raw; ``events``: raw Events.

    ``leader``: of application_manager, "" for nobody, None if that could not be read.
    """

    apps: Sequence[Manifest]
    groups: Sequence[Manifest]
    services: Sequence[ServiceView]
    events: Sequence[Manifest]
    leader: str | None


def explain_application(world: AppWorld, name: str, namespace: str | None) -> list[Line]:
    """Return the chain of the Applications of a name (their own, or the one in wadm), in one namespace or in all."""
    there = [one for one in world.apps if namespace in {None, one["metadata"]["namespace"]}]
    found = [one for one in there if name in {one["metadata"]["name"], application_of(one["metadata"])}]
    lines = [line for one in found for line in _application(world, one)]
    if not found:
        place = f"namespace {namespace}" if namespace else "any namespace"
        lines.append(Line("application", f"there is no Application {name} in {place}", well=False))
        hint = "`trellis apps --live` shows what wadm has and Kubernetes does not"
        lines.append(Line("hint", hint))
    if world.leader is None:
        lines.append(Line(MANAGER, "who leads it is not known: this account may not read its Lease"))
    elif world.leader:
        lines.append(Line(MANAGER, f"led by {world.leader}", well=True))
    else:
        why = f"nobody leads, so both sides are not kept equal: start it with `trellis run {MANAGER}`"
        lines.append(Line(MANAGER, why, well=False))
    return lines


def _application(world: AppWorld, item: Manifest) -> Iterator[Line]:
    metadata, status = item["metadata"], item.get("status") or {}
    yield _object(metadata)
    yield _looked_at(metadata, status)
    row = row_of(item)
    yield from _hosts(world, row.namespace, row.lattice)
    yield from _sides(status)
    yield from _besides(status)
    yield from _phase(item, status)
    yield from _service(world, row.namespace, row.application, row.lattice)
    for event in world.events:
        about = event.get("involvedObject") or {}
        if event.get("type") == "Warning" and about.get("uid") == metadata.get("uid"):
            yield Line("event", f"{event.get('reason')}: {event.get('message')}")


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


def _looked_at(metadata: Manifest, status: Manifest) -> Line:
    generation, seen = metadata.get("generation") or 0, status.get("observedGeneration")
    if seen is None:
        return Line("looked at", f"never: is {MANAGER} running?", well=False)
    if seen < generation:
        return Line("looked at", f"generation {seen}, and it is at {generation} by now", well=False)
    return Line("looked at", f"generation {generation}", well=True)


def _hosts(world: AppWorld, namespace: str, lattice: str) -> Iterator[Line]:
    """Tell of the groups of hosts of its lattice, and of a lattice that is away."""
    there = [one for one in world.groups if one["metadata"]["namespace"] == namespace]
    found = [one for one in there if not lattice or (one.get("spec") or {}).get("lattice") == lattice]
    if not found:
        of = f" of lattice {lattice}" if lattice else ""
        yield Line(
            "hosts", f"namespace {namespace} has no group of hosts{of}: create a WasmCloudHostConfig", well=False
        )
    for one in found:
        status = one.get("status") or {}
        ready, wanted = status.get("readyReplicas") or 0, status.get("desiredReplicas") or 0
        text = f"{namespace}/{one['metadata']['name']} on lattice {(one.get('spec') or {}).get('lattice')}, "
        yield Line("hosts", f"{text}{ready} of {wanted} ready", well=ready > 0 if wanted else None)
        reported = condition(status, "HostsReported")
        if reported.get("status") in {"False", "Unknown"}:
            yield Line("lattice", f"{reported.get('reason')}: {reported.get('message')}", well=False)


def _sides(status: Manifest) -> Iterator[Line]:
    """Tell whether both sides have the same."""
    synced, base = condition(status, "Synced"), status.get("synced") or {}
    since = f", last equal at {base.get('time')} with version {base.get('wadmVersion')}" if base else ", never equal"
    if not synced:
        yield Line("both sides", f"not known{since}", well=False)
        return
    well = synced.get("status") == "True"
    yield Line("both sides", f"{synced.get('message') or synced.get('reason')}{'' if well else since}", well=well)


def _besides(status: Manifest) -> Iterator[Line]:
    for kind in _BESIDES:
        found = condition(status, kind)
        if found.get("status") == "True":
            yield Line(kind, str(found.get("message") or found.get("reason")), well=False if kind in _BAD else None)


def _phase(item: Manifest, status: Manifest) -> Iterator[Line]:
    phase = str(status.get("phase") or "")
    if not phase:
        return
    deployed = status.get("deployedVersion")
    versions = len(history_of(item))
    text = f"{phase}, {f'version {deployed} is deployed' if deployed else 'no version is deployed'}, {versions} there"
    text += f": {status['message']}" if status.get("message") else ""
    yield Line("wadm", text, well=False if phase in TROUBLE else phase in {"Deployed", "Undeployed"} or None)
    for one in status.get("scalers") or ():
        state, words = str(one.get("status") or ""), str(one.get("message") or "")
        told = f"{one.get('kind')} {one.get('name')}: {state}" + (f": {words}" if words else "")
        yield Line("scaler", told, well=state.lower() == _FINE or (False if state.lower() == "failed" else None))


def _service(world: AppWorld, namespace: str, application: str, lattice: str) -> Iterator[Line]:
    """Name the Service that mirrors it, which has a page of its own."""
    for one in world.services:
        mirrors = one.application == application and one.lattice.partition("/")[0] == lattice
        if mirrors and one.namespace == namespace:
            yield Line("service", f"{one.key}: `trellis explain service/{one.name} -n {one.namespace}`")
