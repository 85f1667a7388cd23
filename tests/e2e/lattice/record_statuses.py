"""Records what a real wadm stores, says and answers about applications while they live: ``wadm-statuses.jsonl``.

A command, not a test: ``python tests/e2e/lattice/record_statuses.py``.
``tests/unit/application_manager/test_lifetimes.py`` replays what it wrote.
"""

from __future__ import annotations

import asyncio
import hashlib
import json
import sys
import tempfile
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import nats
from nats.aio.msg import Msg

ROOT = Path(__file__).parents[2]
sys.path.insert(0, str(ROOT))

from support.lattices.host_behaviour import own_lattice  # noqa: E402 (the path is set first)
from support.lattices.real_lattice import RealLattice, Wadm, application, http_server, wasm_component  # noqa: E402

Manifest = dict[str, Any]
EMPTY_COMPONENT = bytes.fromhex("0061736d0d000100")
QUIET_SECONDS = 3.0


class Recorder:
    """Writes down all that concerns one lattice, in the order in which it arrives."""

    def __init__(self, servers: RealLattice, life: str, directory: Path) -> None:
        self.servers, self.lattice = servers, own_lattice()
        self.rows: list[Manifest] = []
        self._life, self._directory = life, directory
        self.good, self.bad = f"file://{directory}/good.wasm", f"file://{directory}/none.wasm"

    @asynccontextmanager
    async def listening(self) -> AsyncIterator[Wadm]:
        client = await nats.connect(self.servers.url, max_reconnect_attempts=-1)

        async def keep(message: Msg) -> None:
            self._row(name=message.subject.split(".")[-1], keep=json.loads(message.data))

        async def stored(message: Msg) -> None:
            key = message.subject.removeprefix("$KV.wadm_manifests.")
            if key.startswith(f"{self.lattice}-"):
                self._row(name=key.removeprefix(f"{self.lattice}-"), stored=_model(message.data))

        await client.subscribe(f"wadm.status.{self.lattice}.*", cb=keep)
        await client.subscribe("$KV.wadm_manifests.*", cb=stored)
        self.wadm = Wadm(client, self.lattice)
        try:
            yield self.wadm
        finally:
            await client.close()

    async def step(self, what: str, deed: Callable[[], Awaitable[object]] | None = None, *names: str) -> None:
        """Do something, wait until no message comes any more, and ask about applications."""
        self._row(step=what)
        if deed is not None:
            await deed()
        count = -1
        while count != len(self.rows):
            count = len(self.rows)
            await asyncio.sleep(QUIET_SECONDS)
        for name in names:
            self._row(name=name, answer=await self.wadm._ask(f"status.{name}", None))

    def _row(self, **fields: Any) -> None:
        text = json.dumps({"life": self._life, **fields}).replace(str(self._directory), "/wasm")
        self.rows.append(json.loads(text))


def _model(value: bytes) -> Manifest | None:
    """Return versions with digests of their specs, and the deployed one; None of what was purged."""
    if not value:
        return None
    found = json.loads(value)
    digests = {
        version: hashlib.sha256(json.dumps(item["spec"], sort_keys=True).encode()).hexdigest()[:8]
        for version, item in found["manifests"].items()
    }
    return {"versions": digests, "deployed": found.get("deployed_version") or ""}


async def whole_lifetime(record: Recorder, wadm: Wadm) -> None:
    def web(version: str, image: str, instances: int = 1, **annotations: str) -> Manifest:
        return application("web", wasm_component("echo", image, instances), version=version, **annotations)

    async def deploy(manifest: Manifest) -> None:
        await wadm.put(manifest)
        await wadm.deploy("web", manifest["metadata"]["annotations"]["version"])

    async def re_create(manifest: Manifest) -> None:
        await wadm.delete("web")
        await deploy(manifest)

    other = record.good.replace("good", "other")
    await record.step("deployed where there is no host", lambda: deploy(web("v1", record.good)), "web")
    async with record.servers.hosts(record.lattice):
        await record.step("a host comes", None, "web")
        await record.step("another version", lambda: deploy(web("v2", other)), "web")
        await record.step("words alone", lambda: deploy(web("v3", other, description="the same")), "web")
        await record.step("undeployed", lambda: wadm.undeploy("web"), "web")
        await record.step("deployed again", lambda: wadm.deploy("web", "v3"), "web")
        await record.step(
            "deleted while it runs, put and deployed anew", lambda: re_create(web("v1", record.good)), "web"
        )


async def every_scaler(record: Recorder, wadm: Wadm) -> None:
    link = {"namespace": "wasi", "package": "http", "interfaces": ["incoming-handler"], "target": {"name": "echo"}}
    link["source"] = {"config": [{"name": "address", "properties": {"address": "127.0.0.1:18971"}}]}
    server = http_server()
    server["traits"].append({"type": "link", "properties": link})
    component = wasm_component("echo", record.good)
    component["properties"]["config"] = [{"name": "own", "properties": {"a": "b"}}]
    component["properties"]["secrets"] = [{"name": "password", "properties": {"policy": "vault", "key": "db"}}]
    manifest = application("full", component, server, version="v1")
    policy = {"type": "policy.secret.wasmcloud.dev/v1alpha1", "properties": {"backend": "kube"}}
    manifest["spec"]["policies"] = [{"name": "vault", **policy}]

    async def deploy() -> None:
        await wadm.put(manifest)
        await wadm.deploy("full", "v1")

    async with record.servers.hosts(record.lattice):
        await record.step("deployed", deploy, "full")
        await record.step("deleted", lambda: wadm.delete("full"), "full")


async def failures(record: Recorder, wadm: Wadm) -> None:
    async def deploy(manifest: Manifest) -> None:
        await wadm.put(manifest)
        await wadm.deploy(manifest["metadata"]["name"], "v1")

    async with record.servers.hosts(record.lattice):
        picky, broken = http_server(zone="b"), wasm_component("echo", record.bad)
        await record.step("no host fits", lambda: deploy(application("picky", picky, version="v1")), "picky")
        await record.step("it cannot be read", lambda: deploy(application("broken", broken, version="v1")), "broken")
        async with record.servers.hosts(record.lattice, zone="b"):
            await record.step("a host that fits", None, "picky")


async def restart(record: Recorder, wadm: Wadm) -> None:
    manifest = application("web", wasm_component("echo", record.good), version="v1")
    async with record.servers.hosts(record.lattice):
        await wadm.put(manifest)
        await wadm.deploy("web", "v1")
        await asyncio.to_thread(record.servers.kill_wadm)
        await record.step("wadm was killed as soon as it had answered")
        await record.step("wadm starts", lambda: asyncio.to_thread(record.servers.start_wadm), "web")


async def main() -> None:
    with tempfile.TemporaryDirectory() as place:
        directory = Path(place)
        for name in ("good", "other"):
            (directory / f"{name}.wasm").write_bytes(EMPTY_COMPONENT)
        rows = []
        with RealLattice(directory / "servers") as servers:
            for life in (whole_lifetime, every_scaler, failures, restart):
                record = Recorder(servers, life.__name__, directory)
                async with record.listening() as wadm:
                    await life(record, wadm)
                rows += record.rows
    (ROOT / "data/lattice/wadm-statuses.jsonl").write_text("".join(f"{json.dumps(row)}\n" for row in rows))


if __name__ == "__main__":
    asyncio.run(main())
