"""Permissions of a viewer on objects: SelfSubjectAccessReviews with the identity of the viewer, cached for seconds.

In: a connection with the viewer's identity, permissions. Out: whether they are granted. Called for messages of the bus,
which the console reads with its own user. Invariants: a result is valid for ``Timings.permissions``; a failed review
denies; concurrent requests for the same permission share a review; the cache is bounded.
Source: authorization.k8s.io/v1, and RBAC: permission to get all objects of a kind includes each object.
"""

from __future__ import annotations

import asyncio
import time
from collections import OrderedDict
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, replace
from typing import Any, Final

import orjson

from console.domain.limits import PERMISSIONS_KEPT, REVIEWS_AT_ONCE
from console.timings import Timings
from trellis.kube.client import Kube
from trellis.kube.errors import Call, KubeError
from trellis.kube.resources import Resource
from trellis.kube.transport import HttpRequest
from trellis.telemetry import get_logger

GROUP: Final = "console.trellis.dev"
"""API group of virtual resources, which a Role can name although no server has them."""
_PATH: Final = "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews"

_log = get_logger(__name__)


@dataclass(frozen=True, slots=True)
class Permission:
    """Permission to get one object, all of a namespace (``name`` ""), or all of the cluster (``namespace`` "", too)."""

    group: str
    resource: str
    namespace: str = ""
    name: str = ""

    def __str__(self) -> str:
        """Return ``get nodes/n1``, ``get pods/p in namespace a``."""
        named = f"{self.resource}.{self.group}" if self.group else self.resource
        what = f"{named}/{self.name}" if self.name else named
        return f"get {what}" + (f" in namespace {self.namespace}" if self.namespace else "")


TRACES: Final = Permission(GROUP, "traces")
"""Read whole traces: spans can name any object."""
MESSAGES: Final = Permission(GROUP, "messages")
"""Read messages of the bus without an object."""


def lattice_permission(lattice: str) -> Permission:
    """Return the permission to read events of a lattice, by its name."""
    return Permission(GROUP, "lattices", name=lattice)


def permission_to(resource: Resource, namespace: str, name: str) -> Permission:
    """Return the permission to get an object."""
    return Permission(resource.group, resource.plural, namespace if resource.namespaced else "", name)


class ReviewedPermissions:
    """Reviewed permissions of one viewer."""

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
        self._known: OrderedDict[Permission, tuple[bool, float]] = OrderedDict()
        self._asking: dict[Permission, asyncio.Task[bool]] = {}
        self._at_once = asyncio.Semaphore(REVIEWS_AT_ONCE)

    async def allowed(self, permission: Permission) -> bool:
        """Return whether the viewer has a permission, or a wider one that contains it; False if the review fails."""
        for wider in _from_wide(permission):
            if await self._has(wider):
                return True
        return False

    async def lacking(self, wanted: Iterable[Permission]) -> list[str]:
        """Return those of the permissions that the viewer does not have: ``get nodes``."""
        permissions = [*wanted]
        found = await asyncio.gather(*(self.allowed(permission) for permission in permissions))
        return [str(permission) for permission, allowed in zip(permissions, found, strict=True) if not allowed]

    async def _has(self, permission: Permission) -> bool:
        known = self._known.get(permission)
        if known is not None and self._clock() - known[1] < self._timings.permissions:
            return known[0]
        task = self._asking.get(permission)
        if task is None:
            task = self._asking[permission] = asyncio.create_task(self._find_out(permission), name="review")
            task.add_done_callback(lambda done: self._review_done(permission, done))
        # The first caller can be cancelled; further callers wait for the same result.
        return await asyncio.shield(task)

    def _review_done(self, permission: Permission, task: asyncio.Task[bool]) -> None:
        self._asking.pop(permission, None)
        if not task.cancelled():
            task.exception()  # callers received it; none may be left

    async def _find_out(self, permission: Permission) -> bool:
        try:
            async with self._at_once:
                answer = await self._ask(permission)
        except (KubeError, orjson.JSONDecodeError) as error:
            # Not cached: the next message repeats the review.
            _log.debug("access review failed", error=type(error).__name__)
            return False
        self._known[permission] = (answer, self._clock())
        self._known.move_to_end(permission)
        if len(self._known) > PERMISSIONS_KEPT:
            self._known.popitem(last=False)
        return answer

    async def _ask(self, permission: Permission) -> bool:
        call = Call("CREATE", "SelfSubjectAccessReview", "selfsubjectaccessreviews")
        request = HttpRequest("POST", _PATH, body=orjson.dumps(make_review(permission)))
        status = orjson.loads(await self._kube.ask(call, request, timeout=self._timings.review)).get("status") or {}
        return bool(status.get("allowed")) and not status.get("denied")


def make_review(permission: Permission) -> dict[str, Any]:
    """Return the review of a permission of the caller."""
    attributes = {"verb": "get", "group": permission.group, "resource": permission.resource}
    attributes |= {"namespace": permission.namespace} if permission.namespace else {}
    attributes |= {"name": permission.name} if permission.name else {}
    return {
        "apiVersion": "authorization.k8s.io/v1",
        "kind": "SelfSubjectAccessReview",
        "spec": {"resourceAttributes": attributes},
    }


def _from_wide(permission: Permission) -> Iterator[Permission]:
    """Yield the permissions that contain this one, widest first: a cluster-wide viewer needs one review per kind."""
    if permission.namespace or permission.name:
        yield replace(permission, namespace="", name="")
    if permission.namespace and permission.name:
        yield replace(permission, name="")
    yield permission
