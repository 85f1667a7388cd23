"""Application_manager's side effects: Applications in Kubernetes, models in wadm.

In: actions of ``decide``. Out: writes to Kubernetes, requests to wadm. Called by ``keeping``. Invariants: what is
changed or deleted is the very object that was read; wadm is given the manifest that was decided on; what wadm
acknowledged is awaited in the store before anything else is decided. ``keeping`` asks ``hold`` before a deletion.
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, Final, assert_never

from application_manager.asking import asking
from application_manager.domain.actions import (
    Action,
    AddFinalizer,
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
from application_manager.domain.decide import APPLICATIONS as COUNTED
from application_manager.domain.placement import name_of
from application_manager.domain.resources import make_application, make_spec_patch
from application_manager.domain.views import ApplicationView, read_manifest, view_application
from application_manager.gather import Awaited, Known, World
from application_manager.tombstones import Tombstone, Tombstones
from trellis import names
from trellis.kube.breaker import Breaker
from trellis.kube.client import Kube
from trellis.kube.errors import NotFound
from trellis.kube.informer import Informer
from trellis.kube.recorder import EventRecorder, ObjectRef
from trellis.kube.resources import APPLICATIONS, HOST_CONFIGS, Manifest
from trellis.lattice.connection.link import LinkAwayError
from trellis.lattice.domain.projection import VERSION, Projection, project
from trellis.lattice.domain.subjects import SubjectError
from trellis.lattice.wadm.client import Wadm
from trellis.limits.breaker import Destruction
from trellis.telemetry import get_logger

_UNTOUCHED: Final = Awaited(None, None, gone=False, until=0.0)
_log = get_logger(__name__)


class Outdated(Exception):  # noqa: N818 - it is no error
    """The object or the model is another by now, which is heard, and then decided on."""


class NotTaken(Exception):  # noqa: N818 - named as what happened
    """The API server made something else of a manifest than wadm has: writing it again would never end."""


@dataclass(frozen=True, slots=True)
class Effects:
    """Where actions go."""

    kube: Kube
    recorder: EventRecorder
    known: Known
    applications: Informer[ApplicationView]
    tombstones: Tombstones
    breaker: Breaker

    async def hold(self, view: ApplicationView) -> float | None:
        """Return None if an Application may be deleted on the other side, else when to ask the circuit breaker again.

        Raises:
            KubeError: no certain answer.
        """
        what = "deletion of an application"
        kind = APPLICATIONS
        target = Destruction(COUNTED, view.name, view.uid, what, kind.api_version, kind.kind, view.namespace)
        return await self.breaker.hold(target)

    async def apply(self, world: World, actions: Sequence[Action]) -> None:
        """Carry out actions about one application, in order; recording is part of its status.

        Raises:
            KubeError: a write was refused or not answered; what follows it was not done.
            LinkAwayError: wadm does not answer.
            WadmRefusedError: wadm says no.
            Outdated: something changed meanwhile.
            NotTaken: the API server changed a manifest.
        """
        for action in actions:
            world = await self._one(world, action)

    async def _one(self, world: World, action: Action) -> World:
        """Carry out one action; return the world that the next is made from."""
        match action:
            case Record():
                pass  # part of the status
            case AddFinalizer():
                view = _view(world)
                written = await self._finalizers(view, [*view.finalizers, names.FINALIZER_APPLICATIONS])
                return replace(world, view=view_application(written))
            case RemoveFinalizer():
                await self._let_go(world, action)
            case CreateObject():
                await self._create(world, action.version)
            case WriteSpec():
                await self._write(world, action.version)
            case DeleteObject():
                await self._delete(world)
            case Put() | Deploy() | Undeploy() | DeleteModel():
                with asking(self.kube.telemetry, action):
                    await self._tell_wadm(world, action)
            case _:
                assert_never(action)
        return world

    async def release(self, views: Sequence[ApplicationView]) -> None:
        """Take our finalizer from objects: nobody will be there to see to it."""
        for view in views:
            if view.object.finalizer:
                await self._without_finalizer(view)

    async def status(self, world: World, view: ApplicationView, patch: Manifest) -> None:
        """Write what of a status is new."""
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
            self.applications.wrote(written, view)
        _log.debug("status written", application=str(world.key), fields=sorted(patch))

    async def event(self, view: ApplicationView, reason: str, message: str) -> None:
        """Tell people, by an Event on an Application."""
        regarding = ObjectRef(APPLICATIONS.api_version, APPLICATIONS.kind, view.name, view.uid, view.namespace)
        await self.recorder.record(regarding=regarding, type="Warning", reason=reason, message=message)

    async def warn_home(self, world: World, reason: str, message: str) -> None:
        """Tell people of what has no object, by an Event on the group whose namespace is its home."""
        groups = [one for one in self.known.by_lattice.get(world.key.mark, {}).values() if one.namespace == world.home]
        for group in sorted(groups, key=lambda one: (one.created, one.key))[:1]:
            regarding = ObjectRef(HOST_CONFIGS.api_version, HOST_CONFIGS.kind, group.name, group.uid, group.namespace)
            await self.recorder.record(regarding=regarding, type="Warning", reason=reason, message=message)

    async def bury(self, view: ApplicationView, lattice: str, bucket: str, revision: int, why: str) -> None:
        """Remember that an object was let go while wadm has it, and say so."""
        await self.tombstones.bury(Tombstone(lattice, view.application, bucket, revision))
        message = f"{why}: wadm's lattice {lattice} keeps application {view.application}; remove it there with wash"
        await self.event(view, "LetGo", message)
        _log.warning("an Application was let go", application=view.key, lattice=lattice, reason=why)

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

    async def _let_go(self, world: World, action: RemoveFinalizer) -> None:
        view, base = _view(world), _view(world).object.base
        if action.tombstone and base is not None:
            await self.bury(view, view.shown, base.bucket, revision_of(view), action.said.message)
        elif self.known.following.ours(world.key.mark) and action.said.reason is Reason.DELETED:
            await self._delete_for_sure(world)
        await self._without_finalizer(view)
        _log.info("Application let go", application=view.key, reason=action.said.reason.value)

    async def _delete_for_sure(self, world: World) -> None:
        """Let wadm delete what it may have been given since its storage was read: nobody would do so afterwards.

        What was never recorded need not be there, so it is let go too where wadm does not answer.
        """
        try:
            await self._wadm(world).delete(world.key.name)
        except (LinkAwayError, SubjectError):
            if _view(world).object.base is not None:
                raise

    async def _without_finalizer(self, view: ApplicationView) -> Manifest | None:
        self.known.let_go.add(view.uid)
        left = [one for one in view.finalizers if one != names.FINALIZER_APPLICATIONS]
        with contextlib.suppress(NotFound):
            return await self._finalizers(view, left)
        return None

    async def _delete(self, world: World) -> None:
        """Take the finalizer away, then delete: were it deleted first, wadm would lose what is put there meanwhile."""
        view = _view(world)
        written = await self._without_finalizer(view)
        if written is not None:
            version = written["metadata"]["resourceVersion"]
            with contextlib.suppress(NotFound):
                await self.kube.delete(APPLICATIONS, view.name, view.namespace, uid=view.uid, resource_version=version)
        _log.info("Application deleted, as it was in wadm", application=view.key)

    async def _create(self, world: World, version: str) -> None:
        held = _held(world, version)
        lattice = name_of(world.key.mark)
        name = self._free_name(world)
        made = await self.kube.create(
            APPLICATIONS,
            make_application(world.home, name, lattice, held, version),
            field_manager=names.FIELD_MANAGER_WADM,
        )
        self.applications.wrote(made, None)
        _log.info("Application made, as it is in wadm", application=f"{world.home}/{name}", version=version)

    def _free_name(self, world: World) -> str:
        """Return the name for a new object: the second one if another application has the first."""
        name = names.application_object(world.key.name)
        taken = self.known.applications.get(f"{world.home}/{name}")
        return name if taken is None else names.second_application_object(world.key.name, world.key.mark)

    async def _write(self, world: World, version: str) -> None:
        view, held = _view(world), _held(world, version)
        item = await self._read(view)
        base = view.object.base
        patch = make_spec_patch(item, held, version, 0 if base is None else base.serial)
        read = {"uid": view.uid, "resourceVersion": view.resource_version}
        written = await self.kube.merge_patch(
            APPLICATIONS,
            view.name,
            patch | {"metadata": patch["metadata"] | read},
            view.namespace,
            field_manager=names.FIELD_MANAGER_WADM,
        )
        self.applications.wrote(written, view)
        if read_manifest(written).digest != held.digest:
            raise NotTaken(f"Kubernetes makes something else of wadm's version {version} of {view.application}")
        _log.info("Application changed, as it was in wadm", application=view.key, version=version)

    async def _read(self, view: ApplicationView) -> Manifest:
        """Return the object as it is in the view, with its manifest."""
        try:
            item = await self.kube.get(APPLICATIONS, view.name, view.namespace)
        except NotFound:
            raise Outdated from None
        read = (item["metadata"]["uid"], item["metadata"]["resourceVersion"])
        if read != (view.uid, view.resource_version):
            raise Outdated
        return item

    async def _tell_wadm(self, world: World, action: Put | Deploy | Undeploy | DeleteModel) -> None:
        wadm, key = self._wadm(world), world.key
        if world.view is not None and world.view.version_of_wadm and isinstance(action, Put | Deploy):
            await self._without_version(world.view)
            raise Outdated
        awaited = self.known.awaited.get(key, _UNTOUCHED)
        match action:
            case Put(version=version):
                item = await self._read(_view(world))
                held = world.model.versions if world.model is not None else ()
                await wadm.put(read_manifest(item).under(version), [manifest for _, manifest in held])
                self.known.unlisted.pop(key, None)  # wadm has tried to list it: the store may show that a moment later
                if action.said.reason is Reason.RESTORED:  # whoever deleted it with wash is to know
                    await self.event(_view(world), Reason.RESTORED.value, f"put again: {action.said.message}")
                awaited = replace(awaited, version=version)
            case Deploy(version=version):
                self.known.told[key] = version  # also if the answer gets lost
                if await wadm.deploy(key.name, version) is None:
                    raise Outdated
                awaited = replace(awaited, deployed=version)
            case Undeploy():
                self.known.told[key] = ""
                await wadm.undeploy(key.name)
                awaited = replace(awaited, deployed="")
            case DeleteModel():
                await wadm.delete(key.name)
                awaited = replace(_UNTOUCHED, gone=True)
        self.known.awaited[key] = replace(awaited, until=time.monotonic() + self.known.timings.awaited)
        _log.info("wadm was told", application=str(key), action=type(action).__name__, reason=action.said.reason.value)

    async def _without_version(self, view: ApplicationView) -> None:
        """Take what wadm calls its version from an object that has something else now, and the mark that we wrote."""
        gone = {"annotations": dict.fromkeys((VERSION, names.ANNOTATION_WRITTEN))}
        patch = {"metadata": {"uid": view.uid, "resourceVersion": view.resource_version} | gone}
        written = await self.kube.merge_patch(
            APPLICATIONS, view.name, patch, view.namespace, field_manager=names.FIELD_MANAGER_WADM
        )
        self.applications.wrote(written, view)

    def _wadm(self, world: World) -> Wadm:
        mark = world.key.mark
        if not self.known.following.ours(mark):
            raise Outdated  # another cluster took the lattice meanwhile
        wadm = self.known.following.wadm(mark)
        if wadm is None:
            raise LinkAwayError(f"lattice {name_of(mark)} is not followed yet")
        return wadm


def revision_of(view: ApplicationView) -> int:
    """Return the revision of wadm's entry when both sides were equal last."""
    base = view.object.base
    return 0 if base is None else base.revision


def _view(world: World) -> ApplicationView:
    assert world.view is not None  # decided so
    return world.view


def _held(world: World, version: str) -> Projection:
    assert world.model is not None  # decided so
    manifests: dict[str, Any] = dict(world.model.versions)
    return project(manifests[version], world.key.name)
