"""The process of the console: it listens, reports its health, and ends on request."""

from __future__ import annotations

import asyncio
import socket
import ssl
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import aiohttp
import pytest

from console.app import KUBERNETES, PORT, Console, create_app
from console.domain.limits import READS_EACH
from console.settings import Settings
from console.timings import Timings
from support.console import seen_objects as objects
from support.console.viewers import Page, Users, may, messages
from support.nats.buses import eventually, eventually_async
from trellis.config.settings import SettingsError
from trellis.kube.resources import NAMESPACES, NODES
from trellis_dev.fakes.fake import FakeKube, status_reply
from trellis_dev.localcluster.certs import write_pki

TOKEN = "t"


@asynccontextmanager
async def running(
    kube: FakeKube,
    dead_port: int,
    *,
    timings: Timings = Timings(),  # noqa: B008 - frozen
    **given: Any,
) -> AsyncIterator[Console]:
    settings = Settings(
        console_port=0,
        console_address="127.0.0.1",
        nats_url=f"nats://127.0.0.1:{dead_port}",
        shutdown_grace_period=5,
        **given,
    )
    console, stop = create_app(settings, kube=kube, timings=timings), asyncio.Event()
    task = asyncio.create_task(console.run(stop))
    await eventually(lambda: console.health.readiness().ok or task.done())
    try:
        yield console
    finally:
        stop.set()
        async with asyncio.timeout(5):
            await task


@pytest.fixture
def kube() -> FakeKube:
    found = FakeKube()
    found.api.fault = Users({TOKEN: ("jane", ())}, [may("jane")])
    return found


async def test_it_serves_while_the_bus_is_unavailable_and_reports_it(kube: FakeKube, unused_tcp_port: int) -> None:
    kube.put(NODES, objects.node("n1"))
    async with running(kube, unused_tcp_port, cluster="c") as console:
        url = f"http://127.0.0.1:{console.port}"
        await eventually(lambda: "bus" in str(console.health.notes()))
        jar = aiohttp.CookieJar(unsafe=True)
        async with aiohttp.ClientSession(base_url=url, cookie_jar=jar) as browser:
            async with browser.post("/api/session", json={"token": TOKEN}, headers={"Origin": url}) as answer:
                assert answer.status == 204
            page = Page()
            async with browser.get("/api/stream") as stream, asyncio.timeout(10):
                async for message in messages(stream):
                    page.take(message)
                    if "node/n1" in page.entities:
                        break
            async with browser.get("/api/dead-letters") as answer:
                assert answer.status == 503
                assert "127.0.0.1" in (await answer.json())["error"]["what"]


async def test_the_first_permitted_viewer_reveals_the_cluster(kube: FakeKube, unused_tcp_port: int) -> None:
    uid = next(
        item["metadata"]["uid"] for item in kube.objects(NAMESPACES) if item["metadata"]["name"] == "kube-system"
    )
    async with running(kube, unused_tcp_port) as console:
        url = f"http://127.0.0.1:{console.port}"
        jar = aiohttp.CookieJar(unsafe=True)
        async with aiohttp.ClientSession(base_url=url, cookie_jar=jar) as browser:
            async with browser.post("/api/session", json={"token": TOKEN}, headers={"Origin": url}) as answer:
                assert answer.status == 204
            async with browser.get("/api/session") as answer:
                assert (await answer.json())["cluster"] is None
            async with browser.get("/api/explain/node/n1"):
                pass
            async with asyncio.timeout(10):
                while True:
                    async with browser.get("/api/session") as answer:
                        if found := (await answer.json())["cluster"]:
                            break
        assert found == uid[:8]


async def test_it_is_not_ready_without_an_api_server(kube: FakeKube, unused_tcp_port: int) -> None:
    kube.fail_next(1000)
    settings = Settings(console_port=0, console_address="127.0.0.1", nats_url=f"nats://127.0.0.1:{unused_tcp_port}")
    console, stop = create_app(settings, kube=kube), asyncio.Event()
    task = asyncio.create_task(console.run(stop))
    await eventually(lambda: console.health.parts() == {KUBERNETES: False, PORT: True})
    stop.set()
    await task


async def test_an_api_server_that_refuses_anonymous_requests_is_available(kube: FakeKube, unused_tcp_port: int) -> None:
    kube.answer_next(1000, lambda _: status_reply(401, "Unauthorized", "Unauthorized"))
    async with running(kube, unused_tcp_port) as console:
        assert console.health.parts() == {KUBERNETES: True, PORT: True}


async def test_a_port_that_is_taken_is_named(kube: FakeKube) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        settings = Settings(console_port=taken.getsockname()[1], console_address="127.0.0.1")
        with pytest.raises(SettingsError, match="TRELLIS_CONSOLE_PORT"):
            await create_app(settings, kube=kube).run(asyncio.Event())


