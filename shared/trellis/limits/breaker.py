"""The decision of a circuit breaker for one kind of one service, without IO.

Pure. In: recent deletions, requested deletions, the number of objects, the time (Unix seconds). Out: permitted
deletions, and the next state. Called by ``trellis.kube.breaker`` and the command line. Invariant: within any 60 s at
most 5 objects, or 10 % of the kind if that is more, are permitted, unless a user closed the circuit breaker; a state
from a clock that was ahead never lasts longer than intended. Source: ADR 11.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from typing import Final

from trellis.names import short_hash

EXAMPLES: Final = 10
"""Maximum number of names of paused objects that a state stores for users; further objects are counted."""
UNREADABLE: Final = "the circuit breaker record is invalid"


@dataclass(frozen=True, slots=True)
class Limits:
    """Thresholds: the circuit breaker opens above ``objects`` and ``percent`` of a kind within ``window`` seconds.

    ``open``: seconds until it closes by itself. ``pending``: seconds in which paused deletions may proceed after a user
    closed it.
    """

    objects: int = 5
    percent: int = 10
    window: float = 60.0
    open: float = 600.0
    pending: float = 600.0

    def allowed(self, population: int) -> int:
        """Return the number of objects that may be deleted in one window, out of ``population``."""
        return max(self.objects, population * self.percent // 100)


@dataclass(frozen=True, slots=True)
class Deletion:
    """One object and the requested action in words: ``removal of the labels of a ready node``."""

    kind: str
    name: str
    uid: str
    what: str
    api_version: str
    object_kind: str
    namespace: str | None = None

    @property
    def token(self) -> str:
        """Identity of the object in a state: short, as thousands may be paused at the same time."""
        return short_hash(self.uid)


@dataclass(frozen=True, slots=True)
class Admission:
    """Objects permitted at one time, and the number of objects of the kind at that time."""

    at: float
    population: int
    tokens: frozenset[str]


@dataclass(frozen=True, slots=True)
class Opening:
    """The period in which the circuit breaker is open; ``paused``: objects whose deletion is paused."""

    since: float
    until: float
    reason: str
    paused: frozenset[str] = frozenset()
    examples: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Closing:
    """A closing by a user: paused deletions are permitted ``until`` that time; with ``everything``, all deletions."""

    at: float
    until: float
    by: str
    everything: bool = False
    permitted: frozenset[str] = frozenset()


@dataclass(frozen=True, slots=True)
class State:
    """The circuit breaker of one kind. The last closing is kept to show its user; its permission expires."""

    admissions: tuple[Admission, ...] = ()
    opening: Opening | None = None
    closing: Closing | None = None


def settled(state: State, now: float, limits: Limits) -> State:
    """Return the state at this time, without expired entries.

    A time in the future was written by a clock that was ahead: the period starts now and keeps its length.
    """
    admissions = tuple(
        replace(admission, at=min(admission.at, now))
        for admission in state.admissions
        if now - admission.at < limits.window
    )
    opening, closing = state.opening, state.closing
    if opening is not None:
        since, until = _not_ahead(opening.since, opening.until, now)
        opening = replace(opening, since=since, until=until)
        opening = opening if now < opening.until else None
    if closing is not None:
        at, until = _not_ahead(closing.at, closing.until, now)
        closing = replace(closing, at=at, until=until)
        if now >= closing.until:
            closing = replace(closing, permitted=frozenset(), everything=False)
    return State(admissions, opening, closing)


def _not_ahead(begin: float, end: float, now: float) -> tuple[float, float]:
    """Return the period, moved to now if it would start later."""
    return (begin, end) if begin <= now else (now, now + (end - begin))


def decide(
    state: State, requested: Sequence[Deletion], population: int, now: float, limits: Limits
) -> tuple[State, list[bool]]:
    """Return the decision for each requested deletion, in order.

    Args:
        state: state as ``settled`` returned it for ``now``.
        requested: requested deletions of this kind.
        population: number of objects that could be deleted, including the requested ones.
        now: Unix seconds.
        limits: thresholds of the circuit breaker.

    Returns:
        The next state, which must be stored before any deletion, and one decision per request.
    """
    answers = []
    for target in requested:
        state, permitted = _decide_one(state, target, population, now, limits)
        answers.append(permitted)
    return state, answers


def _decide_one(state: State, target: Deletion, population: int, now: float, limits: Limits) -> tuple[State, bool]:
    token = target.token
    if _is_permitted(state.closing, token):
        return state, True
    if any(token in admission.tokens for admission in state.admissions):
        # Already counted: a retry after a failed write. It counts from now on, as only now may it take effect.
        rest = _without(state.admissions, token)
        return replace(state, admissions=_admitting(rest, token, population, now)), True
    if state.opening is not None:
        return replace(state, opening=_with_paused(state.opening, target)), False
    admitted = sum(len(admission.tokens) for admission in state.admissions)
    size = max([population, *(admission.population for admission in state.admissions)])
    if admitted < limits.allowed(size):
        return replace(state, admissions=_admitting(state.admissions, token, population, now)), True
    reason = f"more than {limits.allowed(size)} of {size} {target.kind} were to be deleted within {limits.window:.0f} s"
    opening = _with_paused(Opening(now, now + limits.open, reason), target)
    return replace(state, opening=opening), False


def _is_permitted(closing: Closing | None, token: str) -> bool:
    return closing is not None and (closing.everything or token in closing.permitted)


def _admitting(former: tuple[Admission, ...], token: str, population: int, now: float) -> tuple[Admission, ...]:
    """Add one object, to the last admission if that has the same time."""
    if former and former[-1].at == now and former[-1].population == population:
        last = former[-1]
        return (*former[:-1], replace(last, tokens=last.tokens | {token}))
    return (*former, Admission(now, population, frozenset({token})))


def _without(admissions: tuple[Admission, ...], token: str) -> tuple[Admission, ...]:
    rest = (replace(admission, tokens=admission.tokens - {token}) for admission in admissions)
    return tuple(item for item in rest if item.tokens)


def _with_paused(opening: Opening, target: Deletion) -> Opening:
    if target.token in opening.paused:
        return opening
    examples = opening.examples
    if len(examples) < EXAMPLES:
        examples = (*examples, target.name)
    return replace(opening, paused=opening.paused | {target.token}, examples=examples)


def without_ended(state: State, present: Mapping[str, str], withdrawn: Collection[str]) -> State:
    """Return the state without paused objects that no longer exist, or whose deletion was withdrawn.

    ``present``: names of the existing objects by UID; ``withdrawn``: tokens. The circuit breaker stays open.
    """
    if state.opening is None:
        return state
    names = {short_hash(uid): name for uid, name in present.items()}
    paused = (state.opening.paused & names.keys()) - set(withdrawn)
    if paused == state.opening.paused:
        return state
    examples = tuple(sorted(names[token] for token in paused)[:EXAMPLES])
    return replace(state, opening=replace(state.opening, paused=paused, examples=examples))


def close(state: State, *, by: str, now: float, everything_for: float | None, limits: Limits) -> State:
    """Return the state after a user closed the circuit breaker.

    Only the paused deletions may proceed within the next ``limits.pending`` seconds; they do not count towards the next
    opening. With ``everything_for`` (seconds) all deletions of the kind may, also before a mass deletion starts.
    """
    paused = state.opening.paused if state.opening else frozenset()
    former = state.closing.permitted if state.closing else frozenset()
    until = now + (limits.pending if everything_for is None else everything_for)
    closing = Closing(now, until, by, everything_for is not None, paused | former)
    return replace(state, opening=None, closing=closing)


def unreadable(now: float, limits: Limits) -> State:
    """Return the state that replaces an invalid stored one: open, as earlier deletions are unknown."""
    return State(opening=Opening(now, now + limits.open, UNREADABLE))


def moment(at: float) -> str:
    """Return a time for users: ``2026-01-31T12:00:00Z``."""
    return datetime.fromtimestamp(at, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def paused_message(target: Deletion, opening: Opening, service: str) -> str:
    """Return the message of the Event on a paused object."""
    return (
        f"{target.what} is paused until {moment(opening.until)}: {opening.reason}. "
        f"To permit it, run: trellis circuit-breaker close {service.replace('_', '-')} {target.kind}. "
        "If it is a mistake, revert its cause: this object was not changed"
    )
