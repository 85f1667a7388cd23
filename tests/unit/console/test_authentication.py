"""Authentication: a cookie for a token, identities of a proxy, and security headers."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack
from functools import partial
from http.cookies import SimpleCookie

import aiohttp
import pytest
from prometheus_client import generate_latest

from console.access.identity import Proxy
from console.domain.limits import LOGINS_BURST, REQUEST_BYTES, STREAMS_EACH
from console.http.answers import HEADERS
from console.settings import Settings
from support.console.viewers import Users, World, console, may, messages
from support.nats.buses import eventually_async
from support.suite.naming import lacking
from trellis.telemetry import Metrics

TOKEN = "t0ken-of-jane"
SECRET = "s" * 40


async def opens(page: aiohttp.ClientSession) -> bool:
    async with page.get("/api/stream") as answer:
        return answer.status == 200


def users() -> Users:
    return Users({TOKEN: ("jane", ("dev",)), "t2": ("joe", ())}, [may("jane"), may("dev")])


@pytest.fixture
async def world() -> AsyncIterator[World]:
    async with console(users()) as found:
        yield found


async def test_a_token_gives_a_cookie_without_its_content(world: World) -> None:
    async with (
        world.page() as page,
        page.post("/api/session", json={"token": TOKEN}, headers={"Origin": world.url}) as answer,
    ):
        assert answer.status == 204
        cookie = SimpleCookie(answer.headers["Set-Cookie"])["trellis-console"]
        assert (cookie["httponly"], cookie["samesite"], cookie["path"], cookie["secure"]) == (True, "Strict", "/", "")
        assert TOKEN not in str(answer.headers)
        async with page.get("/api/session") as session:
            found = await session.json()
        assert (found["user"], found["groups"], found["auth"]) == ("jane", ["dev"], "token")
        assert TOKEN not in str(found)


async def test_over_tls_the_cookie_goes_nowhere_else() -> None:
    settings = Settings(cluster="c", console_url="https://console.example")
    async with console(users(), settings=settings) as world, world.page() as page:
        origin = {"Origin": "https://console.example"}
        async with page.post("/api/session", json={"token": TOKEN}, headers=origin) as answer:
            cookie = SimpleCookie(answer.headers["Set-Cookie"])["__Host-trellis-console"]
            assert cookie["secure"] is True
        async with page.post("/api/session", json={"token": TOKEN}, headers={"Origin": world.url}) as answer:
            assert answer.status == 403


@pytest.mark.parametrize(
    "origin", [None, "http://evil.example", "null", "http://127.0.0.1", "http://localhost:1", "http://["]
)
@pytest.mark.parametrize("path", ["/api/session", "/api/session/end"])
async def test_another_sites_page_neither_logs_in_nor_out(world: World, path: str, origin: str | None) -> None:
    async with world.logged_in(TOKEN) as page:
        headers = {} if origin is None else {"Origin": origin}
        async with page.post(path, json={"token": "t2"}, headers=headers) as answer:
            assert answer.status == 403
        async with page.get("/api/session") as answer:
            assert (await answer.json())["user"] == "jane"


@pytest.mark.parametrize(
    ("body", "kind", "status"),
    [
        (b'{"token": "wrong"}', "application/json", 401),
        (b'{"token": "a b"}', "application/json", 400),
        (b"{", "application/json", 400),
        (b"[]", "application/json", 400),
        (b"token=t2", "application/x-www-form-urlencoded", 415),
        (b'{"token": "t2"}', "text/plain", 415),
        (b"x" * (REQUEST_BYTES + 1), "application/json", 413),
    ],
)
async def test_an_invalid_login_states_the_error(world: World, body: bytes, kind: str, status: int) -> None:
    headers = {"Origin": world.url, "Content-Type": kind}
    async with world.page() as page, page.post("/api/session", data=body, headers=headers) as answer:
        assert answer.status == status
        error = (await answer.json())["error"]
        assert error["what"]
        assert error["do"]
        assert "Set-Cookie" not in answer.headers


async def test_guessing_tokens_is_rate_limited(world: World) -> None:
    async with world.page() as page:
        statuses = []
        for _ in range(int(LOGINS_BURST) + 5):
            async with page.post("/api/session", json={"token": "x"}, headers={"Origin": world.url}) as answer:
                statuses.append(answer.status)
    assert statuses[0] == 401
    assert statuses[-1] == 429


async def test_a_second_log_in_ends_the_first_session(world: World) -> None:
    async with world.logged_in(TOKEN) as page:
        first = {cookie.key: cookie.value for cookie in page.cookie_jar}
        async with page.post("/api/session", json={"token": "t2"}, headers={"Origin": world.url}) as answer:
            assert answer.status == 204
        async with world.page() as other, other.get("/api/session", cookies=first) as answer:
            assert answer.status == 401
        async with page.get("/api/session") as answer:
            assert (await answer.json())["user"] == "joe"


PATHS = [
    "/api/session",
    "/api/stream",
    "/api/events",
    "/api/events/stream",
    "/api/dead-letters",
    "/api/dead-letters/1",
    "/api/explain/node/n1",
    "/api/explain/application/team/shop",
    "/api/traces/" + "ab" * 16,
]


@pytest.mark.parametrize("path", PATHS)
async def test_an_anonymous_viewer_sees_nothing(world: World, path: str) -> None:
    for headers in ({}, {"Cookie": "trellis-console=guess"}, {"Authorization": f"Bearer {TOKEN}"}):
        async with world.page() as page, page.get(path, headers=headers) as answer:
            assert answer.status == 401
            assert set((await answer.json())["error"]) == {"what", "do"}


async def test_headers_of_a_proxy_count_for_nothing_without_one(world: World) -> None:
    headers = {"X-Forwarded-User": "jane", "X-Trellis-Proxy-Secret": SECRET}
    async with world.page() as page, page.get("/api/session", headers=headers) as answer:
        assert answer.status == 401


@pytest.mark.parametrize("method", ["PUT", "PATCH", "DELETE", "POST"])
@pytest.mark.parametrize("path", PATHS[1:])
async def test_there_is_nothing_to_change(world: World, method: str, path: str) -> None:
    async with world.logged_in(TOKEN) as page, page.request(method, path, headers={"Origin": world.url}) as answer:
        assert answer.status == 405
        assert (await answer.json())["error"]["do"] == "use GET"


@pytest.mark.parametrize("path", ["/", "/api/session", "/api/nothing", "/nothing.js", "/../app.py", "/%2e%2e/app.py"])
async def test_every_answer_has_the_security_headers(world: World, path: str) -> None:
    async with world.page() as page, page.get(path) as answer:
        for name, value in HEADERS.items():
            assert answer.headers[name] == value
        assert answer.headers["Cache-Control"] == "no-store"
        assert "unsafe" not in answer.headers["Content-Security-Policy"]
        assert "def create_app" not in await answer.text()


async def test_so_does_a_stream(world: World) -> None:
    async with world.logged_in(TOKEN) as page, page.get("/api/stream") as answer:
        assert answer.headers["Content-Type"].startswith("text/event-stream")
        assert HEADERS.items() <= dict(answer.headers).items()


async def test_streams_are_limited_per_viewer(world: World) -> None:
    async with world.logged_in(TOKEN) as page, world.logged_in("t2") as other:
        streams = [await page.get("/api/stream") for _ in range(STREAMS_EACH)]
        async with page.get("/api/stream") as answer:
            assert answer.status == 429
            assert answer.headers["Retry-After"]
        async with other.get("/api/stream") as answer:
            assert answer.status == 200
        streams.pop().close()
        await eventually_async(partial(opens, page))
        for stream in streams:
            stream.close()


async def test_one_viewer_too_many_waits_and_an_idle_one_makes_room() -> None:
    settings = Settings(cluster="c", console_viewers=1)
    async with (
        console(users(), settings=settings) as world,
        world.logged_in(TOKEN) as page,
        world.logged_in("t2") as other,
    ):
        async with page.get("/api/stream") as stream:
            assert stream.status == 200
            async with other.get("/api/stream") as answer:
                assert answer.status == 429
        await eventually_async(partial(opens, other))


async def test_a_user_with_many_tokens_does_not_lock_out_others() -> None:
    """Each token is a viewer: a user who may create tokens would have all places."""
    tokens = {f"m{number}": ("mallory", ()) for number in range(4)}
    everybody = Users(tokens | {TOKEN: ("jane", ()), "t2": ("joe", ())}, [may("jane"), may("joe"), may("mallory")])
    settings = Settings(cluster="c", console_viewers=3)
    async with console(everybody, settings=settings) as world, AsyncExitStack() as stack:
        pages = {name: await stack.enter_async_context(world.logged_in(name)) for name in everybody.tokens}

        async def look(name: str) -> aiohttp.ClientResponse:
            return await stack.enter_async_context(pages[name].get("/api/stream"))

        first = [await look(name) for name in ("m0", "m1", "m2")]
        assert (await look("m3")).status == 429
        assert (await look(TOKEN)).status == 200
        async with asyncio.timeout(10):
            received = [message async for message in messages(first[0])]
        assert received[-1].data == {"reason": "again"}, "who has to go is not logged out"
        assert (await look("t2")).status == 200
        assert (await look("m0")).status == 429, "he has one place, as everybody"
        async with pages["m0"].get("/api/session") as answer:
            assert answer.status == 200


async def test_a_proxy_names_the_viewer_and_the_console_impersonates_them() -> None:
    proxy = Proxy("X-Forwarded-User", "X-Forwarded-Groups", SECRET.encode())
    async with console(users(), proxy=proxy) as world, world.page() as page:
        headers = {"X-Forwarded-User": "jane", "X-Forwarded-Groups": "dev", "X-Trellis-Proxy-Secret": SECRET}
        async with page.get("/api/session", headers=headers) as answer:
            found = await answer.json()
            assert (found["user"], found["auth"], found["expires_in"]) == ("jane", "proxy", None)
        async with page.get("/api/explain/node/n1", headers=headers) as answer:
            assert (await answer.json())["ok"] is False
        assert {who for who, *_ in world.users.seen} == {"jane"}
        async with page.get("/api/explain/node/n1", headers=headers | {"X-Trellis-Proxy-Secret": "x"}) as answer:
            assert answer.status == 403
        async with page.post("/api/session", json={"token": TOKEN}, headers={"Origin": world.url}) as answer:
            assert answer.status == 400


async def test_an_explanation_is_read_as_the_viewer(world: World) -> None:
    async with world.logged_in("t2") as page, page.get("/api/explain/node/n1") as answer:
        assert answer.status == 403
        assert lacking((await answer.json())["error"]["what"], "get nodes") == []
    async with world.logged_in(TOKEN) as page, page.get("/api/explain/node/n1") as answer:
        assert lacking((await answer.json())["cause"], 'Node "n1"') == []


@pytest.mark.parametrize(
    "path",
    ["node/team/n1", "shop", "application/shop", "secret/team/db", "node/..", "node/a%2Cb", "node/A", "service/../x"],
)
async def test_a_page_of_nothing_is_refused(world: World, path: str) -> None:
    async with world.logged_in(TOKEN) as page, page.get(f"/api/explain/{path}") as answer:
        assert answer.status in {400, 404}
        assert set((await answer.json())["error"]) == {"what", "do"}


async def test_a_trace_is_visible_to_viewers_with_permission_for_whole_traces() -> None:
    path = "/api/traces/" + "ab" * 16
    few = Users({TOKEN: ("jane", ())}, [may("jane", "pods")])
    async with console(few) as world, world.logged_in(TOKEN) as page, page.get(path) as answer:
        assert answer.status == 403
        assert "traces.console.trellis.dev" in (await answer.json())["error"]["what"]
    async with console(users()) as world, world.logged_in(TOKEN) as page:
        async with page.get(path) as answer:
            assert answer.status == 404
        async with page.get("/api/traces/nonsense") as answer:
            assert answer.status == 400


async def test_metrics_name_the_request_and_not_the_viewer() -> None:
    metrics = Metrics()
    async with console(users(), metrics=metrics) as world, world.logged_in(TOKEN) as page:
        async with page.get("/api/session"), page.get("/api/explain/node/secret-name"):
            pass
        async with page.get("/api/stream"):
            text = generate_latest(metrics.registry).decode()
    assert 'trellis_console_requests_total{code="200",route="/api/session",service="console"} 1.0' in text
    assert 'route="/api/explain/{kind}/{name}"' in text
    assert 'trellis_console_viewers{service="console"} 1.0' in text
    assert 'trellis_console_streams{service="console",stream="model"} 1.0' in text
    assert "jane" not in text
    assert "secret-name" not in text


async def test_tabs_with_other_namespaces_are_bounded_by_their_watches(world: World) -> None:
    async with world.logged_in(TOKEN) as page:
        first = "/api/stream?namespaces=" + ",".join("abcdefghijkl")
        second = "/api/stream?namespaces=x,y"
        open_tab = await page.get(first)
        async with page.get(first) as answer:
            assert answer.status == 200, "the same namespaces cost nothing"
        async with page.get(second) as answer:
            assert answer.status == 429
        open_tab.close()

        async def opens_now() -> bool:
            async with page.get(second) as answer:
                return answer.status == 200

        await eventually_async(opens_now)
