"""Which keys are news to a guest, and which of them it may be told.

In: the shared caches, reviews, what a guest has seen. Out: turns in its agenda, deliveries. Called by ``hosting``, in
the event loop. Invariants: what a guest has seen wakes nobody; nothing is called gone while what is known is not whole;
an object is delivered only where a review allows it; of a kind that is not watched any more nothing is told or asked.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import Final, Protocol

from controller_host.domain.keys import ObjectKey, key_text, parse_key
from controller_host.scheduler.deliveries import Delivery
from controller_host.scheduler.hosted import Hosted
from controller_host.scheduler.turns import Turn
from controller_host.state.progress import Mark
from controller_host.timings import TurnTimings
from trellis.crds.wasm_controllers import Watch

MOST_TURNS: Final = 16
"""Keys that a controller is called for before others have the thread."""


class Watches(Protocol):
    """The shared caches; see ``shared_watches``."""

    def want(
        self, controller: str, namespace: str, watches: Sequence[Watch], on_change: Callable[[str, ObjectKey], None]
    ) -> None:
        """Watch these for a controller of a namespace, in place of what it wanted."""

    def drop(self, controller: str) -> None:
        """Watch nothing for it any more."""

    def item(self, key: ObjectKey) -> bytes | None:
        """Return an object's JSON, None if there is none."""

    def version(self, key: ObjectKey) -> str:
        """Return an object's ``<uid>/<resourceVersion>``, "" if there is none."""

    def keys(self, controller: str) -> Iterable[ObjectKey]:
        """Return all objects that concern a controller."""

    def whole(self, controller: str) -> bool:
        """Return whether all that its watches could show is there: what is not, is gone."""

    def absent(self, controller: str) -> frozenset[tuple[str, str]]:
        """Return the kinds, by apiVersion and kind, of its watches that the API server does not serve now."""

    def concerns(self, controller: str, key: ObjectKey) -> bool:
        """Return whether an object concerns it now."""

    def watched(self, controller: str, key: ObjectKey) -> bool:
        """Return whether it watches any objects of a key's kind."""

    async def allowed(self, controller: str, user: str, key: ObjectKey) -> bool | None:
        """Return whether a controller that acts as an account may be told of an object; None: nobody knows yet."""


@dataclass(frozen=True, slots=True)
class News:
    """What is news to whom."""

    watches: Watches
    timings: TurnTimings = field(default_factory=TurnTimings)

    def is_news(self, one: Hosted, key: ObjectKey) -> bool:
        """Return whether an object is another than the guest has seen, or is not there any more."""
        mark = one.life.marks.get(key_text(key))
        version = self.watches.version(key) if self.watches.concerns(one.key, key) else ""
        return (mark.version if mark is not None else "") != version

    def whole(self, one: Hosted) -> bool:
        """Return whether what does not show is gone, of all that the guest has seen.

        A kind that the API server does not serve has no objects, unless the guest has seen some: a CRD that is created
        again must not look like the deletion of each of them.
        """
        if not self.watches.whole(one.key):
            return False
        absent = self.watches.absent(one.key)
        seen = (parse_key(text) for text, mark in one.life.marks.items() if mark.version) if absent else ()
        return not any((key.api_version, key.kind) in absent for key in seen)

    def list_if_whole(self, one: Hosted) -> None:
        """Let every key have its turn, as ``list_all`` does, if that was not yet done, and all is known of them."""
        if not one.listed and self.whole(one):
            self.list_all(one)

    def list_all(self, one: Hosted) -> None:
        """Let every key have its turn that the guest has not seen as it is now, or wants to see again."""
        now, wall = time.monotonic(), time.time()
        seen = set()
        for key in self.watches.keys(one.key):
            seen.add(key_text(key))
            if self.is_news(one, key):
                _due(one, key, now)
        for text, mark in list(one.life.marks.items()):
            key = parse_key(text)
            if not self.watches.watched(one.key, key):
                self._forget(one, key)
            elif text not in seen and mark.version:
                _due(one, key, now)
            elif mark.due is not None:
                one.agenda.postpone(key, now, mark.due - wall)
        one.listed = True

    async def deliverable(self, one: Hosted, now: float) -> list[Delivery]:
        """Return what can be delivered of what is due, in its order, no more than is allowed at once.

        Raises:
            KubeError: it could not be asked whether; all that was due is still due.
        """
        found: list[Delivery] = []
        one.held_until = 0.0
        turns = one.agenda.take(now, MOST_TURNS) if one.listed else []
        for at, turn in enumerate(turns):
            if not self.watches.watched(one.key, turn.key):
                self._forget(one, turn.key)
                continue
            if one.bucket.wait(now):
                one.agenda.put_back(turns[at:])
                break
            try:
                allowed = await self.watches.allowed(one.key, one.account.user, turn.key)
            except BaseException:
                one.agenda.put_back([*(delivery.turn for delivery in found), *turns[at:]])
                raise
            if not allowed:
                # So it is for all of them. Whatever wakes the controller before has it asked again.
                one.agenda.put_back(turns[at:])
                one.held_until = now + (self.timings.unknown if allowed is None else self.timings.denied)
                break
            one.bucket.take(now)
            found.append(self._delivery(one, turn))
        return found

    def _delivery(self, one: Hosted, turn: Turn[ObjectKey]) -> Delivery:
        if not self.watches.concerns(one.key, turn.key):
            return Delivery(turn, None, "")
        return Delivery(turn, self.watches.item(turn.key), self.watches.version(turn.key))

    def _forget(self, one: Hosted, key: ObjectKey) -> None:
        """Forget a key of a kind that is not watched any more: nobody knows of it whether it is gone."""
        one.agenda.drop(key)
        one.life.marks.note(key_text(key), Mark(""))

    def look_again(self, one: Hosted, deliveries: Iterable[Delivery]) -> None:
        """Let what changed on its way to the guest have another turn.

        A change is news by comparison with what the guest has seen; of what went before its first call ended there was
        nothing to compare with.
        """
        now = time.monotonic()
        for delivery in deliveries:
            if one.listed and self.is_news(one, delivery.turn.key):
                _due(one, delivery.turn.key, now)


def _due(one: Hosted, key: ObjectKey, now: float) -> None:
    # What failed keeps its wait: that the guest began again, perhaps because of it, is no news about it.
    if one.agenda.later(key) is None or not one.agenda.attempt(key):
        one.agenda.changed(key, now)
