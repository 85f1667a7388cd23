"""A real wasmCloud host gives a component what secrets_backend gives it, and starts none that is refused.

The component (tests/data/secrets/reveal.wat) tells whoever sends it a message what the host reveals to it.
"""

from __future__ import annotations

import asyncio
import http
import json
import os
import subprocess
import sys
import time
from collections.abc import AsyncIterator, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import nats
import pytest

from support.examples import folders as examples
from support.lattices.host_behaviour import own_lattice
from support.lattices.real_lattice import RealLattice, Wadm, application, wasm_component
from support.secrets import secrets_client
from support.secrets.secrets_conformance.world import NOT_TEXT, READER, TEXT, World
from support.secrets.secrets_server import Place, ServedBackend, running_backend
from trellis.kube.resources import SECRET_GRANTS, SECRETS, Resource
from trellis_dev.localcluster import ClusterInfo
from trellis_dev.localcluster.nats import NatsServer

REVEAL = Path(__file__).parents[2] / "data" / "secrets" / "reveal.wat"
POLICY = "policy.secret.wasmcloud.dev/v1alpha1"
SECONDS = 60.0


@dataclass(frozen=True)
class Backed:
    """A lattice whose secrets a backend gives."""

    backend: ServedBackend
    lattice: RealLattice
    name: str
    component: Path

    @property
    def world(self) -> World:
        """The Secrets of the backend, and the accounts that may read them."""
        return self.backend.world

    def manifest(self, name: str, **entries: str) -> dict[str, Any]:
        """Return an application whose component has these secrets: their names, and the entries of the Secret."""
        policy = {"backend": self.world.backend, "namespace": self.world.namespace, "impersonate": READER}
        at = {"cluster_uris": self.lattice.url}
        reveal = wasm_component("reveal", f"file://{self.component}")
        reveal["properties"]["secrets"] = [
            {"name": item, "properties": {"policy": "kube", "key": self.world.name, "field": entry}}
            for item, entry in entries.items()
        ]
        reveal["traits"].append(_link("messaging", "consumer", target=[{"name": "at", "properties": at}]))
        listens = [{"name": "listens", "properties": {**at, "subscriptions": f"{self.name}.{name}"}}]
        messaging = {
            "name": "messaging",
            "type": "capability",
            "properties": {"image": "wasmcloud+builtin://messaging-nats"},
            "traits": [
                {"type": "spreadscaler", "properties": {"instances": 1}},
                _link("reveal", "handler", source=listens),
            ],
        }
        found = application(name, reveal, messaging, version="v1")
        found["spec"]["policies"] = [{"name": "kube", "type": POLICY, "properties": policy}]
        return found

    def example(self, version: str) -> dict[str, Any]:
        """Return deploy/examples/secret with this component, on this lattice, in this namespace."""
        found, shown = self.manifest("greeter"), examples.manifest("secret", "Application")["spec"]
        here = {"backend": self.world.backend, "namespace": self.world.namespace}
        found["spec"]["policies"] = [
            policy | {"properties": policy["properties"] | here} for policy in shown["policies"]
        ]
        found["spec"]["components"][0]["properties"]["secrets"] = shown["components"][0]["properties"]["secrets"]
        found["metadata"]["annotations"]["version"] = version
        return found

    def apply(self, kind: Resource) -> dict[str, Any]:
        """Create the example's object of a kind in this namespace; return it as the example has it."""
        shown = examples.manifest("secret", kind.kind)
        here = json.loads(json.dumps(shown).replace('"namespace": "hello"', f'"namespace": "{self.world.namespace}"'))
        status, answer = self.world.api.call("POST", kind.path(self.world.namespace), here)
        assert status == http.HTTPStatus.CREATED, answer
        return shown

    async def revealed(self, name: str, secret: str) -> bytes:
        """Return what an application's component says of a secret, once it listens."""
        client = await nats.connect(self.lattice.url)
        try:
            async with asyncio.timeout(SECONDS):
                while True:
                    try:
                        return (await client.request(f"{self.name}.{name}", secret.encode(), timeout=5)).data
                    except (nats.errors.NoRespondersError, nats.errors.TimeoutError):
                        await asyncio.sleep(0.1)
        finally:
            await client.close()


def _link(to: str, interface: str, **config: list[dict[str, Any]]) -> dict[str, Any]:
    properties: dict[str, Any] = {
        "target": {"name": to},
        "namespace": "wasmcloud",
        "package": "messaging",
        "interfaces": [interface],
    }
    for side, found in config.items():
        properties.setdefault(side, {})["config"] = found
    return {"type": "link", "properties": properties}


