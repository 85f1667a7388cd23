"""The deployed applications of one lattice, from events and answers of wadm.

Pure: events, answers and times in; deployed applications, and pending queries, out. Called by
``trellis.lattice.follow.comparison``. Invariants: an answer of wadm decides, except over events received after its
query; of two events about an application the later one by the time of wadm counts, in any order of arrival; a failed
query removes nothing, except applications that wadm reported as deleted. Source: wadm 0.21 publishes
``manifest_published`` with the manifest, and ``manifest_unpublished`` with a name only: on undeploy, again on delete,
and even for applications that never existed.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from typing import Final

from trellis.lattice.domain.manifests import Application
from trellis.lattice.domain.models import Model
from trellis.lattice.timings import ComparisonTimings

_REMEMBERED: Final = 5_000


@dataclass(frozen=True, slots=True)
class ApplicationState:
    """The state of one application. ``published_at``: time of the newest event by the clock of wadm, in the form of
    ``event_time``, "" without an event.

    ``application``: None while it is not deployed. ``received_at``: arrival of that event, monotonic seconds;
    ``count``: its number. ``deletion_published``: wadm published a deletion that no query confirmed yet. ``sure``: an
    answer of wadm confirms it.
    """

    application: Application | None = None
    published_at: str = ""
    received_at: float = float("-inf")
    count: int = 0
    deletion_published: bool = False
    sure: bool = True


@dataclass(slots=True)
class Applications:
    """The applications of a lattice. ``complete``: wadm has listed them since the start.

    ``wanted``: versions by name of deployed applications whose manifest is missing.
    """

    known: dict[str, ApplicationState] = field(default_factory=dict)
    wanted: dict[str, str] = field(default_factory=dict)
    complete: bool = False
    events: int = 0
    timings: ComparisonTimings = ComparisonTimings()

    def deployed(self) -> dict[str, Application]:
        """Return the deployed applications by name."""
        return {name: item.application for name, item in self.known.items() if item.application is not None}

    def absent(self, name: str) -> bool:
        """Return whether an application is certainly not deployed; False if that is unknown."""
        item = self.known.get(name)
        if name in self.wanted:
            return False
        return self.complete if item is None else item.application is None and not item.deletion_published

    def published(self, application: Application, published_at: str, now: float) -> bool:
        """Process an event of wadm that an application is deployed; return whether anything changed.

        ``published_at``: time of the event, in the form of ``event_time``; ``now``: monotonic seconds.
        """
        former = self.known.get(application.name, ApplicationState())
        if published_at <= former.published_at:
            return False
        self.events += 1
        self.wanted.pop(application.name, None)
        self.known[application.name] = ApplicationState(application, published_at, now, self.events, sure=False)
        return former.application != application

    def unpublished(self, name: str, published_at: str, now: float) -> bool:
        """Process an event of wadm that an application is no longer deployed; a query, or its failure, removes it.

        Returns whether to query wadm: the event is new, and its application may be deployed.
        """
        former = self.known.pop(name, ApplicationState())
        # Moved to the end: the entry with the oldest event is dropped first.
        self.known[name] = former
        if published_at <= former.published_at:
            return False
        self.events += 1
        ask = former.application is not None or name in self.wanted or not self.complete
        self.known[name] = ApplicationState(
            former.application, published_at, now, self.events, deletion_published=ask, sure=not ask
        )
        self._forget()
        return ask

    def listed(self, models: Iterable[Model], events_at_query: int, now: float) -> bool:
        """Process a list of wadm; return whether anything changed.

        ``events_at_query``: :attr:`events` at the time of the query: later events are newer than this answer.
        """
        changed = not self.complete
        self.complete = True
        deployed = {model.name: model.deployed for model in models if model.deployed}
        self.wanted = {}
        for name in {*self.known, *deployed}:
            changed = self._compared(name, deployed.get(name, ""), events_at_query, now) or changed
        return changed

    def _compared(self, name: str, version: str, events_at_query: int, now: float) -> bool:
        """Compare one application with the list; return whether anything changed."""
        item = self.known.get(name, ApplicationState())
        if item.count > events_at_query:
            return False
        application = item.application
        young = now - item.received_at < self.timings.unconfirmed
        if not version:
            if application is None or item.deletion_published or not young:
                self.known[name] = replace(item, application=None, deletion_published=False, sure=True)
                return application is not None or item.deletion_published
            self.known[name] = replace(item, sure=False)
            return False
        if application is not None and application.version == version:
            self.known[name] = replace(item, deletion_published=False, sure=not (young and item.deletion_published))
        elif application is None or not young:
            self.wanted[name] = version
        else:
            self.known[name] = replace(item, sure=False)
        return False

    def got(self, application: Application, events_at_query: int) -> bool:
        """Process the manifest of an application that wadm listed as deployed; return whether anything changed."""
        former = self.known.get(application.name, ApplicationState())
        if former.count > events_at_query:
            return False
        self.wanted.pop(application.name, None)
        self.known[application.name] = replace(former, application=application, deletion_published=False, sure=True)
        return former.application != application

    def reread(self, application: Application) -> None:
        """Replace an application after its configurations changed, if that version is deployed."""
        item = self.known.get(application.name)
        if item is not None and item.application is not None and item.application.version == application.version:
            self.known[application.name] = replace(item, application=application)

    def refused(self, events_at_query: int) -> bool:
        """Process a failed query: remove applications whose deletion wadm published; return whether there are any."""
        deleted = [
            name for name, item in self.known.items() if item.deletion_published and item.count <= events_at_query
        ]
        for name in deleted:
            self.known[name] = replace(self.known[name], application=None, deletion_published=False)
        return bool(deleted)

    def recheck_in(self, now: float) -> float | None:
        """Return the seconds until the next query of wadm, None if every event is confirmed.

        The query is due after ``unconfirmed`` seconds without an event; or ``busy`` seconds after the first of many.
        Wanted manifests do not count: the next answer would be as unreadable as the last one.
        """
        received = [item.received_at for name, item in self.known.items() if not item.sure and name not in self.wanted]
        if not received:
            return None
        return max(0.0, min(max(received) + self.timings.unconfirmed, min(received) + self.timings.busy) - now)

    def _forget(self) -> None:
        """Drop the oldest deleted applications: any client with permission to publish can invent names."""
        tombs = [name for name, item in self.known.items() if item.application is None]
        for name in tombs[: max(0, len(tombs) - _REMEMBERED)]:
            del self.known[name]
