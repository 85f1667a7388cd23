"""The Events of controllers whose pods the API server refuses, in bounded memory.

In: Events and changes from their watch, and the controllers that do not matter. Out: the newest Event by UID of the
controller. Written by ``watches``, and by ``refused_owners``, which reads the controllers. Invariants: an Event that is
older than the interval of retries is not kept: the controller has succeeded since, or needs no pod any more; at most
``MOST`` Events are kept; a controller that was dismissed is not kept until it fails later.
Source: reason FailedCreate of the controllers of kube-controller-manager; workqueue.DefaultTypedControllerRateLimiter.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Container, Sequence
from dataclasses import dataclass, field, replace
from typing import Final

from provisioner.workloads.pods import Controller
from trellis.kube.changes import Change
from trellis.kube.resources import (
    CRON_JOBS,
    DAEMON_SETS,
    JOBS,
    REPLICA_SETS,
    STATEFUL_SETS,
    Manifest,
    Resource,
    key_of,
)
from trellis.read_model.wasm_pods.failures import CREATE
from trellis.read_model.wasm_pods.pods import EventView, view_event
from trellis.v2.fields import mapping, text

SELECTOR: Final = f"reason={CREATE},type=Warning"
"""Field selector of these Events."""
MOST: Final = 10_000
"""Events that are kept, and controllers that are dismissed."""
_WORDS: Final = 512
"""Characters of a message that are kept: more than a cause shows."""
_CREATORS: Final = {
    (res.api_version, res.kind): res for res in (REPLICA_SETS, STATEFUL_SETS, DAEMON_SETS, JOBS, CRON_JOBS)
}


@dataclass(frozen=True, slots=True)
class RefusedCreation:
    """An Event: a controller could not create a pod, or a CronJob its Job."""

    namespace: str
    controller: Controller
    event: EventView

    @property
    def resource(self) -> Resource:
        """Kind of the controller."""
        return _CREATORS[self.controller.api_version, self.controller.kind]


@dataclass(eq=False)
class RefusedCreations:
    """The Events by ``namespace/name``. ``now``: returns Unix seconds; ``lasts``: seconds for which an Event counts."""

    now: Callable[[], float]
    lasts: float
    objects: dict[str, RefusedCreation] = field(default_factory=dict)
    _keys: dict[str, set[str]] = field(default_factory=dict)
    """Keys of Events by UID of their controller."""
    _dismissed: OrderedDict[str, tuple[float, str]] = field(default_factory=OrderedDict)
    """By UID of a controller, until when its Events do not count, and the RuntimeClass of its pods."""

    def view(self, manifest: Manifest, classes: Container[str]) -> RefusedCreation | None:
        """Return the view of an Event, None if it does not count; ``classes``: those that Shims provide."""
        about = mapping(manifest, "involvedObject")
        controller = Controller(text(about, "apiVersion"), text(about, "kind"), text(about, "name"), text(about, "uid"))
        event = view_event(manifest)
        if (controller.api_version, controller.kind) not in _CREATORS or self._is_outdated(event):
            return None
        until, runtime_class = self._dismissed.get(controller.uid, (0.0, ""))
        if event.at <= until and runtime_class not in classes:
            return None
        if len(self.objects) >= MOST and key_of(manifest) not in self.objects:
            return None
        return RefusedCreation(text(about, "namespace"), controller, replace(event, message=event.message[:_WORDS]))

    def take(self, change: Change[RefusedCreation]) -> None:
        """Record a change in the index; ``objects`` has it already."""
        if change.old is not None:
            keys = self._keys.get(change.old.controller.uid, set())
            keys.discard(change.key)
            if not keys:
                self._keys.pop(change.old.controller.uid, None)
        if change.new is not None:
            self._keys.setdefault(change.new.controller.uid, set()).add(change.key)

    def newest(self, uid: str) -> RefusedCreation | None:
        """Return the newest Event about a controller, None if none counts."""
        found = (self.objects[key] for key in self._keys.get(uid, ()))
        return max(found, key=lambda item: item.event.at, default=None)

    def uids(self) -> Sequence[str]:
        """Return the UIDs of the controllers that have an Event."""
        return [*self._keys]

    def dismiss(self, uid: str, until: float, runtime_class: str = "") -> None:
        """Drop the Events about a controller, and those until a time, as long as no Shim provides its RuntimeClass."""
        self._drop(uid)
        self._dismissed[uid] = until, runtime_class
        self._dismissed.move_to_end(uid)
        while len(self._dismissed) > MOST:
            self._dismissed.popitem(last=False)

    def expire(self) -> list[str]:
        """Drop outdated Events; return the UIDs of the controllers that have no Event any more."""
        newest = ((uid, self.newest(uid)) for uid in [*self._keys])
        expired = [uid for uid, found in newest if found is None or self._is_outdated(found.event)]
        for uid in expired:
            self._drop(uid)
        return expired

    def _is_outdated(self, event: EventView) -> bool:
        return self.now() - event.at >= self.lasts

    def _drop(self, uid: str) -> None:
        for key in self._keys.pop(uid, ()):
            self.objects.pop(key, None)
