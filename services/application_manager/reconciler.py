"""One run of a key: gather, decide, apply, tell; again and again until both sides are equal.

In: keys. Out: writes on either side, a status, facts. Called by the queue of ``app``. Invariants: nothing is decided on
a store that does not show yet what wadm acknowledged; what wadm refuses is told in its words, and asked again later and
not at each event.
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import Final

from application_manager.apply import Effects, NotTaken, Outdated, revision_of
from application_manager.domain import decide as deciding
from application_manager.domain.actions import (
    Action,
    Decision,
    DeleteModel,
    Deploy,
    Lost,
    Put,
    Reason,
    Record,
    RemoveFinalizer,
    Undeploy,
)
from application_manager.domain.actions import (
    Said as Because,
)
from application_manager.domain.conditions import Json, Refused, Seen, news_of, patch_of, status_of
from application_manager.domain.facts import Due, Identity, Said, facts_of
from application_manager.domain.placement import name_of
from application_manager.domain.snapshot import Absence, Side
from application_manager.domain.views import ApplicationView
from application_manager.gather import Key, Known, World
from application_manager.timings import Timings
from trellis.bus.bus import Bus, BusUnavailable
from trellis.kube.errors import KubeError, NotFound
from trellis.kube.refusals import WRITE_REFUSED, is_refused, is_terminating
from trellis.kube.rights import MissingRights
from trellis.lattice.connection.link import LinkAwayError, TooLargeError
from trellis.lattice.domain.reading import LatticeDataError
from trellis.lattice.domain.replies import Refusal, WadmRefusedError
from trellis.lattice.domain.subjects import SubjectError
from trellis.limits.backoff import Backoff
from trellis.telemetry import Stories, TraceContext, get_logger

_ASKED_OF_WADM: Final = (Put, Deploy, Undeploy, DeleteModel)
_NO_ANSWER: Final = (LinkAwayError, LatticeDataError)
_REFUSALS: Final = (WadmRefusedError, SubjectError, TooLargeError)
_LASTING: Final = (Refusal.REJECTED, Refusal.TOO_LARGE)

_log = get_logger(__name__)


@dataclass(frozen=True, slots=True)
class Keep:
    """Keeps one application equal on both sides."""

    known: Known
    effects: Effects
    bus: Bus
    stories: Stories[Key]
    said: Said
    rights: MissingRights
    let_go: bool = False
    timings: Timings = Timings()

    async def run(self, key: Key, trace: TraceContext | None) -> float | None:
        """Bring both sides of one application together; returns when to look again.

        Raises:
            KubeError: for the queue to try again.
        """
        with self.rights.noted(str(key)):
            return await self._run(key, trace)

    async def _run(self, key: Key, trace: TraceContext | None) -> float | None:
        known = self.known
        if self.let_go:
            await self.effects.release(known.objects_of(key))
            return None
        if known.controller is not None or not known.applications_known():
            return None
        if (forced := known.forced.get(key)) is not None:
            await self._forced(key, forced)
        world = known.world(key)
        for other in world.others:
            await self._duplicate(world, other)
        if (wait := known.awaits(world)) is not None:
            return wait
        if world.view is None and world.model is not None:
            lattice = name_of(key.mark)
            buried = await self.effects.tombstones.holds(lattice, key.name, world.bucket, world.model.revision)
            world = known.world(key, tombstone=buried)
        return _soonest(await self._keep(world, self._decide(world), trace), known.listing_due(key))

    def _decide(self, world: World) -> Decision:
        view = world.view
        if view is not None and view.problem and not view.object.deleting:
            return Decision()
        return deciding.decide(world.snapshot)

    async def _keep(self, world: World, decision: Decision, trace: TraceContext | None) -> float | None:
        """Do what was decided, and tell what holds then."""
        key = world.key
        destruction = next(filter(deciding.destroys, decision.actions), None)
        if destruction is None and decision.waits is None and world.view is not None:
            self.effects.breaker.withdraw(deciding.APPLICATIONS, world.view.uid)
        refused = self._refused(world, decision)
        if refused is not None:
            wait = await self._tell(world, replace(decision, actions=()), refused)
            return _soonest(wait, max(refused.again - time.monotonic(), self.timings.soon))
        self.known.won |= {key: decision.winner} if decision.winner is not None else {}
        self.known.lost |= {key: decision.lost} if decision.lost is not None else {}
        if not decision.actions or isinstance(decision.actions[0], Record):
            again = _soonest(await self._tell(world, decision), decision.again)
            if again is None and decision.waits is None:
                self.stories.end(key)  # both sides are equal, and everybody knows
            return again
        if destruction is not None and world.view is not None:
            wait = await self.effects.hold(world.view)
            if wait is not None:
                return _soonest(await self._tell(world, deciding.paused(destruction)), wait)
        done = [type(action).__name__ for action in decision.actions]
        with self.stories.span(key, f"keep {key}", trace, {"trellis.application": str(key), "trellis.actions": done}):
            return await self._act(world, decision)

    async def _act(self, world: World, decision: Decision) -> float | None:
        key = world.key
        try:
            await self.effects.apply(world, decision.actions)
        except Outdated:
            return self.timings.soon
        except _NO_ANSWER as error:
            why = f"wadm does not answer: {error}"
            away, world = Decision(waits=Because(Reason.WADM_AWAY, why)), self._with_own_writes(world)
            world = replace(world, snapshot=replace(world.snapshot, wadm=Absence.AWAY), why=why)
            return _soonest(await self._tell(world, away), self.timings.away)
        except _REFUSALS as error:
            refused = self._refuse(world, error)
            wait = await self._tell(self._with_own_writes(world), replace(decision, actions=()), refused)
            return _soonest(wait, refused.again - time.monotonic())
        except (KubeError, NotTaken) as error:
            if world.view is None and _is_nowhere(error):
                _log.info("an application of wadm's cannot be shown", application=str(key), reason=str(error))
                return self.timings.nowhere
            await self._refused_by_kubernetes(self._with_own_writes(world), error)
            raise
        return self.timings.look if _asks(decision.actions) else None

    def _with_own_writes(self, world: World) -> World:
        """Return the world with the object as it is after what was written: its status is to be told of that one.

        One whose spec changed meanwhile is left to the next run.
        """
        former = world.view
        view = self.known.applications.get(former.key) if former is not None else None
        if former is None or view is None or (view.uid, view.generation) != (former.uid, former.generation):
            return world
        return replace(world, view=view)

    async def _refused_by_kubernetes(self, world: World, error: KubeError | NotTaken) -> None:
        """Report what the API server refuses on the Application, or on the group that it would be shown beside."""
        if isinstance(error, KubeError) and not is_refused(error):
            return
        if world.view is None:
            await self.effects.warn_home(world, WRITE_REFUSED, f"application {world.key.name} from wadm: {error}")
            return
        await self.effects.event(world.view, WRITE_REFUSED, str(error))
        with contextlib.suppress(KubeError):  # the status may be refused too
            await self._tell(world, Decision(waits=Because(Reason.WRITE_REFUSED, str(error))))

    def _refused(self, world: World, decision: Decision) -> Refused | None:
        """Return what wadm refused of the same before, while it is too soon to ask again."""
        refused = self.known.refused.get(world.key)
        if refused is None:
            return None
        found = world.snapshot.object
        same = found is not None and (refused.digest, refused.undeploy) == (found.digest, found.undeploy)
        if not same or not _asks(decision.actions):
            del self.known.refused[world.key]
            return None
        return refused if time.monotonic() < refused.again else None

    def _refuse(self, world: World, error: Exception) -> Refused:
        """Remember what wadm refused, or NATS."""
        refusal = Refusal.TOO_LARGE if isinstance(error, TooLargeError) else Refusal.REJECTED
        if isinstance(error, WadmRefusedError):
            refusal = error.refusal
        found, former = world.snapshot.object, self.known.refused.get(world.key)
        times = 1 if former is None else former.times + 1
        backoff = Backoff(2 * self.timings.refused_first, self.timings.refused_most)
        wait = backoff.cap if refusal in _LASTING else backoff.bound(times)
        digest, undeploy = (found.digest, found.undeploy) if found is not None else ("", False)
        refused = Refused(digest, undeploy, refusal, str(error), time.monotonic() + wait, times)
        self.known.refused[world.key] = refused
        _log.warning("an application is refused", application=str(world.key), reason=refusal.value, message=str(error))
        return refused

    async def _tell(self, world: World, decision: Decision, refused: Refused | None = None) -> float | None:
        """Write the status where it differs, and say the facts; returns when to say what could not be said."""
        key, view = world.key, world.view
        if view is None:
            if world.model is None:
                self.known.forget(key)
            return await self._say_gone(key)
        if view.object.deleting and not view.object.finalizer:
            return None
        if (wait := self._spared(key, decision)) is not None:
            return wait
        won, lost = self.known.won.get(key), self.known.lost.get(key)
        seen = Seen(view, world.snapshot, decision, key.mark, world.model, world.said, refused, world.why, won, lost)
        status = await self._write(world, seen)
        if seen.recorded is not None:
            self.known.won.pop(key, None)
            self.known.lost.pop(key, None)
            self.known.told.pop(key, None)
        overridden = status.get("overridden")
        return await self._say(
            key,
            view.key,
            facts_of(
                _identity(world, view),
                view.object,
                decision,
                Lost(Side(overridden["side"]), overridden["version"]) if overridden else None,
                (refused.refusal.value, refused.message) if refused is not None else None,
            ),
        )

    def _spared(self, key: Key, decision: Decision) -> float | None:
        """Return for how long it is not said yet that wadm is away, None if it is, or wadm is there."""
        if decision.waits is None or decision.waits.reason is not Reason.WADM_AWAY:
            self.known.away.pop(key, None)
            return None
        now = time.monotonic()
        left = self.known.away.setdefault(key, now) + self.timings.told - now
        return left if left > 0 else None

    async def _write(self, world: World, seen: Seen) -> Json:
        former = seen.view.status_fields()
        status = status_of(seen)
        if patch := patch_of(former, status):
            attributes = {"trellis.application": str(world.key)}
            with self.stories.span(world.key, f"tell {world.key}", None, attributes):
                await self.effects.status(world, seen.view, patch)
                for reason, message in news_of(former, status):
                    await self.effects.event(seen.view, reason, message)
        return status

    async def _duplicate(self, world: World, other: ApplicationView) -> None:
        """Tell of an object that it names the same application as an older one."""
        assert world.view is not None  # there are others
        part = replace(world, view=other, snapshot=replace(world.snapshot, object=other.object))
        message = f"{world.view.key} is the same application of lattice {name_of(world.key.mark)}, older: delete one"
        because = Because(Reason.DUPLICATE, message)
        if other.object.deleting:
            await self.effects.apply(part, [RemoveFinalizer(because)] if other.object.finalizer else [])
            return
        seen = Seen(other, part.snapshot, Decision(waits=because), world.key.mark, world.model, world.said)
        await self._write(part, seen)

    async def _forced(self, key: Key, view: ApplicationView) -> None:
        """See to it that what was let go by force does not come back as if wash had put it."""
        world = self.known.world(key)
        base, model = view.object.base, world.model
        unknown = world.snapshot.wadm is Absence.AWAY
        if base is not None and (model is not None or unknown):
            revision = max(revision_of(view), 0 if model is None else model.revision)
            why = "somebody took its finalizer away"
            await self.effects.bury(view, view.shown, base.bucket, revision, why)
        self.known.forced.pop(key, None)

    async def _say_gone(self, key: Key) -> float | None:
        """Say of every object of this application that is gone that it is."""
        for place in [place for place in self.said.facts if place not in self.known.applications]:
            if any(key.name in {fact.application, place} for fact in self.said.facts.get(place, {}).values()):
                wait = await self._publish(key, self.said.gone(place))
                if wait is not None:
                    return wait
        return None

    async def _say(self, key: Key, place: str, holds: Iterable[Due]) -> float | None:
        return await self._publish(key, self.said.due(place, holds))

    async def _publish(self, key: Key, due: Iterable[Due]) -> float | None:
        try:
            with self.stories.follow(key):
                for one in due:
                    await self.bus.publish(one.fact, dedup=one.dedup)
                    self.said.note(one.fact)
        except BusUnavailable:
            return self.timings.publish
        return None


def _identity(world: World, view: ApplicationView) -> Identity:
    lattice = name_of(world.key.mark) or view.shown
    return Identity(
        view.namespace, view.name, view.uid, view.resource_version, view.generation, lattice, view.application
    )


def _is_nowhere(error: Exception) -> bool:
    """Say whether there is no place for an Application: its home is going, or the kind is not defined any more."""
    return isinstance(error, NotFound) or (isinstance(error, KubeError) and is_terminating(error))


def _asks(actions: Iterable[Action]) -> bool:
    return any(isinstance(action, _ASKED_OF_WADM) for action in actions)


def _soonest(*waits: float | None) -> float | None:
    return min((wait for wait in waits if wait is not None), default=None)
