"""The client of wadm against a real one: every operation, what it refuses, the form in which it keeps a manifest."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator
from typing import Any

import pytest

from support.lattices.host_behaviour import own_lattice
from support.lattices.real_lattice import RealLattice, application, http_server
from trellis.lattice.connection.address import LatticeAddress, NatsAddress
from trellis.lattice.connection.lattice_connection import LatticeConnection, NatsUnavailableError
from trellis.lattice.domain.projection import project
from trellis.lattice.domain.replies import Put, Refusal, Version, WadmRefusedError
from trellis.lattice.wadm.client import Wadm

SECONDS = 60.0
SECRETS = [{"name": "password", "properties": {"policy": "vault", "key": "db"}}]
SPREAD = {"name": "s", "requirements": {"zone": "a"}, "weight": 0}
WEB = {"namespace": "wasi", "package": "http", "interfaces": ["incoming-handler"]}
EVERYTHING: dict[str, Any] = {
    "apiVersion": "core.oam.dev/v1beta1",
    "kind": "Application",
    "metadata": {"name": "Every_thing-1", "annotations": {"note": "1"}, "labels": {"team": "a"}},
    "spec": {
        "components": [
            {
                "name": "store",
                "type": "actor",
                "properties": {
                    "image": "example.com/store:1",
                    "config": [{"name": "own", "properties": {}}, {"name": "of-the-lattice"}],
                    "secrets": SECRETS,
                },
                "traits": [
                    {"type": "spreadscaler", "properties": {"instances": 0, "spread": []}},
                    {
                        "type": "link",
                        "properties": {
                            **WEB,
                            "name": "second",
                            "source": {"config": [], "secrets": SECRETS},
                            "target": {"name": "old", "config": [{"name": "url", "properties": {"a": "b"}}]},
                        },
                    },
                    {"type": "custom", "properties": {"anything": {"goes": [1, "two", None]}}},
                ],
                "passedOver": {"by": "wadm"},
            },
            {
                "name": "shared",
                "type": "capability",
                "properties": {"application": {"name": "other", "component": "redis"}},
                "traits": [],
            },
            {
                "name": "old",
                "type": "capability",
                "properties": {"image": "wasmcloud+builtin://http-server", "id": "one-id"},
                "traits": [
                    {"type": "daemonscaler", "properties": {"replicas": 3, "spread": [SPREAD]}},
                    {"type": "link", "properties": {**WEB, "source_config": [{"name": "h"}], "target": "store"}},
                ],
            },
        ],
        "policies": [
            {"name": "vault", "type": "policy.secret.wasmcloud.dev/v1alpha1", "properties": {"backend": "kube"}}
        ],
        "workflow": {"passed": "over by wadm"},
    },
}


@pytest.fixture
async def wadm(real_lattice: RealLattice) -> AsyncIterator[Wadm]:
    address = LatticeAddress(NatsAddress(real_lattice.url), own_lattice())
    link = LatticeConnection(address.nats, "test", lambda: None)
    running = asyncio.create_task(link.run())
    try:
        async with asyncio.timeout(SECONDS):
            await link.there()
        yield Wadm(address, link)
    finally:
        running.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await running


async def refusal(request: Any) -> Refusal:
    with pytest.raises(WadmRefusedError) as refused:
        await request
    return refused.value.refusal


async def test_an_application_goes_through_its_life(wadm: Wadm) -> None:
    first, second = application("web", http_server(), version="v1"), application("web", http_server(), version="v2")
    assert await wadm.get("web") is None
    assert await wadm.versions("web") is None
    assert await wadm.deploy("web", "v1") is None
    assert await wadm.undeploy("web") is False
    assert await wadm.delete("web") is False

    assert await wadm.put(first) == Put("v1", created=True, versions=1)
    assert await wadm.put(second) == Put("v2", created=False, versions=2)
    assert await wadm.deploy("web", "v1") == "v1"
    assert await wadm.versions("web") == (Version("v1", True), Version("v2", False))
    assert [(model.name, model.version, model.deployed) for model in await wadm.models()] == [("web", "v2", "v1")]
    manifest = await wadm.get("web", "v1")
    assert manifest is not None
    assert project(manifest).digest == project(first).digest
    assert await wadm.undeploy("web") is True
    assert (await wadm.status("web")).status == "undeployed"
    assert await wadm.delete("web") is True
    assert await wadm.models() == ()


async def test_refusals_of_wadm_are_distinguished(wadm: Wadm) -> None:
    manifest = application("web", http_server(), version="v1")
    await wadm.put(manifest)
    assert await refusal(wadm.put(manifest)) is Refusal.VERSION_EXISTS
    assert await refusal(wadm.deploy("web", "v9")) is Refusal.VERSION_MISSING
    assert await refusal(wadm.put(application("web", http_server(), version="latest"))) is Refusal.REJECTED
    assert await refusal(wadm.put(application("a.b", http_server(), version="v1"))) is Refusal.REJECTED
    shares = {"name": "x", "type": "capability", "properties": {"application": {"name": "none", "component": "c"}}}
    await wadm.put(application("shares", shares, version="v1"))
    assert await refusal(wadm.deploy("shares", "v1")) is Refusal.BLOCKED


async def test_wadm_takes_a_projection_of_every_field_and_gives_the_same_back(wadm: Wadm) -> None:
    sent = project(EVERYTHING)
    assert sent.ignored == ("spec.workflow", "spec.components[0].passedOver")
    await wadm.put(sent.under("v1"))
    found = await wadm.get("Every_thing-1", "v1")
    assert found == sent.under("v1")
    assert project(found).digest == sent.digest
    # As it was written wadm takes it too, and keeps the same.
    written = {**EVERYTHING, "metadata": {**EVERYTHING["metadata"], "annotations": {"note": "1", "version": "v2"}}}
    await wadm.put(written)
    assert project(await wadm.get("Every_thing-1", "v2")).digest == sent.digest


async def test_a_wadm_that_is_unavailable_is_no_refusal(real_lattice: RealLattice, wadm: Wadm) -> None:
    await asyncio.to_thread(real_lattice.kill_wadm)
    try:
        with pytest.raises(NatsUnavailableError, match=r"no responders|timeout"):
            await wadm.models()
    finally:
        await asyncio.to_thread(real_lattice.start_wadm)
    assert await wadm.models() == ()
