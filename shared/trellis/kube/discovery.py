"""Finds the resource of a kind in the API server.

In: ``apiVersion`` and ``kind``, as in manifests. Out: a ``Resource``, or ``UnknownKind``. Called by services that work
with kinds from configuration. Invariants: one GET per group and version, shared by concurrent callers; a missing kind
is looked up again, at most every ``DiscoveryTimings.again``, because its CRD may be applied later; the cache is
bounded. Source: the discovery API of Kubernetes (``APIResourceList``), which every account may read.
"""

from __future__ import annotations

import asyncio
import re
import time
from collections import OrderedDict
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass
from typing import Any, Final

import orjson

from trellis.kube.client import Kube
from trellis.kube.errors import Call, NotFound, unavailable
from trellis.kube.resources import Resource
from trellis.kube.timings import DiscoveryTimings
from trellis.kube.transport import HttpRequest

MOST_VERSIONS: Final = 256
"""Maximum number of cached groups and versions; the least recently used is evicted."""

_LABEL: Final = "[a-z0-9]([-a-z0-9]*[a-z0-9])?"
_API_VERSION: Final = re.compile(rf"({_LABEL}(\.{_LABEL})*/)?{_LABEL}")


class UnknownKind(NotFound):
    """The API server does not serve the kind, or not with the required verbs; ``message`` contains the cause."""


@dataclass(frozen=True, slots=True)
class _Served:
    """One kind of a group and version."""

    resource: Resource
    verbs: frozenset[str]


@dataclass(frozen=True, slots=True)
class _Version:
    """Kinds of a group and version; ``there`` is False if the API server does not serve it."""

    kinds: Mapping[str, _Served]
    there: bool
    at: float


class Discovery:
    """Cache of the discovery API, for requested groups and versions."""

    def __init__(
        self, kube: Kube, *, clock: Callable[[], float] = time.monotonic, timings: DiscoveryTimings | None = None
    ) -> None:
        self._kube = kube
        self._timings = timings or kube.timings.discovery
        self._clock = clock
        self._versions: OrderedDict[str, _Version] = OrderedDict()
        self._asking: dict[str, asyncio.Task[_Version]] = {}

    async def resource(self, api_version: str, kind: str, *, verbs: Collection[str] = ()) -> Resource:
        """Return the resource of a kind; ``verbs``: required verbs, such as ``list`` and ``watch``.

        Raises:
            UnknownKind: the kind is not served, or does not support the verbs.
            KubeError: the API server did not answer.
        """
        if not _API_VERSION.fullmatch(api_version):
            raise _unknown(api_version, kind, _Version({}, there=False, at=0.0), verbs)
        version = self._versions.get(api_version)
        if version is None or self._is_old(version, kind, verbs):
            version = await self._ask_once(api_version)
        if api_version in self._versions:  # otherwise it was evicted in the meantime
            self._versions.move_to_end(api_version)
        served = version.kinds.get(kind)
        if served is None or not served.verbs.issuperset(verbs):
            raise _unknown(api_version, kind, version, verbs)
        return served.resource

    def forget(self, api_version: str) -> None:
        """Remove a group and version from the cache, after a resource of it was not found."""
        self._versions.pop(api_version, None)

    def _is_old(self, version: _Version, kind: str, verbs: Collection[str]) -> bool:
        served = version.kinds.get(kind)
        known = served is not None and served.verbs.issuperset(verbs)
        return self._clock() - version.at >= (self._timings.keep if known else self._timings.again)

    async def _ask_once(self, api_version: str) -> _Version:
        task = self._asking.get(api_version)
        if task is None:
            task = self._asking[api_version] = asyncio.create_task(self._ask(api_version), name="discovery")
            task.add_done_callback(lambda done: self._query_done(api_version, done))
        # A cancelled caller must not cancel the request that other callers wait for.
        return await asyncio.shield(task)

    def _query_done(self, api_version: str, task: asyncio.Task[_Version]) -> None:
        self._asking.pop(api_version, None)
        if not task.cancelled():
            task.exception()  # raised in the waiting callers; mark it as retrieved if there are none

    async def _ask(self, api_version: str) -> _Version:
        call = Call("GET", "APIResourceList", "apiresources", "", api_version)
        try:
            found = _document(call, await self._kube.ask(call, HttpRequest("GET", _path(api_version))))
        except NotFound:
            version = _Version({}, there=False, at=self._clock())
        else:
            version = _Version(_kinds(api_version, found), there=True, at=self._clock())
        self._versions[api_version] = version
        self._versions.move_to_end(api_version)
        while len(self._versions) > MOST_VERSIONS:
            self._versions.popitem(last=False)
        return version


async def served_versions(kube: Kube, group: str) -> tuple[str, ...]:
    """Return the versions of a group that the API server serves; none if it has no such group.

    Raises:
        KubeError: the API server did not answer.
    """
    call = Call("GET", "APIGroup", "apigroups", "", group)
    try:
        found = _document(call, await kube.ask(call, HttpRequest("GET", f"/apis/{group}")))
    except NotFound:
        return ()
    return tuple(str(item.get("version")) for item in found.get("versions") or () if isinstance(item, dict))


def _path(api_version: str) -> str:
    root = "/apis" if "/" in api_version else "/api"
    return f"{root}/{api_version}"


def _kinds(api_version: str, found: Mapping[str, Any]) -> dict[str, _Served]:
    group, _, version = api_version.rpartition("/")
    kinds: dict[str, _Served] = {}
    for item in found.get("resources") or ():
        # A name with a slash is a subresource; of two resources of one kind, the first is the main one.
        if "/" not in item["name"] and item["kind"] not in kinds:
            resource = Resource(group, version, item["name"], item["kind"], namespaced=bool(item["namespaced"]))
            kinds[item["kind"]] = _Served(resource, frozenset(item.get("verbs") or ()))
    return kinds


def _document(call: Call, body: bytes) -> Mapping[str, Any]:
    try:
        found = orjson.loads(body)
    except orjson.JSONDecodeError:
        found = None
    if not isinstance(found, dict):
        raise unavailable(call, "the answer is not JSON")
    return found


def _unknown(api_version: str, kind: str, version: _Version, verbs: Collection[str]) -> UnknownKind:
    if kind in version.kinds:
        message = f"{kind} of {api_version} does not support {' and '.join(verbs)}"
    elif version.there:
        message = f"{api_version} has no kind {kind}: check the spelling, and that its CRD is applied"
    else:
        message = f"the API server does not serve {api_version} of {kind}: check that its CRD is applied"
    return UnknownKind(Call("GET", kind, kind), status=404, reason="UnknownKind", message=message)
