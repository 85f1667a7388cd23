"""Hostile input does not end, stall or open secrets_backend: garbage, floods, a slow, silent or absent API server."""

from __future__ import annotations

import asyncio
import contextlib
import json
import random
import secrets
from collections import Counter
from collections.abc import AsyncIterator
from dataclasses import replace
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest
import yaml

from support.nats.raw_nats import ODD_HEADERS, ODD_TOKENS, raw_publish
from support.nodes.fleet import eventually
from support.secrets.secrets_host import CURVE, Host, nkey, value
from support.secrets.secrets_world import QUICK, SecretsWorld, served
from support.suite.settling import settle
from support.suite.tcp_proxy import TcpProxy, kubeconfig_through
from support.suite.tiers import first_of
from trellis.runtime.run import Service
from trellis_dev.localcluster import ClusterInfo
from trellis_dev.localcluster.nats import NatsServer

pytestmark = pytest.mark.cluster

SUBJECT = b"wasmcloud.secrets.v1alpha1.kube."
PATIENT = replace(QUICK, answer=4.0)


async def well(host: Host, world: SecretsWorld) -> None:
    assert value(await host.get("db", "password", namespace=world.namespace)) == "hunter2"


def count(service: Service, name: str, **labels: str) -> float:
    found = service.telemetry.metrics.registry.get_sample_value(name, {"service": "secrets_backend", **labels})
    return found or 0.0


async def test_no_message_ends_it(secret_world: SecretsWorld) -> None:
    secret_world.ready_to_ask()
    port = secret_world.server.port
    async with secret_world.backend(), secret_world.asking() as host:
        for headers in (*ODD_HEADERS.values(), b" \xff\r\n", b" 503 \xfe\r\n", b"\r\n"):
            await asyncio.to_thread(raw_publish, port, SUBJECT + b"get", b"x", headers)
        for token in ODD_TOKENS.values():
            with contextlib.suppress(AssertionError, OSError):  # some are no subject to the server either
                await asyncio.to_thread(raw_publish, port, SUBJECT + token, b"x")
        for operation in ("list", "get.more", "server_xkey.x", "GET"):
            answer = await host.client.request(host.subject(operation), b"", timeout=20)
            assert json.loads(answer.data) == {"error": "InvalidRequest"}
        await well(host, secret_world)


async def test_no_request_that_opens_ends_it_and_each_is_answered(secret_world: SecretsWorld) -> None:
    secret_world.ready_to_ask()
    odd: list[Any] = [None, True, 0, -1, 1e400, "", "x" * 100_000, "\ud800", [], {}, [[]], {"a": {}}, "../../nodes"]
    drawn = random.Random(50)
    async with secret_world.backend(), secret_world.asking() as host:
        good = host.request("db", "password", namespace=secret_world.namespace)
        texts = [b"", b"null", b"[]", b"{", b"\xff", b"[" * 100_000, b'{"key":NaN}']
        for _ in range(150):
            requested = json.loads(json.dumps(good))
            where: Any = drawn.choice([requested, requested["context"], requested["context"]["application"]])
            where[drawn.choice(list(where))] = drawn.choice(odd)
            texts.append(json.dumps(requested).encode())
        texts += [
            json.dumps(host.request("db", "password", **{name: item})).encode()
            for name in ("namespace", "impersonate")
            for item in odd
        ]
        for text in texts:
            answer = await host.send(text, seconds=10)
            assert set(answer) in ({"error"}, {"secret"}), answer
        await well(host, secret_world)


@pytest.mark.thorough
async def test_no_box_ends_it(secret_world: SecretsWorld) -> None:
    secret_world.ready_to_ask()
    drawn = random.Random(7)
    async with secret_world.backend(), secret_world.asking() as host:
        for size in (0, 1, 3, 4, 27, 28, 43, 44, 100, 500_000):
            for key in ("", "X", nkey(CURVE, b"\0" * 32), nkey(CURVE, drawn.randbytes(32)), nkey(0, b"\0" * 32)):
                headers = {"WasmCloud-Host-Xkey": key} if key else None
                body = (b"xkv1" + drawn.randbytes(size))[:size]
                answer = await host.client.request(host.subject("get"), body, timeout=10, headers=headers)
                assert json.loads(answer.data)["error"] in {"InvalidHeaders", "DecryptionError"}
        await well(host, secret_world)


