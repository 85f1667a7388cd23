"""Side effects of service_reflector: Services, EndpointSlices, Kubernetes Events.

In: actions of ``decide``. Out: writes to Kubernetes. Called by ``app``. Invariants: no Service is deleted without
permission of the circuit breaker; changes and deletions have preconditions of the object that was read; new objects are
written by create, so that no object of another owner is changed.
"""

from __future__ import annotations

import contextlib
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, assert_never

from service_reflector.domain.actions import (
    Action,
    CreateService,
    DeleteRoute,
    DeleteSlice,
    DropOthers,
    PatchService,
    RemoveFinalizer,
    RemoveService,
    Warn,
    WarnService,
    WriteRoute,
    WriteSlice,
)
from service_reflector.domain.resources import make_service, make_slice, make_slice_body, make_ties
from service_reflector.domain.routes import make_route
from service_reflector.gather import Cache
from trellis import names
from trellis.kube.breaker import Breaker
from trellis.kube.client import Kube
from trellis.kube.errors import AlreadyExists, Forbidden, Invalid, NotFound
from trellis.kube.informer import Informer
from trellis.kube.reader import Selection
from trellis.kube.recorder import EventRecorder, ObjectRef
from trellis.kube.refusals import is_terminating
from trellis.kube.resources import ENDPOINT_SLICES, ENDPOINTS, HOST_CONFIGS, HTTP_ROUTES, SERVICES, Resource
from trellis.lattice.domain.group_views import GroupView
from trellis.lattice.domain.preserved import belongs_to, preserves_for
from trellis.lattice.domain.service_views import RouteView, ServiceView, SliceView, view_slice
from trellis.telemetry import get_logger

Manifest = dict[str, Any]

_log = get_logger(__name__)


