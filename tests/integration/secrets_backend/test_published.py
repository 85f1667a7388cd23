"""Published data about secrets: events about each answer, changes, limits; and never a value, a key or a token."""

from __future__ import annotations

import asyncio
import base64
import contextlib
import json
import secrets
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
from aiohttp import web

from support.nodes.fleet import eventually
from support.secrets.secret_requests import changed, policy
from support.secrets.secrets_host import Host, value
from support.secrets.secrets_world import SecretsWorld, served
from support.suite.service_process import free_port, get, lines, running, until_status
from trellis import names
from trellis.bus.streams.tail import Selection, tail
from trellis.kube.resources import SECRETS
from trellis_dev.localcluster.nats import NatsServer

pytestmark = pytest.mark.cluster


async def events(world: SecretsWorld, wanted: int, event_name: str, url: str = "") -> list[dict[str, Any]]:
    """Return the data of the first events of a kind about secrets."""
    found: list[dict[str, Any]] = []
    fleet = world.hosts.fleet
    with contextlib.suppress(TimeoutError):
        async with asyncio.timeout(40):
            async for event in tail(
                url or fleet.info.nats_url, Selection(cluster=fleet.id, noun="secret", last=10_000)
            ):
                if event.event_name == event_name:
                    found.append(event.event["data"])
                if sum(item.get("count", 1) for item in found) >= wanted:
                    break
    return found


async def test_each_answer_is_an_event_with_requester_and_secret(secret_world: SecretsWorld) -> None:
    secret_world.ready_to_ask()
    namespace = secret_world.namespace
    async with secret_world.backend(), secret_world.asking() as host:
        for _ in range(5):
            await host.get("db", "password", namespace=namespace)
        await host.get("db", "none", namespace=namespace)
        await host.get("db", "password", namespace="kube-system")
        await host.get("nothing", "password", namespace=namespace)
        about = {"entity": host.entity.public, "host": host.host.public, "issuer": host.issuer.public}
        about |= {"application": "app", "backend": "kube"}
        granted = await events(secret_world, 5, "granted")
        denied = await events(secret_world, 3, "denied")
    user = f"system:serviceaccount:{namespace}:wasmcloud-secrets"
    assert sum(item["count"] for item in granted) == 5
    db = secret_world.hosts.call("GET", SECRETS, "db")["metadata"]
    assert granted[0] | {"count": 1} == about | {
        "namespace": namespace,
        "name": "db",
        "field": "password",
        "user": user,
        "uid": db["uid"],
        "resource_version": db["resourceVersion"],
        "rule": granted[0]["rule"],
        "count": 1,
    }
    assert f"namespace {namespace} " in granted[0]["rule"]
    assert [(item["error"], item["namespace"], item["name"], item["user"]) for item in denied] == [
        ("SecretNotFound", namespace, "db", user),
        ("PolicyError", "kube-system", "db", ""),
        ("UpstreamError", namespace, "nothing", user),
    ]
    for item in denied:
        assert item.items() >= about.items()


@pytest.mark.thorough
async def test_an_invalid_request_is_an_event_with_its_requester_and_an_unsigned_one_is_none(
    secret_world: SecretsWorld,
) -> None:
    secret_world.ready_to_ask()
    namespace, long = secret_world.namespace, "x" * 100_000
    async with secret_world.backend(), secret_world.asking() as host:
        good = host.request("db", "password", namespace=namespace)
        for path, amiss in (
            ("context.entity_jwt", host.tokens[1]),
            ("context.host_jwt", "no token"),
            ("key", ["db"]),
            ("context.application.policy", "no policy " + long),
            ("context.application.policy", policy(namespace="../x\r\n" + long)),
            ("key", "../nodes\x1b[2J" + long),
            ("field", "a/b\n" + long),
            ("field", ""),
        ):
            answer = await host.send(json.dumps(changed(good, {path: amiss})).encode())
            assert "error" in answer, path
        denied = await events(secret_world, 5, "denied")
    assert [(item["error"], item["namespace"], item["name"], item["field"]) for item in denied] == [
        ("PolicyError", "", "db", "password"),
        ("PolicyError", "", "db", "password"),
        ("UpstreamError", namespace, "", "password"),
        ("SecretNotFound", namespace, "db", ""),
        ("Other", namespace, "db", ""),
    ]
    for item in denied:
        assert (item["entity"], item["host"], item["application"]) == (host.entity.public, host.host.public, "app")
        assert all(len(text) < 500 and text.isprintable() for text in item.values() if isinstance(text, str)), item


@pytest.mark.thorough
async def test_no_answer_waits_for_a_bus_that_is_unavailable_and_no_event_is_lost(
    secret_world: SecretsWorld, tmp_path: Path
) -> None:
    secret_world.ready_to_ask()
    port = free_port()

    with NatsServer(tmp_path / "bus") as bus:
        environment = secret_world.hosts.fleet.environment(nats_url=bus.url, health_port=port)
        async with secret_world.host() as host:
            async with running(tmp_path / "log", "secrets-backend", **environment):
                await served(host)
                await until_status(port, "/readyz", 200)
                bus.stop()
                await until_status(port, "/readyz", 503)
                for _ in range(20):
                    assert (
                        value(await host.get("db", "password", namespace=secret_world.namespace, seconds=3))
                        == "hunter2"
                    )
                bus.start()
                assert sum(event["count"] for event in await events(secret_world, 20, "granted", bus.url)) == 20
                for _ in range(20):
                    await host.get("db", "none", namespace=secret_world.namespace)
            # It was asked to stop right after: what it had to say is said all the same.
            assert sum(event["count"] for event in await events(secret_world, 20, "denied", bus.url)) == 20


