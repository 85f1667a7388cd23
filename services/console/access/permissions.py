"""Whether a viewer may see what something is about: SelfSubjectAccessReviews, made as him, kept for a few seconds.

In: a connection that is the viewer's, rights. Out: yes or no. Called by whatever hands on what comes from the bus,
which the console reads with a user of its own. Invariants: an answer is believed for ``Timings.rights`` and no longer;
one that cannot be had is no; all who ask the same at once share a question; what is kept is bounded.
Source: authorization.k8s.io/v1, and RBAC: who may get all objects of a kind may get each.
"""

from __future__ import annotations

import asyncio
import time
from collections import OrderedDict
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, replace
from typing import Any, Final

import orjson

from console.domain.limits import REVIEWS_AT_ONCE, RIGHTS_KEPT
from console.timings import Timings
from trellis.kube.client import Kube
from trellis.kube.errors import Call, KubeError
from trellis.kube.resources import Resource
from trellis.kube.transport import HttpRequest
from trellis.telemetry import get_logger

GROUP: Final = "console.trellis.dev"
"""Of rights to what is no object. There is no such API: a Role may name it all the same."""
_PATH: Final = "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews"

_log = get_logger(__name__)


@dataclass(frozen=True, slots=True)
class Right:
    """To get one object, or all of a namespace (``name`` ""), or all there are (``namespace`` "", too)."""

    group: str
    resource: str
    namespace: str = ""
    name: str = ""

    def __str__(self) -> str:
        """Return ``get nodes/n1``, ``get pods/p in namespace a``."""
        named = f"{self.resource}.{self.group}" if self.group else self.resource
        what = f"{named}/{self.name}" if self.name else named
        return f"get {what}" + (f" in namespace {self.namespace}" if self.namespace else "")


TRACES: Final = Right(GROUP, "traces")
"""To see whole traces: a span names what it pleases."""
MESSAGES: Final = Right(GROUP, "messages")
"""To see what comes from the bus and names no object."""


def lattice_right(lattice: str) -> Right:
    """Return the right to see what is said in a lattice. Its name is all that a copy of an event tells of it."""
    return Right(GROUP, "lattices", name=lattice)


def right_to(resource: Resource, namespace: str, name: str) -> Right:
    """Return the right to get an object."""
    return Right(resource.group, resource.plural, namespace if resource.namespaced else "", name)


class Rights:
    """What one viewer may get, as far as it was asked."""

    def __init__(
        self,
        kube: Kube,
        *,
        timings: Timings = Timings(),  # noqa: B008 - frozen
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._kube = kube
        self._timings: Final = timings
        self._clock = clock
        self._known: OrderedDict[Right, tuple[bool, float]] = OrderedDict()
        self._asking: dict[Right, asyncio.Task[bool]] = {}
        self._at_once = asyncio.Semaphore(REVIEWS_AT_ONCE)

    async def allowed(self, right: Right) -> bool:
        """Return whether the viewer has a right, or a wider one that it is a part of; False if nobody can say."""
        for wider in _from_wide(right):
            if await self._has(wider):
                return True
        return False

    async def lacking(self, wanted: Iterable[Right]) -> list[str]:
        """Return those of some permissions that the viewer does not have: ``get nodes``."""
        rights = [*wanted]
        found = await asyncio.gather(*(self.allowed(right) for right in rights))
        return [str(right) for right, allowed in zip(rights, found, strict=True) if not allowed]

    async def _has(self, right: Right) -> bool:
        known = self._known.get(right)
        if known is not None and self._clock() - known[1] < self._timings.rights:
            return known[0]
        task = self._asking.get(right)
        if task is None:
            task = self._asking[right] = asyncio.create_task(self._find_out(right), name="review")
            task.add_done_callback(lambda done: self._asked(right, done))
        # Whoever asked first may be cancelled; the others wait for the same answer.
        return await asyncio.shield(task)

    def _asked(self, right: Right, task: asyncio.Task[bool]) -> None:
        self._asking.pop(right, None)
        if not task.cancelled():
            task.exception()  # whoever waited for it got it; nobody may be left who does

    async def _find_out(self, right: Right) -> bool:
        try:
            async with self._at_once:
                answer = await self._ask(right)
        except (KubeError, orjson.JSONDecodeError) as error:
            # Not kept: it is asked again with the next message.
            _log.debug("what a viewer may see cannot be asked", error=type(error).__name__)
            return False
        self._known[right] = (answer, self._clock())
        self._known.move_to_end(right)
        if len(self._known) > RIGHTS_KEPT:
            self._known.popitem(last=False)
        return answer

    async def _ask(self, right: Right) -> bool:
        call = Call("CREATE", "SelfSubjectAccessReview", "selfsubjectaccessreviews")
        request = HttpRequest("POST", _PATH, body=orjson.dumps(make_review(right)))
        status = orjson.loads(await self._kube.ask(call, request, timeout=self._timings.review)).get("status") or {}
        return bool(status.get("allowed")) and not status.get("denied")


def make_review(right: Right) -> dict[str, Any]:
    """Return the question whether whoever asks has a right."""
    asked = {"verb": "get", "group": right.group, "resource": right.resource}
    asked |= {"namespace": right.namespace} if right.namespace else {}
    asked |= {"name": right.name} if right.name else {}
    return {
        "apiVersion": "authorization.k8s.io/v1",
        "kind": "SelfSubjectAccessReview",
        "spec": {"resourceAttributes": asked},
    }


def _from_wide(right: Right) -> Iterator[Right]:
    """Yield the rights that hold one, the widest first: who looks at everything is asked about once a kind."""
    if right.namespace or right.name:
        yield replace(right, namespace="", name="")
    if right.namespace and right.name:
        yield replace(right, name="")
    yield right