@dataclass(frozen=True, slots=True)
class Effects:
    """The targets of actions."""

    kube: Kube
    recorder: EventRecorder
    cache: Cache
    services: Informer[ServiceView]
    slices: Informer[SliceView]
    routes: Informer[RouteView]
    breaker: Breaker

    async def apply(self, namespace: str, actions: Sequence[Action]) -> float | None:
        """Apply the actions on one key, in order, up to one after which a deletion has to complete first.

        Returns the seconds until the retry of a deletion that the circuit breaker pauses, None if there is none.

        Raises:
            KubeError: a write was refused or not answered; the actions after it were not applied.
        """
        again: list[float] = []
        for action in actions:
            if isinstance(action, RemoveService) and (wait := await self.breaker.admit(action.target)) is not None:
                again.append(wait)
            elif not await self._apply_action(namespace, action):
                break  # the watch reports the deletion, and the key is reconciled then
        return min(again, default=None)

    async def report(self, service: ServiceView | None, group: GroupView | None, reason: str, message: str) -> None:
        """Record a warning on a Service and on a host group."""
        if service is not None:
            await self._warn(ObjectRef("v1", "Service", service.name, service.uid, service.namespace), reason, message)
        if group is not None:
            ref = ObjectRef(HOST_CONFIGS.api_version, HOST_CONFIGS.kind, group.name, group.uid, group.namespace)
            await self._warn(ref, reason, message)

    async def _warn(self, regarding: ObjectRef, reason: str, message: str) -> None:
        await self.recorder.record(regarding=regarding, type="Warning", reason=reason, message=message)

    async def _apply_action(self, namespace: str, action: Action) -> bool:
        """Apply one action; return whether the next can follow at once."""
        match action:
            case CreateService():
                return await self._create(action)
            case PatchService():
                await self._patch(action.found, dict(action.patch), action.message)
            case RemoveFinalizer():
                await self._remove_finalizer(action)
            case RemoveService():
                await self._remove(action)
            case WriteSlice() | DeleteSlice() | WriteRoute() | DeleteRoute():
                return await self._child(namespace, action)
            case DropOthers():
                await self._drop_others(namespace, action.service)
            case Warn() | WarnService():
                service, group = (None, action.group) if isinstance(action, Warn) else (action.service, None)
                await self.report(service, group, action.reason, action.message)
            case _:
                assert_never(action)
        return True

    async def _child(self, namespace: str, action: WriteSlice | DeleteSlice | WriteRoute | DeleteRoute) -> bool:
        match action:
            case WriteSlice():
                return await self._write_slice(namespace, action)
            case WriteRoute():
                return await self._write_route(namespace, action)
            case DeleteSlice():
                await self._delete(ENDPOINT_SLICES, action.found)
            case DeleteRoute():
                await self._delete(HTTP_ROUTES, action.found)
        return True

    async def _create(self, action: CreateService) -> bool:
        target, former = action.target, action.former
        cached = self.cache.services.get(target.key)
        try:
            made = await self.kube.create(SERVICES, make_service(target, former))
        except Invalid:
            if former is None:
                raise
            # Another Service has the address, or the node port, by now.
            _log.warning("former addresses of the Service unavailable", service=target.key)
            made = await self.kube.create(SERVICES, make_service(target))
        except Forbidden as error:
            if is_terminating(error):
                return False
            raise
        _log.info("Service created", service=target.key, lattice=target.lattice, application=target.application)
        self.services.wrote(made, cached)
        await self.recorder.record(
            regarding=ObjectRef("v1", "Service", made["metadata"]["name"], made["metadata"]["uid"], target.namespace),
            type="Normal",
            reason="ServiceReflected",
            message=f"the Service reflects application {target.application} of lattice {target.lattice}",
        )
        return True

    async def _patch(self, found: ServiceView, patch: Manifest, message: str) -> None:
        read = {"uid": found.uid, "resourceVersion": found.resource_version}
        body = patch | {"metadata": read | (patch.get("metadata") or {})}
        written = await self.kube.merge_patch(
            SERVICES, found.name, body, found.namespace, field_manager=names.FIELD_MANAGER_SERVICE_REFLECTOR
        )
        self.services.wrote(written, found)
        _log.info("Service updated", service=found.key, message=message)

    async def _remove_finalizer(self, action: RemoveFinalizer) -> None:
        found = action.found
        left = [finalizer for finalizer in found.finalizers if finalizer != names.WASMCLOUD_OPERATOR_SERVICE]
        with contextlib.suppress(NotFound):
            await self.kube.merge_patch(
                SERVICES,
                found.name,
                {"metadata": {"uid": found.uid, "resourceVersion": found.resource_version, "finalizers": left}},
                found.namespace,
                field_manager=names.FIELD_MANAGER_SERVICE_REFLECTOR,
            )
        _log.info("Service finalizer removed", service=found.key, reason=action.reason, message=action.message)

    async def _remove(self, action: RemoveService) -> None:
        """Delete a Service; once the watch reports that, the slice with its addresses is deleted, too."""
        found = action.found
        with contextlib.suppress(NotFound):
            await self.kube.delete(
                SERVICES, found.name, found.namespace, uid=found.uid, resource_version=found.resource_version
            )
        if names.WASMCLOUD_OPERATOR_SERVICE not in found.finalizers:
            self.cache.deleted.add(found.uid)  # until the watch reports it
        _log.info("Service deleted", service=found.key, message=action.message)

    async def _write_slice(self, namespace: str, action: WriteSlice) -> bool:
        wanted, found = action.wanted, action.wanted.found
        service = self.cache.services.get(f"{namespace}/{action.service}")
        if service is None:
            return False  # it was deleted in the meantime
        ties = make_ties(wanted, service)
        if found is not None:
            no_longer = {"annotations": {names.ANNOTATION_PRESERVED: None}} if found.preserved else {}
            metadata = {"uid": found.uid, "resourceVersion": found.resource_version, **no_longer, **ties}
            with contextlib.suppress(NotFound):
                written = await self.kube.merge_patch(
                    ENDPOINT_SLICES,
                    wanted.name,
                    {"metadata": metadata, **make_slice_body(wanted)},
                    namespace,
                    field_manager=names.FIELD_MANAGER_SERVICE_REFLECTOR,
                )
                self.slices.wrote(written, found)
                return True
        body = make_slice(wanted, namespace, ties)
        try:
            made = await self.kube.create(ENDPOINT_SLICES, body)
        except AlreadyExists:
            if (relabelled := await self._relabel(body, service)) is None:
                raise
            made = relabelled
        self.slices.wrote(made, found)
        return True

    async def _relabel(self, body: Manifest, service: ServiceView) -> Manifest | None:
        """Write a slice of Trellis that lost the labels by which it is watched, and by which Services find it.

        Returns None if it has another owner: it neither belongs to the Service nor keeps addresses of its application.
        """
        metadata = body["metadata"]
        name, namespace = metadata["name"], metadata["namespace"]
        listing = await self.kube.list(ENDPOINT_SLICES, namespace, field_selector=f"metadata.name={name}")
        found = next((view_slice(item) for item in listing.items), None)
        if found is None or found.family != body["addressType"]:
            return None
        if not belongs_to(found, service.uid) and not preserves_for(found, service):
            return None
        read = {"uid": found.uid, "resourceVersion": found.resource_version}
        patch = {key: value for key, value in body.items() if key != "addressType"} | {"metadata": metadata | read}
        _log.info("EndpointSlice labels restored", service=service.key, slice=name)
        return await self.kube.merge_patch(
            ENDPOINT_SLICES, name, patch, namespace, field_manager=names.FIELD_MANAGER_SERVICE_REFLECTOR
        )

    async def _delete(self, res: Resource, found: SliceView | RouteView) -> None:
        with contextlib.suppress(NotFound):
            await self.kube.delete(
                res, found.name, found.namespace, uid=found.uid, resource_version=found.resource_version
            )

    async def _write_route(self, namespace: str, action: WriteRoute) -> bool:
        service, found = self.cache.services.get(f"{namespace}/{action.service}"), action.found
        if service is None:
            return False
        route = make_route(namespace, action.service, service.uid, dict(action.spec))
        if found is None:
            # In a patch, null removes a field. A new object has none to remove, and a schema may refuse null.
            route["spec"] = {field: value for field, value in route["spec"].items() if value is not None}
            self.routes.wrote(await self.kube.create(HTTP_ROUTES, route), None)
            return True
        read = {"uid": found.uid, "resourceVersion": found.resource_version}
        body = route | {"metadata": route["metadata"] | read}
        written = await self.kube.merge_patch(
            HTTP_ROUTES, found.name, body, namespace, field_manager=names.FIELD_MANAGER_SERVICE_REFLECTOR
        )
        self.routes.wrote(written, found)
        return True

    async def _drop_others(self, namespace: str, name: str) -> None:
        """Delete endpoints that wasmcloud-operator and Kubernetes created for the Service and no longer update."""
        selection = Selection(ENDPOINT_SLICES, namespace, f"{names.LABEL_SERVICE_NAME}={name}")
        async for page in self.kube.pages(selection):
            for item in page.items:
                metadata = item["metadata"]
                if (metadata.get("labels") or {}).get(names.LABEL_SLICE_MANAGED_BY) != names.SLICE_MANAGED_BY:
                    with contextlib.suppress(NotFound):
                        await self.kube.delete(
                            ENDPOINT_SLICES,
                            metadata["name"],
                            namespace,
                            uid=metadata["uid"],
                            resource_version=metadata["resourceVersion"],
                        )
        with contextlib.suppress(NotFound):
            # Kubernetes would mirror the Endpoints into a slice, because the Service has no selector any more.
            metadata = (await self.kube.get(ENDPOINTS, name, namespace))["metadata"]
            await self.kube.delete(
                ENDPOINTS, name, namespace, uid=metadata["uid"], resource_version=metadata["resourceVersion"]
            )
        service = self.cache.services.get(f"{namespace}/{name}")
        if service is not None:
            patch = {"metadata": {"annotations": {names.ANNOTATION_ADOPTING: None}}}
            await self._patch(service, patch, "endpoints of the former owner deleted")
