"""All applications of one lattice in wadm, deployed or not: the last list and later events.

Pure: lists, events and times in; applications, and the time of the next list, out. Called by
``trellis.lattice.follow.model_watch``. Invariants: an event changes one application without a query; changes without a
complete event (a deletion, an undeployed version) are queried once events are quiet, or with the next periodic list; a
failed query removes nothing; a list reverts no deployment that was published after its query. Source: wadm 0.21
publishes an event for a deployed manifest, and one with a name only for an undeployed or deleted one; it publishes none
for a manifest that is put.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace

from trellis.lattice.domain.models import Model
from trellis.lattice.timings import ModelWatchTimings


@dataclass(slots=True)
class ModelList:
    """The list of applications. Times are seconds of the monotonic clock."""

    timings: ModelWatchTimings
    _known: dict[str, Model] | None = None
    _unconfirmed_at: float | None = None
    _meanwhile: dict[str, str] | None = None
    """During a query, the versions by name that were deployed since its start; None without a query."""

    @property
    def models(self) -> tuple[Model, ...] | None:
        """The applications in the order of their names, None before the first list."""
        return None if self._known is None else tuple(self._known.values())

    def asking(self) -> None:
        """Note the start of a query, which confirms all earlier events."""
        self._unconfirmed_at = None
        self._meanwhile = {}

    def unanswered(self) -> None:
        """Note the end of a query without a list."""
        self._meanwhile = None

    def listed(self, models: Iterable[Model]) -> None:
        """Replace the applications by a list of wadm, which may be older than events since its query."""
        known = self._known = {model.name: model for model in models}
        later, self._meanwhile = self._meanwhile or {}, None
        for name, version in later.items():
            if name not in known or known[name].deployed != version:
                self._deploy(name, version)

    def deployed(self, name: str, version: str, now: float) -> None:
        """Process an event that a version is deployed; a version missing in the last list requires a query."""
        if self._meanwhile is not None:
            self._meanwhile[name] = version
            self.invalidate(now)  # the pending answer may be older
        if self._known is None:
            return
        former = self._known.get(name)
        if former is None or former.version != version:
            self.invalidate(now)
        self._deploy(name, version)

    def undeployed(self, name: str, now: float) -> None:
        """Process an event that an application is undeployed or deleted, which requires a query."""
        if self._meanwhile is not None:
            self._meanwhile.pop(name, None)
        self.invalidate(now)

    def invalidate(self, now: float) -> None:
        """Process an event without the change itself, which requires a query."""
        self._unconfirmed_at = now

    def due_in(self, now: float) -> float | None:
        """Return the seconds until the required query, None if none is required."""
        if self._unconfirmed_at is None:
            return None
        return max(0.0, self._unconfirmed_at + self.timings.quiet - now)

    def _deploy(self, name: str, version: str) -> None:
        assert self._known is not None
        former = self._known.get(name)
        known = self._known | {name: replace(former or Model(name, version), version=version, deployed=version)}
        self._known = known if former is not None else dict(sorted(known.items()))
