"""Decides about the Services of one application in one namespace.

Pure: a snapshot in, actions with reasons out. Called by ``app``. Invariants: a Service of another owner is never
changed; a reflected Service is deleted only if its application is known not to have it; endpoints exist before a
Service routes to them only; if applications of two lattices have the same name, each keeps its Service.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, Final

from service_reflector.domain.actions import (
    Action,
    CreateService,
    DeleteSlice,
    DropOthers,
    PatchService,
    RemoveFinalizer,
    RemoveService,
    Warn,
    WarnService,
    WriteSlice,
)
from service_reflector.domain.resources import ReflectedService, make_service_patch, port_names
from service_reflector.domain.routes import route_actions
from service_reflector.domain.slices import Slice, endpoint_sets_of, make_empty, pack, with_address_keeper
from service_reflector.domain.snapshot import Claim, Snapshot
from trellis import names
from trellis.lattice.domain.group_views import lattice_name
from trellis.lattice.domain.preserved import belongs_to, read_preserved
from trellis.lattice.domain.service_views import ServiceView
from trellis.limits.breaker import Deletion

SERVICES: Final = "services"
"""Kind of the circuit breaker: Services of applications."""
PORTS_MOST: Final = 100
"""Maximum number of ports of a Service: the limit of an EndpointSlice; the proxy of each node has rules for each."""


def decide(snapshot: Snapshot) -> list[Action]:
    """Return the actions, in order."""
    if snapshot.remove_finalizers:
        return list(_uninstall(snapshot))
    actions: list[Action] = [Warn(item.group, item.reason, item.message) for item in snapshot.refused]
    for claim in snapshot.claims:
        actions += _warnings(claim)
    service_names = _service_names(snapshot)
    for claim in snapshot.claims:
        if claim.application.listeners and claim.options.wanted:
            actions += _reflect(snapshot, claim, service_names.get(claim.lattice, ""))
    actions += _removals(snapshot, service_names)
    actions += [
        WarnService(service, "CopiedService", _copied(service))
        for service in snapshot.services.values()
        if service.original
    ]
    for preserved in snapshot.preserved:
        actions.append(WarnService(preserved.service, preserved.reason, preserved.message))
        actions += [Warn(group, preserved.reason, preserved.message) for group in preserved.groups]
    return actions


def _uninstall(snapshot: Snapshot) -> Iterator[Action]:
    """Yield the actions that leave Services to Kubernetes: they own all of their slices and have no finalizer."""
    for name, pieces in snapshot.slices.items():
        there = snapshot.services.get(name)
        for piece in filter(lambda item: item.preserved, pieces):
            if there is not None and there.application:
                yield WriteSlice(
                    name, Slice(piece.name, name, piece.family, piece.ports, piece.endpoints, piece), "Uninstalled"
                )
            else:
                yield DeleteSlice(piece, "Uninstalled")
    for service in snapshot.services.values():
        if service.application:
            yield from _remove_finalizer(service, "Uninstalled", "this service is to be uninstalled")


def reflected_services(snapshot: Snapshot) -> dict[str, ReflectedService]:
    """Return the target state of each claim's Service, by name; without those whose name another owner has."""
    service_names = _service_names(snapshot)
    found = [
        _wanted(snapshot, claim, service_names[claim.lattice])
        for claim in snapshot.claims
        if claim.application.listeners
        and claim.options.wanted
        and service_names.get(claim.lattice)
        and not claim.remembered
    ]
    return {target.name: target for target in found}


def _service_names(snapshot: Snapshot) -> dict[str, str]:
    """Return by lattice the name of its present or future Service, "" if another owner has the name."""
    plain = names.service_name(snapshot.name)
    service_names = {
        snapshot.lattice_of(service): service.name
        for service in sorted(
            snapshot.services.values(), key=lambda item: (item.name != plain, item.name), reverse=True
        )
        if service.application
    }
    there = snapshot.services.get(plain)
    foreign = there is not None and not there.application and not there.of_other_controller
    without = [
        claim
        for claim in snapshot.claims
        if claim.lattice not in service_names and claim.application.listeners and claim.options.wanted
    ]
    for claim in without:
        name = _former_name(snapshot, claim.lattice)
        if name and name not in service_names.values() and not (foreign and name == plain):
            service_names[claim.lattice] = name
    # The name and the addresses of a deleted Service are reserved until its lattice has answered.
    occupied = plain in service_names.values() or any(
        item in snapshot.awaited for item in snapshot.slices.get(plain, ())
    )
    for claim in without:
        if claim.lattice in service_names:
            continue
        if foreign:
            service_names[claim.lattice] = ""
        elif occupied:
            service_names[claim.lattice] = names.second_service_name(snapshot.name, claim.lattice)
        else:
            service_names[claim.lattice], occupied = plain, True
    return service_names


def _former_name(snapshot: Snapshot, lattice: str) -> str:
    """Return the name of the deleted Service of a lattice's application, "" if that is not known."""
    for name, pieces in snapshot.slices.items():
        for preserved in filter(None, (read_preserved(piece.preserved) for piece in pieces)):
            its = (preserved.application, preserved.lattice) == (snapshot.name, lattice)
            if its and names.may_be_service_of(name, snapshot.name):
                return name
    return ""


def _wanted(snapshot: Snapshot, claim: Claim, name: str) -> ReflectedService:
    there = snapshot.services.get(name)
    former = there.manifest() if there is not None else {}
    ports = port_names(
        claim.application.listeners[:PORTS_MOST], (former.get("annotations") or {}).get(names.ANNOTATION_LISTENERS, "")
    )
    return ReflectedService(
        snapshot.namespace,
        name,
        claim.application.name,
        claim.lattice,
        claim.application.version,
        claim.options,
        ports,
        claim.groups,
    )


