"""Side effects of application_manager: Applications in Kubernetes, models in wadm.

In: actions of ``decide``. Out: writes to Kubernetes, requests to wadm; requests and acknowledgements are recorded in
``cache``. Called by ``reconciler``, which calls ``admit`` before a deletion. Invariants: writes and deletions have the
preconditions uid and resourceVersion of the object that was read; wadm receives the manifest that was decided on.
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Final, assert_never

from opentelemetry.trace import SpanKind

from application_manager.cache import Cache
from application_manager.domain import decide as deciding
from application_manager.domain.actions import (
    AcceptRemoval,
    Action,
    AddFinalizer,
    AskOfWadm,
    CreateObject,
    DeleteModel,
    DeleteObject,
    Deploy,
    Put,
    Reason,
    Record,
    RemoveFinalizer,
    Undeploy,
    WriteSpec,
)
from application_manager.domain.resources import make_application, make_spec_patch
from application_manager.domain.snapshot import Snapshot
from application_manager.domain.views import ApplicationView, Key, read_manifest, view_application
from application_manager.timings import Timings
from application_manager.tombstones import Tombstone, Tombstones
from trellis import names
from trellis.kube.breaker import Breaker
from trellis.kube.client import Kube
from trellis.kube.errors import Conflict, KubeError, NotFound
from trellis.kube.informer import Informer
from trellis.kube.recorder import EventRecorder, ObjectRef
from trellis.kube.refusals import is_refused
from trellis.kube.resources import APPLICATIONS, HOST_CONFIGS, Manifest
from trellis.lattice.connection.lattice_connection import NatsUnavailableError
from trellis.lattice.domain.group_views import lattice_name
from trellis.lattice.domain.projection import VERSION, Projection, project
from trellis.lattice.domain.subjects import SubjectError
from trellis.lattice.wadm.client import Wadm
from trellis.limits.breaker import Deletion
from trellis.telemetry import get_logger

_SPANS: Final = {Put: "wadm put", Deploy: "wadm deploy", Undeploy: "wadm undeploy", DeleteModel: "wadm delete"}
"""Names of the spans of requests; wadm propagates no trace context."""

_log = get_logger(__name__)


class Outdated(Exception):  # noqa: N818 - not an error
    """The object or the model changed in the meantime; its watch triggers the next reconcile."""


class ManifestAltered(Exception):  # noqa: N818 - named after the event
    """The API server changed a manifest of wadm, so that another write of it would never converge."""


@dataclass(frozen=True, slots=True)
class Effects:
    """Executes actions."""

    kube: Kube
    recorder: EventRecorder
    cache: Cache
    applications: Informer[ApplicationView]
    tombstones: Tombstones
    breaker: Breaker
    timings: Timings = Timings()

    async def admit(self, view: ApplicationView) -> float | None:
        """Return None if the application may be deleted on the other side, else seconds until the next check.

        Raises:
            KubeError: the state of the circuit breaker is unknown.
        """
        what = "deletion of an application"
        kind = APPLICATIONS
        target = Deletion(deciding.APPLICATIONS, view.name, view.uid, what, kind.api_version, kind.kind, view.namespace)
        return await self.breaker.admit(target)

    async def apply(self, snapshot: Snapshot, actions: Sequence[Action]) -> None:
        """Apply actions to one application, in order; Record is part of the status.

        Raises:
            KubeError: a write was rejected or not answered; later actions were not applied.
            NatsUnavailableError: wadm does not answer.
            WadmRefusedError: wadm rejects the request.
            Outdated: the object or the model changed in the meantime.
            ManifestAltered: the API server changed a manifest.
        """
        written: Manifest | None = None  # the object as this run wrote it
        for action in actions:
            if isinstance(action, AddFinalizer):
                view = _view(snapshot)
                written = await self._finalizers(view, [*view.finalizers, names.FINALIZER_APPLICATIONS])
                snapshot = replace(snapshot, view=view_application(written))
            else:
                await self._apply_action(snapshot, action, written)

    async def _apply_action(self, snapshot: Snapshot, action: Action, written: Manifest | None) -> None:
        """Apply one action. ``written``: the object with its manifest, if a former action wrote it."""
        match action:
            case AddFinalizer() | Record():
                pass  # ``apply`` adds the finalizer; a record is part of the status
            case RemoveFinalizer():
                await self._remove_finalizer(snapshot, action)
            case AcceptRemoval():
                await self._accept_removal(snapshot, action)
            case CreateObject():
                await self._create(snapshot, action.version)
            case WriteSpec():
                await self._write(snapshot, action.version)
            case DeleteObject():
                await self._delete(snapshot)
            case Put() | Deploy() | Undeploy() | DeleteModel():
                with self.kube.telemetry.tracer.start_as_current_span(_SPANS[type(action)], kind=SpanKind.CLIENT):
                    await self._ask_wadm(snapshot, action, written)
            case _:
                assert_never(action)

    async def status(self, key: Key, view: ApplicationView, patch: Manifest) -> None:
        """Write the changed fields of a status."""
        read = {"uid": view.uid, "resourceVersion": view.resource_version}
        with contextlib.suppress(NotFound):
            written = await self.kube.merge_patch(
                APPLICATIONS,
                view.name,
                {"metadata": read, "status": patch},
                view.namespace,
                field_manager=names.FIELD_MANAGER_APPLICATION_MANAGER,
                subresource="status",
            )
            self.cache.reported(view.uid, written["metadata"]["resourceVersion"])
            self.applications.wrote(written, view)
        _log.debug("status written", application=str(key), fields=sorted(patch))

    async def event(self, view: ApplicationView, reason: str, message: str) -> None:
        """Record a warning Event on an Application."""
        regarding = ObjectRef(APPLICATIONS.api_version, APPLICATIONS.kind, view.name, view.uid, view.namespace)
        await self.recorder.record(regarding=regarding, type="Warning", reason=reason, message=message)

    async def warn_home(self, snapshot: Snapshot, reason: str, message: str) -> None:
        """Record a warning Event on the oldest host group in the home namespace, for an application without object."""
        groups = [
            item for item in self.cache.groups_of(snapshot.key.lattice_id).values() if item.namespace == snapshot.home
        ]
        for group in sorted(groups, key=lambda item: (item.created, item.key))[:1]:
            regarding = ObjectRef(HOST_CONFIGS.api_version, HOST_CONFIGS.kind, group.name, group.uid, group.namespace)
            await self.recorder.record(regarding=regarding, type="Warning", reason=reason, message=message)

    async def _accept_removal(self, snapshot: Snapshot, action: AcceptRemoval) -> None:
        if action.revision is not None:
            await self._store_tombstone(action.view, action.revision, action.announcement.message)
        self.cache.advance(snapshot.key, lambda progress: progress.removal_accepted(action.view))

    async def _store_tombstone(self, view: ApplicationView, revision: int, reason: str) -> None:
        """Store a tombstone for an object that is deleted while wadm has its application, and report it."""
        lattice, base = view.shown, view.object.base
        assert base is not None  # ensured by decide
        await self.tombstones.store_tombstone(Tombstone(lattice, view.application, base.bucket, revision))
        message = f"{reason}: wadm's lattice {lattice} keeps application {view.application}; remove it there with wash"
        await self.event(view, "FinalizerRemoved", message)
        _log.warning("Application finalizer removed without wadm", application=view.key, lattice=lattice, reason=reason)

    async def _finalizers(self, view: ApplicationView, wanted: list[str]) -> Manifest:
        metadata = {"uid": view.uid, "resourceVersion": view.resource_version, "finalizers": wanted}
        written = await self.kube.merge_patch(
            APPLICATIONS,
            view.name,
            {"metadata": metadata},
            view.namespace,
            field_manager=names.FIELD_MANAGER_APPLICATION_MANAGER,
        )
        if wanted or not view.object.deleting:
            self.applications.wrote(written, view)
        return written

    async def _remove_finalizer(self, snapshot: Snapshot, action: RemoveFinalizer) -> None:
        view, base = _view(snapshot), _view(snapshot).object.base
        if action.tombstone and base is not None:
            await self._store_tombstone(view, base.revision, action.announcement.message)
        elif self.cache.followers.owns(snapshot.key.lattice_id) and action.announcement.reason is Reason.DELETED:
            await self._delete_for_sure(snapshot)
        await self._without_finalizer(view)
        _log.info("Application finalizer removed", application=view.key, reason=action.announcement.reason.value)

    async def _delete_for_sure(self, snapshot: Snapshot) -> None:
        """Delete the application in wadm, as a request since the last read of its storage may have created it.

        For an object without a recorded base, an unreachable wadm does not block the removal of the finalizer.
        """
        try:
            await self._wadm(snapshot).delete(snapshot.key.name)
        except (NatsUnavailableError, SubjectError):
            if _view(snapshot).object.base is not None:
                raise

    async def _without_finalizer(self, view: ApplicationView) -> Manifest | None:
        self.cache.releasing(view.uid)
        left = [finalizer for finalizer in view.finalizers if finalizer != names.FINALIZER_APPLICATIONS]
        try:
            return await self._finalizers(view, left)
        except NotFound:
            return None
        except KubeError as error:
            if is_refused(error) or isinstance(error, Conflict):  # after any other error the write may have succeeded
                self.cache.not_released(view.uid)
            raise

    async def _delete(self, snapshot: Snapshot) -> None:
        """Remove the finalizer, then delete the object: the other order could lose a concurrent change in wadm."""
        view = _view(snapshot)
        written = await self._without_finalizer(view)
        if written is not None:
            version = written["metadata"]["resourceVersion"]
            with contextlib.suppress(NotFound):
                await self.kube.delete(APPLICATIONS, view.name, view.namespace, uid=view.uid, resource_version=version)
        _log.info("Application deleted after its deletion in wadm", application=view.key)

    async def _create(self, snapshot: Snapshot, version: str) -> None:
        preserved = _preserved_manifest(snapshot, version)
        lattice = lattice_name(snapshot.key.lattice_id)
        name = self._free_name(snapshot)
        made = await self.kube.create(
            APPLICATIONS,
            make_application(snapshot.home, name, lattice, preserved, version),
            field_manager=names.FIELD_MANAGER_WADM,
        )
        self.applications.wrote(made, None)
        _log.info("Application created from wadm", application=f"{snapshot.home}/{name}", version=version)

    def _free_name(self, snapshot: Snapshot) -> str:
        """Return the name for a new object; an alternative name if another application has the first one."""
        name = names.application_object(snapshot.key.name)
        existing = self.cache.applications.get(f"{snapshot.home}/{name}")
        return name if existing is None else names.second_application_object(snapshot.key.name, snapshot.key.lattice_id)

    async def _write(self, snapshot: Snapshot, version: str) -> None:
        view, preserved = _view(snapshot), _preserved_manifest(snapshot, version)
        item = await self._read(view)
        base = view.object.base
        patch = make_spec_patch(item, preserved, version, 0 if base is None else base.serial)
        read = {"uid": view.uid, "resourceVersion": view.resource_version}
        written = await self.kube.merge_patch(
            APPLICATIONS,
            view.name,
            patch | {"metadata": patch["metadata"] | read},
            view.namespace,
            field_manager=names.FIELD_MANAGER_WADM,
        )
        self.applications.wrote(written, view)
        if read_manifest(written).digest != preserved.digest:
            raise ManifestAltered(f"Kubernetes changes the manifest of wadm's version {version} of {view.application}")
        _log.info("Application updated from wadm", application=view.key, version=version)

    async def _read(self, view: ApplicationView) -> Manifest:
        """Return the object with its manifest, at the resourceVersion of the view."""
        try:
            item = await self.kube.get(APPLICATIONS, view.name, view.namespace)
        except NotFound:
            raise Outdated from None
        read = (item["metadata"]["uid"], item["metadata"]["resourceVersion"])
        if read != (view.uid, view.resource_version):
            raise Outdated
        return item

    async def _ask_wadm(self, snapshot: Snapshot, action: AskOfWadm, written: Manifest | None) -> None:
        wadm, key = self._wadm(snapshot), snapshot.key
        if snapshot.view is not None and snapshot.view.version_of_wadm and isinstance(action, Put | Deploy):
            await self._without_version(snapshot.view)
            raise Outdated
        self.cache.advance(key, lambda progress: progress.with_request(action))
        match action:
            case Put(version=version):
                item = written or await self._read(_view(snapshot))
                versions = snapshot.model.versions if snapshot.model is not None else ()
                await wadm.put(read_manifest(item).under(version), [manifest for _, manifest in versions])
            case Deploy(version=version):
                if await wadm.deploy(key.name, version) is None:
                    raise Outdated
            case Undeploy():
                await wadm.undeploy(key.name)
            case DeleteModel():
                await wadm.delete(key.name)
        until = time.monotonic() + self.timings.awaited
        self.cache.advance(key, lambda progress: progress.acknowledged(action, until))
        _log.info(
            "wadm request sent",
            application=str(key),
            action=type(action).__name__,
            reason=action.announcement.reason.value,
        )
        if isinstance(action, Put) and action.announcement.reason is Reason.RESTORED:
            # For the user who deleted it with wash.
            message = f"stored in wadm again: {action.announcement.message}"
            await self.event(_view(snapshot), Reason.RESTORED.value, message)

    async def _without_version(self, view: ApplicationView) -> None:
        """Remove wadm's version and the last-synced annotation from an object whose manifest changed since."""
        removal = {"annotations": dict.fromkeys((VERSION, names.ANNOTATION_LAST_SYNCED))}
        patch = {"metadata": {"uid": view.uid, "resourceVersion": view.resource_version} | removal}
        written = await self.kube.merge_patch(
            APPLICATIONS, view.name, patch, view.namespace, field_manager=names.FIELD_MANAGER_WADM
        )
        self.applications.wrote(written, view)

    def _wadm(self, snapshot: Snapshot) -> Wadm:
        lattice_id = snapshot.key.lattice_id
        if not self.cache.followers.owns(lattice_id):
            raise Outdated  # another cluster took the lattice in the meantime
        wadm = self.cache.followers.wadm(lattice_id)
        if wadm is None:
            raise NatsUnavailableError(f"lattice {lattice_name(lattice_id)} is not followed yet")
        return wadm


def _view(snapshot: Snapshot) -> ApplicationView:
    assert snapshot.view is not None  # ensured by decide
    return snapshot.view


def _preserved_manifest(snapshot: Snapshot, version: str) -> Projection:
    assert snapshot.model is not None  # ensured by decide
    return project(dict(snapshot.model.versions)[version].read(), snapshot.key.name)
