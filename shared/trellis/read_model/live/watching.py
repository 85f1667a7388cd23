"""The watches of a viewer's page, each with the identity of the viewer.

In: a connection with the viewer's identity, namespaces, a receiver of changes. Out: informers, and the read status of
each part. Called by ``live_model``. Invariants: only the viewer's permissions count; a kind that is forbidden, not
served or returns an error is lacking, and not empty; only a kind without a CRD is not defined; objects that the viewer
can no longer list are removed.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, Protocol

from trellis import names
from trellis.kube.changes import Change
from trellis.kube.client import Kube
from trellis.kube.errors import Forbidden, KubeError, NotFound
from trellis.kube.informer import Informer
from trellis.kube.permissions import allowed_to
from trellis.kube.resources import (
    APPLICATIONS,
    CONFIGMAPS,
    ENDPOINT_SLICES,
    HOST_CONFIGS,
    JOBS,
    NODES,
    PODS,
    SERVICES,
    SHIMS,
    WASM_CONTROLLERS,
    Manifest,
    Resource,
)
from trellis.kube.shapes import Shape
from trellis.kube.watch_timings import WatchTimings
from trellis.lattice.domain.service_views import POD_SELECTOR, SLICE_SELECTOR, view_pod
from trellis.provisioning.nodes_and_jobs import view_job, view_node
from trellis.provisioning.views import INSTALLER_JOBS
from trellis.read_model.entities.cards import (
    view_app_card,
    view_controller_card,
    view_ends,
    view_group_card,
    view_installer,
    view_ledger,
    view_service_card,
    view_shim_card,
)
from trellis.read_model.entities.entities import PartStatus
from trellis.read_model.reading.served import NotServedError, require_undefined


def viewer_timings() -> WatchTimings:
    """Return the timings of a viewer's watches, in seconds.

    The API server checks permissions when a watch starts: a granted permission takes effect soon, a revoked one after
    a minute at most.
    """
    return WatchTimings(watch=(40, 60), absent=30.0, refused=15.0)


RETRYING: Final = "retrying; the shown state can be outdated"
"""Resolution of an error of the API server."""


class Take(Protocol):
    """Receiver of changes: the part, the key, the current view or None."""

    def __call__(self, part: str, key: str, new: Any, /) -> None:  # noqa: ANN401 - the part's view
        """Receive one change."""


@dataclass(frozen=True, slots=True)
class Place:
    """Namespaces of the installation's objects."""

    namespace: str
    installers: str


@dataclass(frozen=True, slots=True)
class Part:
    """One watched kind. ``own``: the only namespace that is watched, "" for those of the viewer.

    ``everywhere``: all namespaces are watched, also if the viewer selected some; ``fields``: a field selector;
    ``shape``: the decoded keys.
    """

    name: str
    resource: Resource
    project: Callable[[Manifest], Any]
    selector: str | None = None
    own: str = ""
    optional: bool = False
    everywhere: bool = False
    fields: str | None = None
    shape: Shape | None = None

    def places(self, namespaces: Sequence[str]) -> tuple[str | None, ...]:
        """Return the namespaces with a watch each; None is all of them."""
        if self.own:
            return (self.own,)
        if not self.resource.namespaced or not namespaces or self.everywhere:
            return (None,)
        return tuple(namespaces)


def parts_of(place: Place) -> tuple[Part, ...]:
    """Return the parts of a page, by the names in ``composing``."""
    return (
        Part("nodes", NODES, view_node),
        Part("shims", SHIMS, view_shim_card, optional=True),
        Part("jobs", JOBS, view_job, INSTALLER_JOBS, own=place.installers),
        Part("installers", PODS, view_installer, f"{names.LABEL_JOB}=true", own=place.installers),
        Part("ledgers", CONFIGMAPS, view_ledger, f"{names.LABEL_LEDGER}=true", own=place.namespace),
        Part("groups", HOST_CONFIGS, view_group_card, optional=True),
        Part("pods", PODS, view_pod, POD_SELECTOR),
        Part("applications", APPLICATIONS, view_app_card, optional=True),
        Part("services", SERVICES, view_service_card),
        Part("slices", ENDPOINT_SLICES, view_ends, SLICE_SELECTOR),
        Part("controllers", WASM_CONTROLLERS, view_controller_card, optional=True),
    )


