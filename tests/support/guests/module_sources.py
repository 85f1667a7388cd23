"""Sources of modules beside an https server of the test's own, and what that serves."""

from __future__ import annotations

import hashlib
import ipaddress
import ssl
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from controller_host.module.sources import CLIENT, ModuleRequest, Sources
from controller_host.timings import SourceTimings
from trellis.crds.wasm_controllers import Module
from trellis.kube.resources import NAMESPACES
from trellis.registries.domain.errors import SourceError
from trellis.registries.web import Web
from trellis_dev.fakes.fake import FakeKube
from unit.node_installer.servers import Answer, Request, Server, serving

WASM = b"\0asm\x01\0\0\0" + b"\0" * 100
SHA = hashlib.sha256(WASM).hexdigest()
USER = "system:serviceaccount:team:ttl"
LOOPBACK = [ipaddress.ip_network("127.0.0.0/8")]
LOGIN = "me:hunter2"


class World:
    """Sources beside a server of the test's own, which has a certificate of the test's own."""

    def __init__(self, folder: Path, server: Server, allowed: list[Any], timings: SourceTimings) -> None:
        self.kube = FakeKube()
        self.kube.put(NAMESPACES, {"metadata": {"name": "team"}})
        self.folder = folder / "modules"
        self.folder.mkdir()
        self.server = server
        self.web = Web(allowed, ssl.create_default_context(cafile=folder / "tls/ca.pem"), timings, CLIENT)
        self.sources = Sources(self.kube.acting_as, self.web, self.folder, timings)

    async def fetch(self, **module: Any) -> bytes:
        async with self.sources.turn(ModuleRequest("team", Module.model_validate(module), USER)) as fetch:
            return await fetch.module()

    async def confirm(self, user: str = USER, **module: Any) -> bool:
        async with self.sources.turn(ModuleRequest("team", Module.model_validate(module), user)) as fetch:
            return await fetch.confirm()

    async def refusal(self, **module: Any) -> SourceError:
        with pytest.raises(SourceError) as caught:
            await self.fetch(**module)
        return caught.value

    def url(self, path: str = "/x.wasm") -> str:
        return self.server.url + path

    def image(self, digest: str, tag: str = "") -> str:
        return f"{self.server.host}/team/shim{tag}@{digest}"


@asynccontextmanager
async def world(
    tls: Path,
    folder: Path,
    respond: Callable[[Request], Answer],
    allowed: list[Any] = LOOPBACK,
    timings: SourceTimings = SourceTimings(),  # noqa: B008 - frozen
) -> AsyncIterator[World]:
    (folder / "tls").symlink_to(tls)
    with serving(respond, tls) as server:
        found = World(folder, server, allowed, timings)
        try:
            yield found
        finally:
            await found.sources.close()
            await found.web.close()


def files(**content: bytes | str) -> Callable[[Request], Answer]:
    """Serve ``/<name>.wasm``; a text is where it was moved to."""

    def respond(request: Request) -> Answer:
        found = content.get(request.path.partition("?")[0].removeprefix("/").removesuffix(".wasm"))
        if isinstance(found, str):
            return Answer(302, headers={"Location": found})
        return Answer(404) if found is None else Answer(body=found)

    return respond
