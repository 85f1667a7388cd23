"""The circuit breaker: permits or pauses deletions, with its state in Kubernetes.

In: deletions that a service decided on. Out: a permission, or the seconds to wait. Called by each ``apply``; re-created
for each leadership term. Invariants: a permission is stored by compare-and-swap before it is given, so it survives
crashes and leader changes; without an answer of the API server nothing is deleted; a record that is deleted or
corrupted while its content is cached here is restored, any other unreadable record counts as open. Without deletions,
it requires one read per term.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final, Protocol, TypeVar

from trellis.kube.client import Kube
from trellis.kube.errors import AlreadyExists, Conflict, KubeError, NotFound, NotLeading
from trellis.kube.informer import Informer
from trellis.kube.recorder import EventRecorder, ObjectRef
from trellis.kube.resources import CONFIGMAPS
from trellis.kube.timings import BreakerTimings
from trellis.kube.unhurried_clock import UnhurriedClock
from trellis.limits.breaker import Deletion, Limits, State, decide, paused_message, settled, unreadable, without_ended
from trellis.limits.breaker_record import make_breakers, read_breakers
from trellis.names import circuit_breaker_name, short_hash
from trellis.telemetry import get_logger

DELETION_PAUSED: Final = "DeletionPaused"
"""Reason of the Event on an object whose deletion is paused."""
_TRIES: Final = 5
_WRITTEN_ELSEWHERE: Final = (AlreadyExists, Conflict, NotFound)
_FAILED: Final = (KubeError, NotLeading)

_log = get_logger(__name__)


@dataclass(frozen=True, slots=True)
class Scope:
    """Scope of the circuit breakers of a service. ``populations``: by kind, number of objects that could be deleted.

    ``present``: by kind, names by uid of the objects whose deletion can be paused, None while they are unknown.
    """

    service: str
    namespace: str
    populations: Mapping[str, Callable[[], int]]
    present: Mapping[str, Callable[[], Mapping[str, str] | None]]


class Named(Protocol):
    """A watched object."""

    @property
    def name(self) -> str: ...  # noqa: D102

    @property
    def uid(self) -> str: ...  # noqa: D102


N = TypeVar("N", bound=Named)


def named(informer: Informer[N]) -> dict[str, str] | None:
    """Return the names by uid of the objects of a kind, None while they are unknown."""
    return {item.uid: item.name for item in informer.objects.values()} if informer.known else None


@dataclass(eq=False, slots=True)
class _Request:
    """One deletion that waits for its answer."""

    target: Deletion
    permitted: bool | None = None
    error: KubeError | NotLeading | None = None

    @property
    def waits(self) -> bool:
        return self.permitted is None and self.error is None


@dataclass(eq=False)
class Breaker:
    """The circuit breakers of one service. ``released`` is called when one closes: it enqueues paused deletions."""

    kube: Kube
    recorder: EventRecorder
    scope: Scope
    released: Callable[[], None]
    limits: Limits = field(default_factory=Limits)
    clock: Callable[[], float] | None = None
    timings: BreakerTimings | None = None

    def __post_init__(self) -> None:
        self._timings = self.timings or self.kube.timings.breaker
        self._now = self.clock or UnhurriedClock(self.kube.now)
        self._states: dict[str, State] = {}  # as stored
        self._version: str | None = None
        self._known = False  # the states are those of the API server, to the knowledge of this process
        self._repair = False  # the stored record is missing or corrupted and has to be restored
        self._lock = asyncio.Lock()
        self._requests: list[_Request] = []
        self._reported: set[tuple[str, float]] = set()
        self._withdrawn: set[tuple[str, str]] = set()  # kind and token, until the record is without them
        self._changed = asyncio.Event()
        self._complained = ""

    async def admit(self, target: Deletion) -> float | None:
        """Return None if the object can be deleted now, else the seconds until the next attempt.

        Raises:
            KubeError: the answer is unknown, so the object must not be deleted; the queue retries.
            NotLeading: the lease was lost.
        """
        request = _Request(target)
        if (key := (target.kind, target.token)) in self._withdrawn:
            self._withdrawn.discard(key)
            await self._store_answer(request)
        elif not (self._known and self._answer([request])):
            await self._store_answer(request)
        if request.error is not None:
            raise request.error
        return None if request.permitted else await self._report_pause(target)

    def withdraw(self, kind: str, uid: str) -> None:
        """Withdraw a paused deletion: the object exists and is no longer to be deleted."""
        opening = self._states.get(kind, State()).opening
        if opening is not None and (token := short_hash(uid)) in opening.paused:
            self._withdrawn.add((kind, token))

    async def run(self) -> None:
        """Read the state of a former leader, and detect when a user closes a circuit breaker; until cancelled."""
        gauges = [(self.kube.telemetry.service, kind) for kind in self.scope.populations]
        try:
            while True:
                self._changed.clear()
                await self._look()
                if self._known and not self._open_kinds():
                    await self._changed.wait()
                await asyncio.sleep(self._timings.poll)
        finally:
            for labels in gauges:
                self.kube.telemetry.metrics.circuit_breaker_open.remove(*labels)

    # --- answers ---

    async def _store_answer(self, request: _Request) -> None:
        """Answer the request together with all that wait: one write for a burst."""
        self._requests.append(request)
        try:
            async with self._lock:
                if request.waits:
                    await self._answer_waiting()
        finally:
            self._requests.remove(request)

    async def _answer_waiting(self) -> None:
        requests = [request for request in self._requests if request.waits]
        try:
            await self._agree(requests)
        except _FAILED as error:
            self._known = False  # the write may have succeeded
            for request in requests:
                request.error = error

    async def _agree(self, requests: Sequence[_Request]) -> None:
        """Store the answers in Kubernetes before they are given; after a conflict, re-read the record first."""
        for left in reversed(range(_TRIES)):
            if not self._known:
                await self._read()
            try:
                states, answers = self._next(requests)
                if self._repair or states != self._settled():
                    await self._save(states)
            except _WRITTEN_ELSEWHERE:
                self._known = False
                if not left:
                    raise
                continue
            self._accept(states)
            for request, answer in zip(requests, answers, strict=True):
                request.permitted = answer
            return

    def _answer(self, requests: Sequence[_Request]) -> bool:
        """Answer if the stored state does not change: deletions that are already paused, permitted or counted."""
        states, answers = self._next(requests)
        if states != self._settled():
            return False
        for request, answer in zip(requests, answers, strict=True):
            request.permitted = answer
        return True

    def _next(self, requests: Sequence[_Request]) -> tuple[dict[str, State], list[bool]]:
        """Return the states after these requests, and the answers in the order of the requests."""
        now = self._now()
        states, answers = self._settled(), dict[int, bool]()
        for kind in sorted({request.target.kind for request in requests}):
            own = [request for request in requests if request.target.kind == kind]
            state, decisions = decide(
                states.get(kind, State()),
                [request.target for request in own],
                self.scope.populations[kind](),
                now,
                self.limits,
            )
            if state != State() or kind in states:
                states[kind] = state
            answers |= {id(request): answer for request, answer in zip(own, decisions, strict=True)}
        return states, [answers[id(request)] for request in requests]

    def _settled(self) -> dict[str, State]:
        now = self._now()
        return {kind: settled(state, now, self.limits) for kind, state in self._states.items()}

    # --- the record in Kubernetes ---

    async def _read(self) -> None:
        """Read the record. The cached state replaces a missing or corrupted record."""
        try:
            found = await self.kube.get(CONFIGMAPS, circuit_breaker_name(self.scope.service), self.scope.namespace)
        except NotFound:
            self._version, stored = None, dict[str, State | None]()
        else:
            self._version, stored = found["metadata"]["resourceVersion"], read_breakers(found)
        known = self._states
        self._states = {kind: state for kind, state in stored.items() if state is not None}
        for kind in (set(known) | {kind for kind, state in stored.items() if state is None}) - set(self._states):
            if kind not in known:
                _log.error("circuit breaker record invalid, deletions paused", kind=kind)
            self._states[kind] = known.get(kind) or unreadable(self._now(), self.limits)
            self._repair = True
        self._known = True

    async def _save(self, states: Mapping[str, State]) -> None:
        manifest = make_breakers(self.scope.service, self.scope.namespace, states, self._version)
        if self._version is None:
            written = await self.kube.create(CONFIGMAPS, manifest)
        else:
            written = await self.kube.replace(CONFIGMAPS, manifest)
        self._version, self._repair = written["metadata"]["resourceVersion"], False

    async def _look(self) -> None:
        """Re-read the record; after an error, the next poll retries."""
        before = self._open_kinds()
        try:
            async with self._lock:
                await self._read()
                if self._repair:
                    await self._save(self._states)
                await self._forget_ended()
        except _FAILED as error:
            self._known = False
            if self._complained != (reason := type(error).__name__):
                self._complained = reason
                _log.warning("circuit breakers cannot be read, deletions paused", error=str(error))
            return
        self._complained = ""
        self._show()
        self._on_closed(before - self._open_kinds())

    async def _forget_ended(self) -> None:
        """Remove deletions that are no longer paused from the record; after a conflict, the next poll retries."""
        kinds = self._open_kinds() & self.scope.present.keys()
        found = {kind: there for kind in kinds if (there := self.scope.present[kind]()) is not None}
        ended = {key for key in self._withdrawn if key[0] in found}
        states = dict(self._states)
        for kind, there in found.items():
            states[kind] = without_ended(states[kind], there, {token for of, token in ended if of == kind})
        with contextlib.suppress(*_WRITTEN_ELSEWHERE):
            if states != self._states:
                await self._save(states)
                self._states = states
            self._withdrawn -= ended

    # --- logs, metrics and Events ---

    def _accept(self, states: Mapping[str, State]) -> None:
        """Set the stored states; log one line when a circuit breaker opens."""
        before = self._open_kinds()
        self._states = dict(states)
        for kind in self._open_kinds() - before:
            opening = states[kind].opening
            assert opening is not None
            _log.error(
                "circuit breaker opened, deletions paused",
                kind=kind,
                reason=opening.reason,
                seconds=round(opening.until - opening.since),
                close=f"trellis circuit-breaker close {self.scope.service.replace('_', '-')} {kind}",
            )
            self._changed.set()
        self._show()

    def _on_closed(self, kinds: set[str]) -> None:
        for kind in sorted(kinds):
            closing = self._states.get(kind, State()).closing
            by = closing.by if closing and closing.until > self._now() else "time"
            _log.warning("circuit breaker closed, retrying the paused deletions", kind=kind, by=by)
        if kinds:
            self._reported.clear()
            self.released()

    def _open_kinds(self) -> set[str]:
        return {kind for kind, state in self._settled().items() if state.opening is not None}

    def _show(self) -> None:
        telemetry, open_kinds = self.kube.telemetry, self._open_kinds()
        for kind in self.scope.populations:
            telemetry.metrics.circuit_breaker_open.labels(telemetry.service, kind).set(kind in open_kinds)

    async def _report_pause(self, target: Deletion) -> float:
        """Record once per opening, by an Event, that the deletion is paused; return the remaining seconds."""
        opening = self._settled().get(target.kind, State()).opening
        if opening is None:
            return self._timings.least  # closed in the meantime
        if (key := (target.token, opening.since)) not in self._reported:
            self._reported.add(key)
            telemetry = self.kube.telemetry
            telemetry.metrics.circuit_breaker_paused_total.labels(telemetry.service, target.kind).inc()
            await self.recorder.record(
                regarding=ObjectRef(target.api_version, target.object_kind, target.name, target.uid, target.namespace),
                type="Warning",
                reason=DELETION_PAUSED,
                message=paused_message(target, opening, self.scope.service),
            )
        return max(self._timings.least, opening.until - self._now())
