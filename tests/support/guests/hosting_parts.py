"""Parts of a host of controllers for tests: watches, sources and fetches, as the test sets them."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Iterable
from contextlib import asynccontextmanager
from dataclasses import dataclass

import orjson

from controller_host.domain.keys import ObjectKey
from controller_host.domain.watch_specs import WatchSpec
from controller_host.module.sources import ModuleRequest
from trellis.registries.domain.errors import SourceError, SourceReason


class SomeWatches:
    """One cache for all controllers: objects in ``items`` concern every subscriber of their namespace."""

    def __init__(self) -> None:
        self.items: dict[ObjectKey, bytes] = {}
        self.absent_kinds: frozenset[tuple[str, str]] = frozenset()
        self.wanted: dict[str, str] = {}
        self.on_change: dict[str, Callable[[str, ObjectKey], None]] = {}
        self.is_whole = True
        self.denied: set[str] = set()
        self.unknown: set[str] = set()
        self.unwatched: set[str] = set()

    def put(self, name: str, version: int = 1, **data: str) -> None:
        key = key_of(name)
        metadata = {"namespace": "team-a", "name": name, "uid": f"u-{name}", "resourceVersion": str(version)}
        self.items[key] = orjson.dumps({"metadata": metadata, "data": data})
        self.notify(key)

    def remove(self, name: str) -> None:
        del self.items[key_of(name)]
        self.notify(key_of(name))

    def notify(self, key: ObjectKey) -> None:
        for controller in list(self.wanted):
            self.on_change[controller](controller, key)

    def want(self, controller: str, specs: tuple[WatchSpec, ...], on_change: Callable[[str, ObjectKey], None]) -> None:
        assert specs
        self.wanted[controller], self.on_change[controller] = controller.partition("/")[0], on_change

    def drop(self, controller: str) -> None:
        self.wanted.pop(controller, None)

    def item(self, key: ObjectKey) -> bytes | None:
        return self.items.get(key)

    def version(self, key: ObjectKey) -> str:
        if key not in self.items:
            return ""
        metadata = orjson.loads(self.items[key])["metadata"]
        return f"{metadata['uid']}/{metadata['resourceVersion']}"

    def keys(self, controller: str) -> Iterable[ObjectKey]:
        return [key for key in self.items if key.namespace == self.wanted[controller]]

    def whole(self, controller: str) -> bool:
        assert controller in self.wanted
        return self.is_whole

    def absent(self, controller: str) -> frozenset[tuple[str, str]]:
        assert controller in self.wanted
        return self.absent_kinds

    def concerns(self, controller: str, key: ObjectKey) -> bool:
        return key in self.items and key.namespace == self.wanted.get(controller)

    def watched(self, controller: str, key: ObjectKey) -> bool:
        return controller in self.wanted and key.kind not in self.unwatched

    async def allowed(self, controller: str, user: str, key: ObjectKey) -> bool | None:
        assert controller
        assert user.startswith(f"system:serviceaccount:{key.namespace}:")
        return None if key.name in self.unknown else key.name not in self.denied


class SomeSources:
    """ConfigMaps of modules. ``held``: those that do not come before ``let``; ``denied``: users who get none.

    ``confirms``: a source reports whether it would return a module without returning it.
    """

    def __init__(self) -> None:
        self.fetched = self.confirmed = self.cancelled = 0
        self.modules: dict[str, bytes] = {}
        self.held: set[str] = set()
        self.let = asyncio.Event()
        self.denied: set[str] = set()
        self.confirms = False

    @asynccontextmanager
    async def turn(self, requested: ModuleRequest) -> AsyncIterator[SomeFetch]:
        assert requested.namespace
        assert requested.user
        try:
            assert requested.module.config_map is not None
            if requested.module.config_map.name in self.held:
                await self.let.wait()
            yield SomeFetch(self, requested)
        except asyncio.CancelledError:
            self.cancelled += 1
            raise


@dataclass
class SomeFetch:
    sources: SomeSources
    requested: ModuleRequest

    async def confirm(self) -> bool:
        self.sources.confirmed += 1
        self._check()
        return self.sources.confirms

    async def module(self) -> bytes:
        self.sources.fetched += 1
        self._check()
        source = self.requested.module.config_map
        assert source is not None
        if source.name not in self.sources.modules:
            raise SourceError(SourceReason.NOT_FOUND, f"ConfigMap {source.name} does not exist")
        return self.sources.modules[source.name]

    def _check(self) -> None:
        if self.requested.user in self.sources.denied:
            raise SourceError(SourceReason.FORBIDDEN, "the registry wants a pullSecret")


def key_of(name: str) -> ObjectKey:
    return ObjectKey("v1", "ConfigMap", "team-a", name)