class Watches:
    """The watches of one viewer; the caller runs ``informers``."""

    def __init__(
        self, kube: Kube, parts: Sequence[Part], namespaces: Sequence[str], take: Take, timings: WatchTimings
    ) -> None:
        self._take = take
        self._parts: Final = {
            part.name: {where: _informer(kube, part, where, take, timings) for where in part.places(namespaces)}
            for part in parts
        }
        self._namespaced: Final = {
            part.name for part in parts if part.resource.namespaced and not (part.own or part.everywhere)
        }
        self._named = bool(namespaces)
        self._kube = kube
        self._resources: Final = {part.name: part.resource for part in parts}
        self._unserved: Final[dict[str, tuple[NotFound, str]]] = {}
        """By part, its 404 response and the reason why its kind is unknown; "" if the kind is not defined."""

    @property
    def informers(self) -> list[Informer[Any]]:
        """All informers."""
        return [informer for places in self._parts.values() for informer in places.values()]

    def forget_refused(self) -> None:
        """Remove objects that are forbidden since they were read."""
        for name, places in self._parts.items():
            for informer in places.values():
                if isinstance(informer.lacking, Forbidden):
                    self._forget(name, informer)

    def forget(self) -> None:
        """Remove all objects: the watches have ended."""
        for name, places in self._parts.items():
            for informer in places.values():
                self._forget(name, informer)

    def _forget(self, name: str, informer: Informer[Any]) -> None:
        deleted = list(informer.objects)
        informer.objects.clear()  # so that a list, once it is allowed again, counts as changed
        for key in deleted:
            self._take(name, key, None)

    async def check_absences(self, seconds: float) -> None:
        """Check after each 404 response of a kind for its CRD, until cancelled."""
        while True:
            for name in self._parts:
                answers = self._not_found(name)
                if not answers:
                    self._unserved.pop(name, None)
                elif name not in self._unserved or not any(answer is self._unserved[name][0] for answer in answers):
                    self._unserved[name] = (answers[0], await self._unknown(name, answers[0]))
            await asyncio.sleep(seconds)

    async def _unknown(self, name: str, error: NotFound) -> str:
        try:
            await require_undefined(self._kube, self._resources[name], error)
        except (NotServedError, KubeError) as unknown:
            return str(unknown)
        return ""

    def _not_found(self, name: str) -> list[NotFound]:
        found = [informer.lacking for informer in self._parts[name].values()]
        return [error for error in found if isinstance(error, NotFound)]

    def statuses(self) -> list[PartStatus]:
        """Return the current read status of each part."""
        return [self._status(name, places) for name, places in self._parts.items()]

    def _status(self, name: str, places: Mapping[str | None, Informer[Any]]) -> PartStatus:
        obstacles = {where or "": self._obstacle(name, informer) for where, informer in places.items()}
        lacking = {where: reason for where, reason in obstacles.items() if reason is not None}
        unavailable = bool(self._not_found(name))
        confirmed = name in self._unserved
        synced = all(place.synced.is_set() for place in places.values()) and (confirmed or not unavailable)
        return PartStatus(name, synced, lacking, unavailable and confirmed and not lacking)

    def _obstacle(self, name: str, informer: Informer[Any]) -> tuple[str, str] | None:
        """Return the obstacle of a watch and the resolution; an outage is shown elsewhere."""
        error = informer.lacking or informer.failing
        if isinstance(error, Forbidden):
            return self._error_lines(name, error)
        if error is None or not error.status:
            return None
        if informer.lacking is None:
            return str(error), RETRYING
        reason = self._unserved[name][1] if name in self._unserved else ""
        return (reason, RETRYING) if reason else None

    def _error_lines(self, name: str, error: Forbidden) -> tuple[str, str]:
        wide = name in self._namespaced and not self._named
        place = "" if error.namespace else " in the whole cluster"
        do = (
            "select namespaces, or request the permission"
            if wide
            else "request the permission, or log in as another account"
        )
        return f"not allowed to {allowed_to(error)}{place}", do


class SwitchedWatches:
    """Watches of one viewer that run only while their objects can exist. ``look``: as of ``prove_absences``."""

    def __init__(
        self,
        kube: Kube,
        parts: Sequence[Part],
        namespaces: Sequence[str],
        take: Take,
        timings: WatchTimings,
        look: float,
    ) -> None:
        self.kube: Final = kube
        self.timings: Final = timings
        self.look: Final = look
        self._parts: Final = parts
        self._namespaces: Final = namespaces
        self._take: Final = take
        self._watches: Watches | None = None
        self._tasks: list[asyncio.Task[None]] = []

    @property
    def count(self) -> int:
        """Maximum number of watches."""
        return sum(len(part.places(self._namespaces)) for part in self._parts)

    @property
    def running(self) -> bool:
        """True while the watches run."""
        return self._watches is not None

    def start(self, group: asyncio.TaskGroup) -> None:
        """Start the watches, unless they run."""
        if self._watches is not None:
            return
        watches = self._watches = Watches(self.kube, self._parts, self._namespaces, self._take, self.timings)
        self._tasks = [group.create_task(informer.run(), name="viewer's watch") for informer in watches.informers]
        self._tasks.append(group.create_task(watches.check_absences(self.look), name="viewer's kinds"))

    async def end(self) -> None:
        """End the watches, and remove their objects."""
        watches, self._watches = self._watches, None
        if watches is None:
            return
        for task in self._tasks:
            task.cancel()
        await asyncio.wait(self._tasks)
        self._tasks = []
        watches.forget()

    def statuses(self) -> list[PartStatus]:
        """Return the read status of each part, none while the watches do not run."""
        if self._watches is None:
            return []
        self._watches.forget_refused()
        return self._watches.statuses()


def _informer(kube: Kube, part: Part, where: str | None, take: Take, timings: WatchTimings) -> Informer[Any]:
    def changed(change: Change[Any]) -> None:
        take(part.name, change.key, change.new)

    return Informer(
        kube,
        part.resource,
        part.project,
        changed,
        namespace=where,
        label_selector=part.selector,
        field_selector=part.fields,
        shape=part.shape,
        optional=part.optional,
        refusable=True,
        quiet=True,
        timings=timings,
    )