async def test_a_stream_does_not_hold_up_the_end(kube: FakeKube, unused_tcp_port: int) -> None:
    jar = aiohttp.CookieJar(unsafe=True)
    async with aiohttp.ClientSession(cookie_jar=jar) as browser:
        async with running(kube, unused_tcp_port, cluster="c") as console:
            url = f"http://127.0.0.1:{console.port}"
            async with browser.post(f"{url}/api/session", json={"token": TOKEN}, headers={"Origin": url}) as answer:
                assert answer.status == 204
            stream = await browser.get(f"{url}/api/stream")
        received = [message async for message in messages(stream)]
    assert received[-1].data == {"reason": "stopping"}


async def test_a_body_that_never_comes_holds_no_connection(kube: FakeKube, unused_tcp_port: int) -> None:
    async with running(kube, unused_tcp_port, cluster="c", timings=Timings(body=0.05)) as console:
        host = f"127.0.0.1:{console.port}"
        reader, writer = await asyncio.open_connection("127.0.0.1", console.port)
        head = f"POST /api/session HTTP/1.1\r\nHost: {host}\r\nOrigin: http://{host}\r\nContent-Type: application/json"
        writer.write(f"{head}\r\nContent-Length: 50\r\n\r\n{{".encode())
        async with asyncio.timeout(5):
            answer = await reader.read()
        writer.close()
    assert answer == b"" or b" 408 " in answer.splitlines()[0]


async def test_a_viewer_who_navigates_on_does_not_wait_for_the_former_request(
    kube: FakeKube, unused_tcp_port: int
) -> None:
    """A page that goes through a list asks why of each, and takes the question back with the next."""
    requested = 0

    async def hang(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        nonlocal requested
        requested += 1
        while await reader.read(1024):
            pass
        writer.close()

    silent = await asyncio.start_server(hang, "127.0.0.1", 0)
    url = f"http://127.0.0.1:{silent.sockets[0].getsockname()[1]}"
    jar = aiohttp.CookieJar(unsafe=True)
    async with running(kube, unused_tcp_port, cluster="c", jaeger_url=url) as console, silent:
        base = f"http://127.0.0.1:{console.port}"
        async with aiohttp.ClientSession(base_url=base, cookie_jar=jar) as browser:
            async with browser.post("/api/session", json={"token": TOKEN}, headers={"Origin": base}) as answer:
                assert answer.status == 204
            for number in range(READS_EACH):
                left = asyncio.create_task(browser.get(f"/api/traces/{number:032x}"))
                await eventually(lambda number=number: requested > number)
                left.cancel()
                await asyncio.gather(left, return_exceptions=True)

            async def reads() -> bool:
                async with browser.get("/api/explain/node/n1") as answer:
                    return answer.status == 200

            await eventually_async(reads)


async def test_a_proxy_is_known_by_its_certificate_and_no_other_is(
    kube: FakeKube, unused_tcp_port: int, tmp_path: Path
) -> None:
    write_pki(tmp_path)
    kube.api.fault = Users(rules=[may("jane")], own=True)
    given: dict[str, Any] = {
        "cluster": "c",
        "console_auth": "proxy",
        "console_tls_cert_file": tmp_path / "kube-apiserver.crt",
        "console_tls_key_file": tmp_path / "kube-apiserver.key",
        "console_proxy_ca_file": tmp_path / "front-proxy-ca.crt",
    }
    proxys, nobodys = (ssl.create_default_context(cafile=str(tmp_path / "ca.crt")) for _ in range(2))
    proxys.load_cert_chain(tmp_path / "front-proxy-client.crt", tmp_path / "front-proxy-client.key")
    jane = {"X-Forwarded-User": "jane"}
    async with aiohttp.ClientSession() as browser:

        async def status(console: Console, trust: ssl.SSLContext) -> int:
            url = f"https://127.0.0.1:{console.port}/api/session"
            async with browser.get(url, headers=jane, ssl=trust) as answer:
                return answer.status

        async with running(kube, unused_tcp_port, console_proxy_names=("front-proxy-client",), **given) as console:
            assert await status(console, proxys) == 200
            assert await status(console, nobodys) == 403
        async with running(kube, unused_tcp_port, console_proxy_names=("another",), **given) as console:
            assert await status(console, proxys) == 403


async def test_heartbeats_of_wasmcloud_v2_are_received_only_from_a_configured_nats(
    kube: FakeKube, unused_tcp_port: int
) -> None:
    async with running(kube, unused_tcp_port):
        assert "heartbeats" not in {task.get_name() for task in asyncio.all_tasks()}
    async with running(kube, unused_tcp_port, v2_nats=f"nats://127.0.0.1:{unused_tcp_port}") as console:
        assert "heartbeats" in {task.get_name() for task in asyncio.all_tasks()}
        assert console.health.readiness().ok, "the console works without them"


def test_a_file_of_the_nats_of_wasmcloud_v2_that_cannot_be_used_is_named(kube: FakeKube, tmp_path: Path) -> None:
    path = tmp_path / "nats.creds"
    path.write_text("no credentials")
    settings = Settings(v2_nats="nats://127.0.0.1:1", v2_nats_credentials_file=path)
    with pytest.raises(SettingsError, match="TRELLIS_V2_NATS_CREDENTIALS_FILE"):
        create_app(settings, kube=kube)
