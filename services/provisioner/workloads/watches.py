"""The watches of Wasm pods, and of Events about refused pods, while a Shim provides a RuntimeClass.

In: the names of these RuntimeClasses. Out: filled ``WorkloadPods`` and ``RefusedCreations``, and a call per change.
Called by ``wiring``, as a background task. Invariants: without such a RuntimeClass nothing is watched; another set of
RuntimeClasses starts a list, which keeps the views of the pods that are still selected. Source: the API server has no
field selector for ``spec.runtimeClassName``, so the watch receives each pod, and drops those of other RuntimeClasses
when decoded.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial

from provisioner.workloads.pods import WorkloadPod, WorkloadPods
from provisioner.workloads.refused_creations import SELECTOR, RefusedCreation, RefusedCreations
from trellis.kube.changes import Change, ChangeKind
from trellis.kube.client import Kube
from trellis.kube.informer import Informer
from trellis.kube.resources import EVENTS, PODS
from trellis.read_model.wasm_pods.pod_shape import POD_SHAPE


@dataclass(eq=False)
class PodWatch:
    """Both informers. ``classes``: returns the present RuntimeClasses; ``on_change``: called after ``pods``.

    ``on_refusal``: called after ``refused``, for a change of an Event. ``on_known``: called when all pods are known, at
    first and after an interruption. ``settle``: seconds in which changes of Shims and RuntimeClasses are collected,
    because another set of them starts a list of all pods.
    """

    kube: Kube
    classes: Callable[[], frozenset[str]]
    on_change: Callable[[Change[WorkloadPod]], None]
    on_refusal: Callable[[Change[RefusedCreation]], None]
    on_known: Callable[[], None]
    settle: float
    refused: RefusedCreations
    pods: WorkloadPods = field(default_factory=WorkloadPods)
    _changed: asyncio.Event = field(default_factory=asyncio.Event)
    _informers: tuple[Informer[WorkloadPod], Informer[RefusedCreation]] | None = None

    @property
    def known(self) -> bool:
        """True if all pods of the RuntimeClasses are known, and Events, unless these may not be read."""
        if self._informers is None:
            return False
        pods, events = self._informers
        return pods.known and events.synced.is_set()

    def classes_changed(self) -> None:
        """Compare the RuntimeClasses: a Shim or a RuntimeClass has changed."""
        self._changed.set()

    async def run(self) -> None:
        """Watch until cancelled."""
        while True:
            classes = self.classes()
            try:
                async with asyncio.TaskGroup() as group:  # which ends with the first error of the watch
                    watching = group.create_task(self._watch(classes), name="watch of Wasm pods")
                    while self.classes() == classes:
                        await self._changed.wait()
                        await asyncio.sleep(self.settle)
                        self._changed.clear()
                    watching.cancel()
            finally:
                self._informers = None

    async def _watch(self, classes: frozenset[str]) -> None:
        if not classes:
            for key, pod in [*self.pods.objects.items()]:
                del self.pods.objects[key]
                self._take(Change(ChangeKind.DELETED, key, pod, None))
            for key, event in [*self.refused.objects.items()]:
                del self.refused.objects[key]
                self._take_refusal(Change(ChangeKind.DELETED, key, event, None))
            return
        pods = Informer(
            self.kube,
            PODS,
            partial(self.pods.view, classes=classes),
            self._take,
            shape=POD_SHAPE,
            refusable=True,
            on_known=self.on_known,
            objects=self.pods.objects,
        )
        events = Informer(
            self.kube,
            EVENTS,
            partial(self.refused.view, classes=classes),
            self._take_refusal,
            field_selector=SELECTOR,
            refusable=True,
            on_known=self.on_known,
            objects=self.refused.objects,
        )
        self._informers = pods, events
        async with asyncio.TaskGroup() as group:
            group.create_task(pods.run(), name="informer of Wasm pods")
            group.create_task(events.run(), name="informer of refused pods")
            await pods.synced.wait()
            await events.synced.wait()
            if self.known:
                self.on_known()

    def _take(self, change: Change[WorkloadPod]) -> None:
        self.pods.take(change)
        self.on_change(change)

    def _take_refusal(self, change: Change[RefusedCreation]) -> None:
        self.refused.take(change)
        self.on_refusal(change)