async def test_a_changed_secret_is_published_with_its_receivers(secret_world: SecretsWorld) -> None:
    secret_world.ready_to_ask()
    secret_world.group("second", lattice="other")
    async with secret_world.backend(), secret_world.asking() as host:
        await host.get("db", "password", namespace=secret_world.namespace)
        secret_world.secret("db", password="*******")
        (changed,) = await events(secret_world, 1, "changed")
        assert (changed["namespace"], changed["name"]) == (secret_world.namespace, "db")
        assert changed["hosts"] == [host.host.public]
        assert changed["applications"] == ["app"]
        assert changed["groups"] == [
            {"namespace": secret_world.namespace, "lattice": lattice} for lattice in ("default", "other")
        ]
        now = secret_world.hosts.call("GET", SECRETS, "db")["metadata"]
        assert (changed["uid"], changed["resource_version"]) == (now["uid"], now["resourceVersion"])
        # Nobody has that version: a further change is none to anybody until it is given again.
        secret_world.secret("db", password="changed again")
        assert value(await host.get("db", "password", namespace=secret_world.namespace)) == "changed again"
        secret_world.secret("db", password="and again")
        assert len(await events(secret_world, 2, "changed")) == 2


@pytest.mark.thorough
async def test_a_rate_limited_requester_is_informed_and_others_are_not_limited(secret_world: SecretsWorld) -> None:
    secret_world.ready_to_ask()
    async with (
        secret_world.backend(secrets_entity_rate=1.0),
        secret_world.asking() as host,
        secret_world.asking() as two,
    ):
        requested = (host.get("db", "password", namespace=secret_world.namespace) for _ in range(30))
        answers = [value(item) for item in await asyncio.gather(*requested)]
        assert "hunter2" in answers
        assert any("TRELLIS_SECRETS_ENTITY_RATE" in str(item) for item in answers)
        assert value(await two.get("db", "password", namespace=secret_world.namespace)) == "hunter2"


@pytest.mark.thorough
async def test_a_secret_is_reread_for_each_request_unless_a_cache_is_configured(secret_world: SecretsWorld) -> None:
    secret_world.ready_to_ask()

    async def request(host: Host) -> Any:
        return value(await host.get("db", "password", namespace=secret_world.namespace))

    async with secret_world.backend(), secret_world.asking() as host:
        assert await request(host) == "hunter2"
        secret_world.secret("db", password="second")
        assert await request(host) == "second"
    async with secret_world.backend(secrets_cache_ttl=2.0), secret_world.asking() as host:
        assert await request(host) == "second"
        secret_world.secret("db", password="third")
        assert await request(host) == "second"
        async with asyncio.timeout(20):
            while await request(host) != "third":  # noqa: ASYNC110 - time passes by itself
                await asyncio.sleep(0.1)


@contextlib.asynccontextmanager
async def collector() -> AsyncIterator[tuple[str, bytearray]]:
    """Provide a collector that keeps all spans."""
    kept = bytearray()

    async def keep(request: web.Request) -> web.Response:
        kept.extend(await request.read())
        return web.Response()

    application = web.Application(client_max_size=2**26)
    application.router.add_post("/v1/traces", keep)
    runner, port = web.AppRunner(application), free_port()
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", port).start()
    try:
        yield f"http://127.0.0.1:{port}", kept
    finally:
        await runner.cleanup()


async def test_nothing_that_is_planted_comes_out_anywhere_but_in_its_answer(
    secret_world: SecretsWorld, tmp_path: Path
) -> None:
    planted = {f"entry{number}": f"planted-{secrets.token_hex(16)}" for number in range(4)}
    secret_world.ready_to_ask(**planted)
    secret_world.secret("large", big=planted["entry3"] * 26_213)  # below the limit of Secrets, not of NATS
    secret_world.account("large-reader", secrets=("large",))
    log, port = tmp_path / "log", free_port()
    async with collector() as (endpoint, spans):
        settings = {"log_level": "debug", "otlp_endpoint": endpoint, "health_port": port, "log_format": "json"}
        environment = secret_world.hosts.fleet.environment(**settings)
        async with running(log, "secrets-backend", **environment), secret_world.host() as host:
            await served(host)
            for entry, text in planted.items():
                assert value(await host.get("db", entry, namespace=secret_world.namespace)) == text
            errors = [
                await host.get("db", "none", namespace=secret_world.namespace),
                await host.get("db", "entry0", namespace="kube-system"),
                await host.get("large", "big", namespace=secret_world.namespace, impersonate="large-reader"),
                await host.send(planted["entry1"].encode()),
                await host.send(b'{"key":"' + planted["entry2"].encode()),
            ]
            assert all("error" in error for error in errors)
            assert "larger" in str(errors[2]) or "too large" in str(errors[2])
            seed = base64.b64decode((secret_world.key_secret() or {})["data"][names.SECRETS_SEED]).decode()
            out = [str(errors), get(port, "/metrics")[1], get(port, "/readyz")[1], get(port, "/healthz")[1]]
            out.append(str(await events(secret_world, 4, "granted")) + str(await events(secret_world, 3, "denied")))
            for name in (b"publish secret.granted", b"answer secret", b"kubernetes GET secrets"):
                await eventually(lambda name=name: name in bytes(spans), f"spans came: {name!r}")
    out.append(await asyncio.to_thread(log.read_text))
    out.append(bytes(spans).decode("latin-1"))
    assert any(line["logger"].startswith("secrets_backend.") and line["level"] == "info" for line in lines(log))
    everything = "".join(out)
    for text in (*planted.values(), seed, *host.tokens):
        for form in (text, base64.b64encode(text.encode()).decode()[:-4], text.encode().hex()):
            assert form not in everything
    assert host.entity.public in everything, "what may be shown is"
