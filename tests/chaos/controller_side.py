"""A controller in Wasm that mirrors objects, and what people do to them in a run.

In: steps of the part ``controllers``. Out: calls to the API server; sentences about copies that are not as they have to
be. Called by ``world``. The controller is ``keep_equal.c``, which watches its copies, too: when another replica takes
over, a controller does not learn of earlier deletions (docs/controller-abi.md).
"""

from __future__ import annotations

import asyncio
import hashlib
import http
import threading
from collections.abc import AsyncIterator, Awaitable
from pathlib import Path
from typing import Any, Final

from chaos.controller_work import OBJECTS, Act
from chaos.model import Expected
from chaos.namespaces import Namespaces
from chaos.retrying_requests import RetryingRequests
from chaos.steps import Step
from support.guests.built import compile_c
from support.guests.controllers_world import CONFIG_MAPS, Tenant
from trellis_dev.localcluster.api import Api
from trellis_dev.localcluster.building import How, make_once
from trellis_dev.localcluster.paths import cache_root
from trellis_dev.localcluster.progress import Quiet

Manifest = dict[str, Any]
_GUEST: Final = Path(__file__).parent / "keep_equal.c"
_CONTROLLERS: Final = "apis/trellis.dev/v1alpha1/wasmcontrollers"


def _module() -> bytes:
    """Return the controller's module, built if it is not in the cache."""
    digest = hashlib.sha256(_GUEST.read_bytes()).hexdigest()[:12]
    target = cache_root() / "guests" / f"{_GUEST.stem}-{digest}.wasm"
    how = How(Quiet(), threading.Event())
    return make_once(target, f"build {_GUEST.name}", how, lambda made, log: compile_c(_GUEST, made, log)).read_bytes()


class ControllerSide:
    """One controller, a namespace that it watches, and one that it writes to."""

    def __init__(self, requests: RetryingRequests, api: Api, run_id: str) -> None:
        self._requests = requests
        self._source, self._target = Tenant(api, f"{run_id}-source"), Tenant(api, f"{run_id}-target")
        self._namespaces = Namespaces(requests, (self._source.name, self._target.name), (_CONTROLLERS,))
        self.deleted: set[str] = set()

    async def begin(self) -> None:
        """Make the namespaces and the controller."""
        await self._namespaces.make()
        await asyncio.to_thread(self._install)

    def _install(self) -> None:
        both = (self._source.name, self._target.name)
        self._source.account("mirror", CONFIG_MAPS, namespaces=both)
        self._source.module("mirror", _module())
        watch = {"apiVersion": "v1", "kind": "ConfigMap", "labelSelector": {"matchLabels": {"watched": "true"}}}
        config = {"from": both[0], "to": both[1]}
        self._source.controller("mirror", config=config, watches=[watch | {"namespaces": list(both)}])

    def act(self, step: Step) -> Awaitable[None]:
        """Return what carries a step out."""
        if step.act == Act.DELETE:
            self.deleted.add(step.on)
            return self._requests.deleted(self._path(self._source, step.on))
        return self._set(step.on, step.value)

    @staticmethod
    def _path(tenant: Tenant, name: str = "") -> str:
        return f"/api/v1/namespaces/{tenant.name}/configmaps{f'/{name}' if name else ''}"

    async def _set(self, name: str, value: str) -> None:
        data = {"data": {"said": value}}
        status, answer = await self._requests.call("PATCH", self._path(self._source, name), data)
        if status == http.HTTPStatus.NOT_FOUND:
            metadata = {"name": name, "labels": {"watched": "true"}}
            manifest = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata} | data
            status, answer = await self._requests.call("POST", self._path(self._source), manifest)
        assert status in {http.HTTPStatus.OK, http.HTTPStatus.CREATED, http.HTTPStatus.CONFLICT}, (
            f"{name}: {status} {answer}"
        )

    async def wrong(self, wanted: Expected) -> AsyncIterator[str]:
        """Yield what is not as it has to be."""
        items = await self._requests.items(self._path(self._target))
        values = {item["metadata"]["name"]: (item.get("data") or {}).get("said") for item in items}
        for name in OBJECTS:
            if values.get(name) != wanted.copies.get(name):
                yield f"the copy of {name} says {values.get(name)}, not {wanted.copies.get(name)}"

    async def release(self) -> None:
        """Ask for the deletion of everything."""
        await self._namespaces.delete()

    async def left(self) -> AsyncIterator[str]:
        """Yield what is still there."""
        async for item in self._namespaces.left():
            yield item

    async def clean_up(self) -> None:
        """Remove what is left."""
        await self._namespaces.delete()
        await self._namespaces.unhook()
