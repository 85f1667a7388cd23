"""Selection of the keys that are new to a guest and can be delivered.

In: the shared caches, access reviews, processed versions of a guest. Out: turns in its work queue, deliveries. Called
by ``hosting``, in the event loop. Invariants: a processed version does not wake a guest; no deletion is reported while
the cache is incomplete; an object is delivered only if an access review allows it; there are no deliveries or reviews
for a kind that is no longer watched.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import Final, Protocol

from controller_host.domain.keys import ObjectKey, key_text, parse_key
from controller_host.domain.watch_specs import WatchSpec
from controller_host.scheduler.deliveries import Delivery
from controller_host.scheduler.hosted import Hosted
from controller_host.scheduler.turns import Turn
from controller_host.state.progress import LastCall
from controller_host.timings import TurnTimings

MOST_TURNS: Final = 16
"""Maximum number of keys in one turn of a controller."""


class Watches(Protocol):
    """The shared caches; see ``shared_watches``."""

    def want(self, controller: str, specs: tuple[WatchSpec, ...], on_change: Callable[[str, ObjectKey], None]) -> None:
        """Set the watches of a controller, in place of its previous ones."""

    def drop(self, controller: str) -> None:
        """Remove the watches of a controller."""

    def item(self, key: ObjectKey) -> bytes | None:
        """Return an object's JSON, None if there is none."""

    def version(self, key: ObjectKey) -> str:
        """Return an object's ``<uid>/<resourceVersion>``, "" if there is none."""

    def keys(self, controller: str) -> Iterable[ObjectKey]:
        """Return all objects that match the watches of a controller."""

    def whole(self, controller: str) -> bool:
        """Return whether the caches of its watches are complete: missing objects are deleted."""

    def absent(self, controller: str) -> frozenset[tuple[str, str]]:
        """Return apiVersion and kind of each of its watches that the API server does not serve."""

    def concerns(self, controller: str, key: ObjectKey) -> bool:
        """Return whether an existing object matches its watches."""

    def watched(self, controller: str, key: ObjectKey) -> bool:
        """Return whether it watches the kind of a key."""

    async def allowed(self, controller: str, user: str, key: ObjectKey) -> bool | None:
        """Return whether an object can be delivered to a controller with this account; None: unknown yet."""


@dataclass(frozen=True, slots=True)
class DeliverySelection:
    """New keys of controllers."""

    watches: Watches
    timings: TurnTimings = field(default_factory=TurnTimings)

    def is_changed(self, hosted: Hosted, key: ObjectKey) -> bool:
        """Return whether an object differs from the version that the guest has processed, or was deleted."""
        call = hosted.lifecycle.processed.get(key_text(key))
        version = self.watches.version(key) if self.watches.concerns(hosted.key, key) else ""
        return (call.version if call is not None else "") != version

    def whole(self, hosted: Hosted) -> bool:
        """Return whether the caches are complete for all objects that the guest has processed.

        A kind that the API server does not serve counts as empty, unless the guest has processed objects of it: the
        re-creation of a CRD must not be reported as the deletion of each object.
        """
        if not self.watches.whole(hosted.key):
            return False
        absent = self.watches.absent(hosted.key)
        seen = (parse_key(text) for text, call in hosted.lifecycle.processed.items() if call.version) if absent else ()
        return not any((key.api_version, key.kind) in absent for key in seen)

    def list_if_whole(self, hosted: Hosted) -> None:
        """Call ``list_all`` if this has not been done and the caches are complete."""
        if not hosted.listed and self.whole(hosted):
            self.list_all(hosted)

    def list_all(self, hosted: Hosted) -> None:
        """Add all keys to the work queue that are new to the guest, or that it requested for a later time."""
        now, wall = time.monotonic(), time.time()
        seen = set()
        for key in self.watches.keys(hosted.key):
            seen.add(key_text(key))
            if self.is_changed(hosted, key):
                _due(hosted, key, now)
        for text, call in list(hosted.lifecycle.processed.items()):
            key = parse_key(text)
            if not self.watches.watched(hosted.key, key):
                self._forget(hosted, key)
            elif text not in seen and call.version:
                _due(hosted, key, now)
            elif call.due is not None:
                hosted.work_queue.postpone(key, now, call.due - wall)
        hosted.listed = True

    async def deliverable(self, hosted: Hosted, now: float) -> list[Delivery]:
        """Return the due keys that can be delivered, in order, within the rate limit.

        Raises:
            KubeError: an access review failed; all due keys are still due.
        """
        found: list[Delivery] = []
        hosted.next_review_at = 0.0
        turns = hosted.work_queue.take(now, MOST_TURNS) if hosted.listed else []
        for at, turn in enumerate(turns):
            if not self.watches.watched(hosted.key, turn.key):
                self._forget(hosted, turn.key)
                continue
            if hosted.bucket.wait(now):
                hosted.work_queue.put_back(turns[at:])
                break
            try:
                allowed = await self.watches.allowed(hosted.key, hosted.account.user, turn.key)
            except BaseException:
                hosted.work_queue.put_back([*(delivery.turn for delivery in found), *turns[at:]])
                raise
            if not allowed:
                # The same applies to all keys. An earlier wake of the controller causes another review.
                hosted.work_queue.put_back(turns[at:])
                hosted.next_review_at = now + (self.timings.unknown if allowed is None else self.timings.denied)
                break
            hosted.bucket.take(now)
            found.append(self._delivery(hosted, turn))
        return found

    def _delivery(self, hosted: Hosted, turn: Turn[ObjectKey]) -> Delivery:
        if not self.watches.concerns(hosted.key, turn.key):
            return Delivery(turn, None, "")
        return Delivery(turn, self.watches.item(turn.key), self.watches.version(turn.key))

    def _forget(self, hosted: Hosted, key: ObjectKey) -> None:
        """Remove a key of a kind that is no longer watched: its deletion would not be detected."""
        hosted.work_queue.drop(key)
        hosted.lifecycle.processed.note(key_text(key), LastCall(""))

    def look_again(self, hosted: Hosted, deliveries: Iterable[Delivery]) -> None:
        """Add keys that changed during their delivery to the work queue.

        ``is_changed`` compares with the processed version, which did not exist for a change during the first call.
        """
        now = time.monotonic()
        for delivery in deliveries:
            if hosted.listed and self.is_changed(hosted, delivery.turn.key):
                _due(hosted, delivery.turn.key, now)


def _due(hosted: Hosted, key: ObjectKey, now: float) -> None:
    # A failed key keeps its backoff: a restart of the guest, perhaps caused by this key, is not a change of it.
    if hosted.work_queue.later(key) is None or not hosted.work_queue.attempt(key):
        hosted.work_queue.changed(key, now)
