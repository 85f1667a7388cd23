"""Whether an account may see what is about to be delivered: SubjectAccessReviews, asked when there is need, and kept.

In: a user, a resource and a namespace. Out: yes, no, or None for "nobody knows yet". Called by ``shared_watches``,
before each delivery. Invariants: an answer is believed for ``ReviewTimings.keep`` and no longer; an API server that
does not answer has refused nothing; all who ask the same at once share one question; of those that are asked at a time
no namespace has more than its share, however much its accounts watch or are refused; what is kept is bounded.
Source: authorization.k8s.io/v1. A review knows of an account what it is told: its groups have to be said.
"""

from __future__ import annotations

import asyncio
import math
import time
from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Final

import orjson

from controller_host.timings import ReviewTimings
from trellis.kube.client import Kube
from trellis.kube.errors import Call, KubeError
from trellis.kube.resources import Resource
from trellis.kube.transport import HttpRequest
from trellis.limits.backoff import Attempts, Backoff
from trellis.runtime.fair_share import Shares
from trellis.telemetry import get_logger

MOST_USERS: Final = 20_000
MOST_PLACES: Final = 4_096
"""Answers kept of one user: each is of a resource in a namespace. One controller may watch 1,024 of them."""
_AT_ONCE: Final = 16
_EACH: Final = 4
"""Of these, about the accounts of one namespace."""
_VERBS: Final = ("list", "watch")
_ACCOUNT: Final = "system:serviceaccount:"
_PATH: Final = "/apis/authorization.k8s.io/v1/subjectaccessreviews"

_log = get_logger(__name__)
_Place = tuple[Resource, str]


@dataclass(eq=False, slots=True)
class _Answers:
    """What is known of one user, and what is being asked about it.

    ``forgot_at``: when what was known before was forgotten; ``until``: when this is to be.
    """

    forgot_at: float = -math.inf
    until: float = math.inf
    known: OrderedDict[_Place, tuple[bool, float]] = field(default_factory=OrderedDict)
    asking: dict[_Place, asyncio.Task[bool | None]] = field(default_factory=dict)


class Reviews:
    """Answers of the API server, by user."""

    def __init__(
        self,
        kube: Kube,
        *,
        timings: ReviewTimings = ReviewTimings(),  # noqa: B008 - frozen
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._timings: Final = timings
        self._kube = kube
        self._clock = clock
        self._users: OrderedDict[str, _Answers] = OrderedDict()
        self._at_once = Shares(_AT_ONCE, _EACH)
        self._attempts = Attempts(Backoff(timings.retry_first, timings.retry_most))
        self._not_before = 0.0
        self.failing = ""
        """Why the API server cannot be asked now; "" if it can."""

    async def allowed(self, user: str, resource: Resource, namespace: str) -> bool | None:
        """Return whether a user may list and watch a resource in a namespace ("" for what has none, or for all).

        None: the API server could not be asked; it will be again.
        """
        place = (resource, namespace)
        found = self._found(user, place)
        if found is not None and self._clock() - found[1] < self._timings.keep:
            return found[0]
        answers = self._answers(user)
        task = answers.asking.get(place)
        if task is None:
            if self._clock() < self._not_before:
                return None
            task = answers.asking[place] = asyncio.create_task(self._find_out(user, answers, place), name="review")
            task.add_done_callback(lambda done: _asked(answers, place, done))
        # Whoever asked first may be cancelled; the others wait for the same answer.
        return await asyncio.shield(task)

    def last(self, user: str, resource: Resource, namespace: str) -> bool | None:
        """Return what was found out last, however long ago, without asking."""
        found = self._found(user, (resource, namespace))
        return None if found is None else found[0]

    def forget(self, user: str) -> None:
        """Believe nothing of a user any more: it was refused something. What is being asked does not count either.

        Once a second at most, else each call of a guest could have everything asked again: it is later then.
        """
        if (answers := self._users.get(user)) is None:
            return
        answers.until = answers.forgot_at + self._timings.forget
        self._expire(user, answers)

    def _found(self, user: str, place: _Place) -> tuple[bool, float] | None:
        answers = self._users.get(user)
        return None if answers is None else self._expire(user, answers).known.get(place)

    def _expire(self, user: str, answers: _Answers) -> _Answers:
        """Return what counts of a user: nothing if it is time to forget that."""
        now = self._clock()
        if now >= answers.until:
            answers = self._users[user] = _Answers(forgot_at=now)
        return answers

    def _answers(self, user: str) -> _Answers:
        answers = self._users.get(user)
        if answers is None:
            answers = self._users[user] = _Answers()
            if len(self._users) > MOST_USERS:
                self._users.popitem(last=False)
        self._users.move_to_end(user)
        return answers

    async def _find_out(self, user: str, answers: _Answers, place: _Place) -> bool | None:
        try:
            async with self._at_once.hold(_owner(user)):
                allowed = await self._review(user, place)
        except KubeError as error:
            self._failed(self._kube.describe_error(error))
            return None
        except orjson.JSONDecodeError:
            self._failed(f"the answer of {self._kube.server} is not JSON")
            return None
        if self.failing:
            _log.info("access reviews work again")
        self.failing = ""
        self._attempts.reset()
        answers.known[place] = (allowed, self._clock())
        answers.known.move_to_end(place)
        if len(answers.known) > MOST_PLACES:
            answers.known.popitem(last=False)
        return allowed

    def _failed(self, why: str) -> None:
        self._not_before = self._clock() + self._attempts.next()
        if not self.failing:
            _log.warning("access reviews fail, retrying", error=why)
        self.failing = why

    async def _review(self, user: str, place: _Place) -> bool:
        for verb in _VERBS:
            if not await self._ask(user, place, verb):
                return False
        return True

    async def _ask(self, user: str, place: _Place, verb: str) -> bool:
        resource, namespace = place
        call = Call("CREATE", "SubjectAccessReview", "subjectaccessreviews", namespace)
        body = orjson.dumps(make_review(user, resource, namespace, verb))
        answer = await self._kube.ask(call, HttpRequest("POST", _PATH, body=body), timeout=self._timings.ask)
        status = orjson.loads(answer).get("status") or {}
        return bool(status.get("allowed")) and not status.get("denied")


def _asked(answers: _Answers, place: _Place, task: asyncio.Task[bool | None]) -> None:
    answers.asking.pop(place, None)
    if not task.cancelled():
        task.exception()  # whoever waited for it got it; nobody may be left who does


def make_review(user: str, resource: Resource, namespace: str, verb: str) -> dict[str, object]:
    """Return the question whether a user may do something; of a ServiceAccount with the groups that it is in."""
    attributes = {"group": resource.group, "version": resource.version, "resource": resource.plural, "verb": verb}
    spec: dict[str, object] = {
        "user": user,
        "groups": groups_of(user),
        "resourceAttributes": attributes | ({"namespace": namespace} if namespace else {}),
    }
    return {"apiVersion": "authorization.k8s.io/v1", "kind": "SubjectAccessReview", "spec": spec}


def _owner(user: str) -> str:
    """Return whose share of the questions it is: a namespace's, or that of a user who is in none."""
    return user.removeprefix(_ACCOUNT).partition(":")[0] if user.startswith(_ACCOUNT) else user


def groups_of(user: str) -> list[str]:
    """Return the groups that the API server puts a user in who is impersonated."""
    everyone = "system:authenticated"
    if not user.startswith(_ACCOUNT):
        return [everyone]
    namespace = user.removeprefix(_ACCOUNT).partition(":")[0]
    return ["system:serviceaccounts", f"system:serviceaccounts:{namespace}", everyone]