@pytest.fixture
def backed(cluster: ClusterInfo, real_lattice: RealLattice, tmp_path: Path) -> Iterator[Backed]:
    if (reason := secrets_client.missing()) is not None:
        pytest.skip(f"NOT RUN: {reason}")
    name = own_lattice()
    home, own = f"{name}-home".lower(), f"{name}-own".lower()
    # A backend of its own name: other tests' backends are on this NATS, too.
    settings = {"TRELLIS_SECRETS_BACKEND": name}
    with NatsServer(tmp_path / "bus") as bus:
        place = Place(cluster, bus, home, tmp_path, settings)
        with running_backend(place, real_lattice.nats, lattice_name=name, own=(own,)) as backend:
            component, world = tmp_path / "reveal.wasm", backend.world
            subject = world.subjects["component"].public
            component.write_bytes(world.client.make_component(REVEAL.read_text(), world.account, subject))
            yield Backed(backend, real_lattice, name, component)


@pytest.fixture
async def wadm(backed: Backed) -> AsyncIterator[Wadm]:
    async with Wadm.of(backed.lattice.url, backed.name) as client, backed.lattice.hosts(backed.name):
        yield client


async def test_a_component_is_given_text_bytes_and_what_is_empty(backed: Backed, wadm: Wadm) -> None:
    await wadm.put(backed.manifest("shop", password="text", key="every-byte", nothing="empty"))
    await wadm.deploy("shop")
    await wadm.until("shop", "deployed")
    assert await backed.revealed("shop", "password") == b"s" + TEXT.encode()
    assert await backed.revealed("shop", "key") == b"b" + NOT_TEXT["every-byte"]
    assert await backed.revealed("shop", "nothing") == b"s"
    assert await backed.revealed("shop", "other") == b"e"
    assert TEXT not in backed.backend.log


async def test_a_component_whose_secret_is_refused_does_not_start_and_does_once_it_is_given(
    backed: Backed, wadm: Wadm
) -> None:
    manifest = backed.manifest("shop", password="text")
    manifest["spec"]["policies"][0]["properties"]["namespace"] = backed.world.outside
    await wadm.put(manifest)
    await wadm.deploy("shop")
    failed = await wadm.until("shop", "failed")
    assert "polic" in str(failed).lower(), failed

    right = backed.manifest("shop", password="text")
    right["metadata"]["annotations"]["version"] = "v2"
    await wadm.put(right)
    await wadm.deploy("shop", "v2")
    await wadm.until("shop", "deployed")
    assert await backed.revealed("shop", "password") == b"s" + TEXT.encode()


async def test_the_component_of_the_example_starts_once_its_secret_is_there(backed: Backed, wadm: Wadm) -> None:
    backed.apply(SECRET_GRANTS)
    await wadm.put(backed.example("v1"))
    await wadm.deploy("greeter")
    await wadm.until("greeter", "failed")

    given = backed.apply(SECRETS)["stringData"]
    await wadm.put(backed.example("v2"))
    await wadm.deploy("greeter", "v2")
    await wadm.until("greeter", "deployed")
    assert await backed.revealed("greeter", "text") == b"s" + given["text"].encode()


async def test_a_host_older_than_the_key_goes_on_being_given_secrets(backed: Backed, wadm: Wadm) -> None:
    await wadm.put(backed.manifest("before", password="text"))
    await wadm.deploy("before")
    await wadm.until("before", "deployed")

    await asyncio.to_thread(_rotate, backed)
    await wadm.put(backed.manifest("after", password="text"))
    await wadm.deploy("after")
    await wadm.until("after", "deployed")
    assert await backed.revealed("after", "password") == b"s" + TEXT.encode()


def _rotate(backed: Backed) -> None:
    """Give the backend a new key, and wait until it hands it out."""
    command = [sys.executable, "-m", "trellis_cli", "secrets", "rotate", "--wait", "0s"]
    place = backed.backend.place
    environment = {"TRELLIS_NAMESPACE": place.home, "TRELLIS_KUBECONFIG": str(place.info.kubeconfig)}
    subprocess.run(command, env={**os.environ, **environment}, check=True)
    deadline = time.monotonic() + SECONDS
    while backed.world.ask_key() == backed.world.server_xkey:
        assert time.monotonic() < deadline, "the new key is not given out"
        time.sleep(0.1)
