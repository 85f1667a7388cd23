"""Which watches a viewer's page needs, each made as the viewer.

In: a connection that is the viewer's, his namespaces, where a change goes. Out: informers, and what may be said of each
part. Called by ``audience``. Invariants: nothing is read by any right but the viewer's; a kind that he may not list is
said to be lacking, and is never taken for an empty one; what he may list no more goes from his page.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, Protocol

from trellis import names
from trellis.kube.changes import Change
from trellis.kube.client import Kube
from trellis.kube.errors import Forbidden, NotFound
from trellis.kube.informer import Informer
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
from trellis.kube.rights import allowed_to
from trellis.kube.watch_timings import WatchTimings
from trellis.lattice.service_views import POD_SELECTOR, SLICE_SELECTOR, view_pod
from trellis.node_and_job import view_job, view_node
from trellis.provisioning import INSTALLER_JOBS
from trellis.read_model.cards import (
    view_app_card,
    view_controller_card,
    view_ends,
    view_group_card,
    view_ledger,
    view_service_card,
    view_shim_card,
)
from trellis.read_model.entities import PartStatus

_TIMINGS: Final = WatchTimings(watch=(40, 60), absent=30.0, refused=15.0)
"""The API server asks for rights when a watch begins: who is given one sees what it is about soon, and who lost one
sees it for a minute longer at most."""


class Take(Protocol):
    """Gets each change: the part, the key, the view as it is now or None."""

    def __call__(self, part: str, key: str, new: Any, /) -> None:  # noqa: ANN401 - the part's view
        """Take one change."""


@dataclass(frozen=True, slots=True)
class Place:
    """Where the installation keeps its objects."""

    namespace: str
    installers: str


@dataclass(frozen=True, slots=True)
class Part:
    """One kind that is watched. ``own``: the one namespace where it is looked for, "" for the viewer's."""

    name: str
    resource: Resource
    project: Callable[[Manifest], Any]
    selector: str | None = None
    own: str = ""
    optional: bool = False

    def places(self, namespaces: Sequence[str]) -> tuple[str | None, ...]:
        """Return the namespaces that have a watch each; None is all of them."""
        if self.own:
            return (self.own,)
        if not self.resource.namespaced or not namespaces:
            return (None,)
        return tuple(namespaces)


def parts_of(place: Place) -> tuple[Part, ...]:
    """Return what a page is made of, by the names that ``composing`` has."""
    return (
        Part("nodes", NODES, view_node),
        Part("shims", SHIMS, view_shim_card, optional=True),
        Part("jobs", JOBS, view_job, INSTALLER_JOBS, own=place.installers),
        Part("ledgers", CONFIGMAPS, view_ledger, f"{names.LABEL_LEDGER}=true", own=place.namespace),
        Part("groups", HOST_CONFIGS, view_group_card, optional=True),
        Part("pods", PODS, view_pod, POD_SELECTOR),
        Part("applications", APPLICATIONS, view_app_card, optional=True),
        Part("services", SERVICES, view_service_card),
        Part("slices", ENDPOINT_SLICES, view_ends, SLICE_SELECTOR),
        Part("controllers", WASM_CONTROLLERS, view_controller_card, optional=True),
    )


class Watches:
    """The watches of one viewer; ``informers`` are to be run."""

    def __init__(self, kube: Kube, parts: Sequence[Part], namespaces: Sequence[str], take: Take) -> None:
        self._take = take
        self._parts: Final = {
            part.name: {where: _informer(kube, part, where, take) for where in part.places(namespaces)}
            for part in parts
        }
        self._namespaced: Final = {part.name for part in parts if part.resource.namespaced and not part.own}
        self._named = bool(namespaces)

    @property
    def informers(self) -> list[Informer[Any]]:
        """All of them."""
        return [informer for places in self._parts.values() for informer in places.values()]

    def forget_refused(self) -> None:
        """Take away what was read before it was refused: the right is gone, and with it what it showed."""
        for name, places in self._parts.items():
            for informer in places.values():
                if isinstance(informer.lacking, Forbidden) and informer.objects:
                    gone = list(informer.objects)
                    informer.objects.clear()  # so that a list, once it is allowed again, is news
                    for key in gone:
                        self._take(name, key, None)

    def statuses(self) -> list[PartStatus]:
        """Return how each part is read now."""
        return [self._status(name, places) for name, places in self._parts.items()]

    def _status(self, name: str, places: Mapping[str | None, Informer[Any]]) -> PartStatus:
        lacking = {
            where or "": self._words(name, informer.lacking)
            for where, informer in places.items()
            if isinstance(informer.lacking, Forbidden)
        }
        absent = any(isinstance(informer.lacking, NotFound) for informer in places.values())
        return PartStatus(name, all(one.synced.is_set() for one in places.values()), lacking, absent)

    def _words(self, name: str, error: Forbidden) -> tuple[str, str]:
        wide = name in self._namespaced and not self._named
        place = "" if error.namespace else " in the whole cluster"
        do = "choose namespaces, or ask for the right" if wide else "ask for the right, or look as somebody who has it"
        return f"not allowed to {allowed_to(error)}{place}", do


def _informer(kube: Kube, part: Part, where: str | None, take: Take) -> Informer[Any]:
    def changed(change: Change[Any]) -> None:
        take(part.name, change.key, change.new)

    return Informer(
        kube,
        part.resource,
        part.project,
        changed,
        namespace=where,
        label_selector=part.selector,
        optional=part.optional,
        refusable=True,
        quiet=True,
        timings=_TIMINGS,
    )