def _reflect(snapshot: Snapshot, claim: Claim, name: str) -> Iterator[Action]:
    """Yield the actions that bring a claim's Service and its slices to their target state."""
    if not name:
        yield from _name_taken(snapshot, claim)
        return
    target = _wanted(snapshot, claim, name)
    there = snapshot.services.get(name)
    if there is not None and there.deleting:
        # A new one is created after the deletion. The addresses of one of a former version are not on a slice yet.
        if not snapshot.terminating:
            yield from _slices(snapshot, claim, target, there)
        yield from _remove_finalizer(there, "DeletedByHand", "it was deleted, and its addresses are kept")
        return
    slices = list(_slices(snapshot, claim, target, there))
    if claim.remembered:
        yield from slices
        if there is not None:
            yield from _remove_finalizer(there, "AddressesKept", "a slice keeps its addresses")
        return
    if there is None:
        if not snapshot.terminating:
            yield CreateService(target, f"application {claim.application.name} listens", _former(snapshot, target))
            yield from slices
        return
    # Endpoints of Trellis are written before those of another controller are deleted.
    yield from slices
    patch = make_service_patch(target, there.manifest(), adopting=there.of_other_controller)
    if patch:
        yield PatchService(target, there, patch, f"application {claim.application.name} is at {target.version}")
    yield from route_actions(target, there.uid, snapshot.routes.get(name))
    annotations = there.manifest().get("annotations") or {}
    if there.of_other_controller or annotations.get(names.ANNOTATION_ADOPTING):
        yield DropOthers(name)


def _name_taken(snapshot: Snapshot, claim: Claim) -> Iterator[Action]:
    if claim.group is not None:
        message = (
            f"Service {snapshot.namespace}/{names.service_name(snapshot.name)} is not managed by Trellis, "
            f"so application {snapshot.name} has no Service: rename one of them"
        )
        yield Warn(claim.group, "ServiceNameTaken", message)


def _former(snapshot: Snapshot, target: ReflectedService) -> Mapping[str, Any] | None:
    """Return the spec of the deleted Service that this one replaces, None if it is not known."""
    for item in snapshot.slices.get(target.name, ()):
        preserved = read_preserved(item.preserved)
        if preserved is not None and (preserved.application, preserved.lattice) == (target.application, target.lattice):
            return preserved.spec
    return None


def _remove_finalizer(there: ServiceView, reason: str, message: str) -> Iterator[Action]:
    if names.WASMCLOUD_OPERATOR_SERVICE in there.finalizers:
        yield RemoveFinalizer(there, reason=reason, message=message)


def _slices(snapshot: Snapshot, claim: Claim, target: ReflectedService, there: ServiceView | None) -> Iterator[Action]:
    found, endpoint_sets = snapshot.slices.get(target.name, ()), endpoint_sets_of(claim, target.ports)
    pieces = pack(target.name, endpoint_sets, found) or [make_empty(target.name, endpoint_sets[0])]
    wanted = with_address_keeper(pieces, target.application, target.lattice)
    for item in wanted:
        if there is None or item.differs(there):
            yield WriteSlice(target.name, item)
    stay = {item.name for item in wanted}
    yield from (DeleteSlice(item) for item in found if item.name not in stay)


def _removals(snapshot: Snapshot, service_names: dict[str, str]) -> Iterator[Action]:
    """Yield the deletions of objects without a claim, unless it is not known whether they have one."""
    claimed = {
        service_names.get(claim.lattice)
        for claim in snapshot.claims
        if claim.application.listeners and claim.options.wanted
    }
    for service in snapshot.services.values():
        if service.name in claimed:
            continue
        if service.application and snapshot.lattice_of(service) not in snapshot.unknown:
            lattice = lattice_name(service.lattice)
            message = f"application {service.application} of lattice {lattice} is not deployed, or has no Service here"
            if service.deleting:
                yield from _remove_finalizer(service, "Unpublished", message)
            else:
                yield RemoveService(service, "Unpublished", message, _deletion(service))
        elif service.deleting and (snapshot.terminating or (service.of_other_controller and snapshot.sure)):
            yield from _remove_finalizer(service, "NamespaceTerminating", "no Service is to exist here")
    for name, pieces in snapshot.slices.items():
        there = snapshot.services.get(name)
        for piece in pieces if name not in claimed else ():
            # Its Service is deleted and not re-created, and no Service owns it: no other controller removes it.
            left = piece.preserved and not (there is not None and belongs_to(piece, there.uid))
            if left and piece not in snapshot.awaited:
                yield DeleteSlice(piece, "Unpublished")


def _copied(service: ServiceView) -> str:
    return (
        f"its annotations are those of Service {service.original}, so it is a copy and is left unchanged; remove the "
        f"annotations of trellis.dev and the finalizer {names.WASMCLOUD_OPERATOR_SERVICE}, or delete it"
    )


def _deletion(service: ServiceView) -> Deletion:
    return Deletion(
        SERVICES, service.name, service.uid, "deletion of an application's Service", "v1", "Service", service.namespace
    )


def _warnings(claim: Claim) -> Iterator[Action]:
    if claim.group is None or not claim.options.wanted:
        return
    lattice = lattice_name(claim.lattice)
    for item in (*claim.application.unreachable, *claim.options.problems):
        message = f"application {claim.application.name} of lattice {lattice}: {item.message}"
        yield Warn(claim.group, item.reason, message)
    if (count := len(claim.application.listeners)) > PORTS_MOST:
        message = (
            f"application {claim.application.name} of lattice {lattice} listens on {count} ports: its Service has the"
        )
        yield Warn(claim.group, "TooManyPorts", f"{message} first {PORTS_MOST} only; split the application")