async def flood(host: Host, inbox: str, count: int) -> None:
    """Send what does not open, as fast as the server takes it."""
    headers = {"WasmCloud-Host-Xkey": nkey(CURVE, secrets.token_bytes(32))}
    for number in range(count):
        await host.client.publish(host.subject("get"), b"xkv1" + b"x" * 60, reply=inbox, headers=headers)
        if number % 1000 == 0:
            await settle(host.client)


@pytest.mark.thorough
async def test_a_flood_on_one_link_is_answered_or_counted_and_another_link_goes_on(
    secret_world: SecretsWorld, tmp_path: Path
) -> None:
    secret_world.ready_to_ask()
    with NatsServer(tmp_path / "other") as other:
        secret_world.group("other", natsAddress="nats://127.0.0.1", natsClientPort=other.port)
        backend = secret_world.backend()
        async with backend as service, secret_world.asking() as flooding, Host(other.url) as host:
            await served(host)
            answers: Counter[str] = Counter()

            async def take(message: Any) -> None:
                answers[message.data.decode()[:40]] += 1

            def dropped() -> float:
                """Return how many were dropped, for any reason."""
                found = service.telemetry.metrics.secrets_dropped_total.collect()[0].samples
                return sum(item.value for item in found if item.name.endswith("_total"))

            inbox, before = flooding.client.new_inbox(), dropped()
            await flooding.client.subscribe(inbox, cb=take)
            flooded = asyncio.create_task(flood(flooding, inbox, 20_000))
            while not flooded.done():
                await well(host, secret_world)
                assert await flooding.ask_key(10) == flooding.server
            try:
                # What others ask meanwhile may be dropped too.
                await eventually(lambda: sum(answers.values()) + dropped() - before >= 20_000, "all", seconds=60)
            except AssertionError:
                pytest.fail(f"of 20,000: {dropped() - before} dropped, answered {answers}")
            assert count(service, "trellis_secrets_in_progress") == 0
            await well(flooding, secret_world)


@pytest.fixture
def api_address(cluster: ClusterInfo) -> str:
    return str(yaml.safe_load(Path(cluster.kubeconfig).read_text())["clusters"][0]["cluster"]["server"])


@pytest.fixture
async def proxy(api_address: str) -> AsyncIterator[TcpProxy]:
    server = urlsplit(api_address)
    async with TcpProxy(str(server.hostname), int(server.port or 443)) as running:
        yield running


@pytest.mark.parametrize("trouble", first_of(["silence", "refuse"]))
async def test_an_api_server_that_is_unavailable_is_reported_in_time_and_the_key_is_given_all_the_same(
    secret_world: SecretsWorld, proxy: TcpProxy, cluster: ClusterInfo, tmp_path: Path, trouble: str
) -> None:
    secret_world.ready_to_ask()
    kubeconfig = kubeconfig_through(proxy.port, Path(cluster.kubeconfig), tmp_path)
    async with secret_world.backend(PATIENT, kubeconfig=kubeconfig), secret_world.asking() as host:
        await well(host, secret_world)
        key = host.server
        if trouble == "refuse":
            await proxy.refuse()
        else:
            proxy.silence()
        asking = [asyncio.create_task(host.get("db", "password", namespace=secret_world.namespace)) for _ in range(40)]
        assert await host.ask_key(3) == key
        answers = [value(item) for item in await asyncio.gather(*asking)]
        assert any("UpstreamError" in item for item in answers)
        # Of forty at once some wait for the others: what it did not come to in time is told in time as well.
        assert {kind for item in answers for kind in item} <= {"UpstreamError", "Other"}
        if trouble == "refuse":
            await proxy.open()
        else:
            proxy.resume()

        async def again() -> bool:
            return bool(value(await host.get("db", "password", namespace=secret_world.namespace)) == "hunter2")

        async with asyncio.timeout(60):
            while not await again():  # noqa: ASYNC110 - the state of another process
                await asyncio.sleep(0.1)
