"""Access checks before a delivery: cached SubjectAccessReviews of the accounts of controllers.

In: a user, a resource and a namespace. Out: allowed, denied, or None for unknown. Called by ``shared_watches`` before
each delivery. Invariants: the cache TTL of an answer is ``ReviewTimings.keep``; an API server that does not answer is
not a denial; concurrent equal requests share one review; a namespace has at most its share of the concurrent reviews,
for any number of watches and denials of its accounts; the cache is bounded.
Source: authorization.k8s.io/v1. A review contains the groups of the account, which the API server does not add.
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
from trellis.runtime.fair_share import FairShare
from trellis.telemetry import get_logger

MOST_USERS: Final = 20_000
MOST_PLACES: Final = 4_096
"""Cached answers per user, each for a resource in a namespace. One controller can watch 1,024 of them."""
_AT_ONCE: Final = 16
_EACH: Final = 4
"""Concurrent reviews per namespace of the accounts."""
_VERBS: Final = ("list", "watch")
_ACCOUNT: Final = "system:serviceaccount:"
_PATH: Final = "/apis/authorization.k8s.io/v1/subjectaccessreviews"

_log = get_logger(__name__)
_Place = tuple[Resource, str]


@dataclass(eq=False, slots=True)
class _Answers:
    """Cached answers for one user, and reviews in progress.

    ``forgot_at``: time of the last invalidation; ``until``: time of the next one.
    """

    forgot_at: float = -math.inf
    until: float = math.inf
    known: OrderedDict[_Place, tuple[bool, float]] = field(default_factory=OrderedDict)
    asking: dict[_Place, asyncio.Task[bool | None]] = field(default_factory=dict)


class Reviews:
    """Access reviews, by user."""

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
        self._at_once = FairShare(_AT_ONCE, _EACH)
        self._attempts = Attempts(Backoff(timings.retry_first, timings.retry_most))
        self._not_before = 0.0
        self.failing = ""
        """Error of the last review that failed; "" after a successful one."""

    async def allowed(self, user: str, resource: Resource, namespace: str) -> bool | None:
        """Return whether a user may list and watch a resource in a namespace ("": cluster-scoped, or all).

        None: the review failed; a later call retries it.
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
            task.add_done_callback(lambda done: _review_done(answers, place, done))
        # A cancelled caller must not cancel the review that other callers wait for.
        return await asyncio.shield(task)

    def last(self, user: str, resource: Resource, namespace: str) -> bool | None:
        """Return the last answer of any age, without a review."""
        found = self._found(user, (resource, namespace))
        return None if found is None else found[0]

    def forget(self, user: str) -> None:
        """Invalidate all answers for a user after a denied request, including reviews in progress.

        At most once per ``ReviewTimings.forget``, otherwise delayed: each call of a guest could cause new reviews.
        """
        if (answers := self._users.get(user)) is None:
            return
        answers.until = answers.forgot_at + self._timings.forget
        self._expire(user, answers)

    def _found(self, user: str, place: _Place) -> tuple[bool, float] | None:
        answers = self._users.get(user)
        return None if answers is None else self._expire(user, answers).known.get(place)

    def _expire(self, user: str, answers: _Answers) -> _Answers:
        """Return the valid answers for a user: none if the invalidation is due."""
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
            _log.info("access reviews recovered")
        self.failing = ""
        self._attempts.reset()
        answers.known[place] = (allowed, self._clock())
        answers.known.move_to_end(place)
        if len(answers.known) > MOST_PLACES:
            answers.known.popitem(last=False)
        return allowed

    def _failed(self, reason: str) -> None:
        self._not_before = self._clock() + self._attempts.next()
        if not self.failing:
            _log.warning("access reviews fail, retrying", error=reason)
        self.failing = reason

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


def _review_done(answers: _Answers, place: _Place, task: asyncio.Task[bool | None]) -> None:
    answers.asking.pop(place, None)
    if not task.cancelled():
        task.exception()  # raised in the waiting callers; mark it as retrieved if there are none


def make_review(user: str, resource: Resource, namespace: str, verb: str) -> dict[str, object]:
    """Return a SubjectAccessReview for a user and a verb, with the groups of a ServiceAccount."""
    attributes = {"group": resource.group, "version": resource.version, "resource": resource.plural, "verb": verb}
    spec: dict[str, object] = {
        "user": user,
        "groups": groups_of(user),
        "resourceAttributes": attributes | ({"namespace": namespace} if namespace else {}),
    }
    return {"apiVersion": "authorization.k8s.io/v1", "kind": "SubjectAccessReview", "spec": spec}


def _owner(user: str) -> str:
    """Return the owner of a share of the reviews: the namespace of a ServiceAccount, or the user."""
    return user.removeprefix(_ACCOUNT).partition(":")[0] if user.startswith(_ACCOUNT) else user


def groups_of(user: str) -> list[str]:
    """Return the groups of an impersonated user in the API server."""
    everyone = "system:authenticated"
    if not user.startswith(_ACCOUNT):
        return [everyone]
    namespace = user.removeprefix(_ACCOUNT).partition(":")[0]
    return ["system:serviceaccounts", f"system:serviceaccounts:{namespace}", everyone]
