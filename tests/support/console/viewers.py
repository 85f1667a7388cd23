"""A fake API server with users: tokens, impersonation, permissions; and a console in front of it."""

from __future__ import annotations

import asyncio
import json
import re
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import unquote

import aiohttp
import orjson
from aiohttp.test_utils import TestServer

from console.access.authentication import Authentication
from console.access.identity import Proxy, Viewer
from console.access.sessions import Sessions
from console.app import make_application
from console.http.assets import Assets
from console.http.routes import Routes
from console.live.bus_connection import BusConnection
from console.live.feed import Feed
from console.live.viewer_registry import ViewerRegistry
from console.settings import Settings
from console.timings import Timings
from trellis.kube.transport import HttpRequest, Reply
from trellis.lattice.follow.heartbeats import Heartbeats
from trellis.read_model.live.live_model import all_parts
from trellis.read_model.live.watching import Place
from trellis.telemetry import Metrics, setup
from trellis.telemetry.health import Health
from trellis_dev.fakes.fake import FakeKube, status_reply

ANY = "*"
_DISCOVERY = re.compile(r"/apis/[a-z.]+")
"""What every account may read, by the ClusterRole system:discovery."""


@dataclass(frozen=True)
class Rule:
    """A permission of a user or a group; "*" is all, for namespaces also the whole cluster."""

    who: str
    verbs: frozenset[str] = frozenset({"get", "list", "watch"})
    resources: frozenset[str] = frozenset({ANY})
    namespace: str = ANY
    names: frozenset[str] = frozenset({ANY})


def may(
    who: str, resources: str = ANY, namespace: str = ANY, *, verbs: str = "get,list,watch", name: str = ANY
) -> Rule:
    return Rule(who, frozenset(verbs.split(",")), frozenset(resources.split(",")), namespace, frozenset({name}))


@dataclass
class Users:
    """Identity and permissions of the API server; the fake answers all other requests."""

    tokens: dict[str, tuple[str, tuple[str, ...]]] = field(default_factory=dict)
    rules: list[Rule] = field(default_factory=list)
    seen: list[tuple[str, str, str]] = field(default_factory=list)
    """User, method and path of each request."""
    own: bool = False
    """Whether requests without a token are of an account that may impersonate."""

    def __call__(self, request: HttpRequest) -> Reply | None:
        who = self._who(request)
        if who is None:
            return status_reply(401, "Unauthorized", "Unauthorized")
        user, groups = who
        self.seen.append((user, request.method, request.path))
        if request.path.endswith("/selfsubjectreviews"):
            return reply({"status": {"userInfo": {"username": user, "groups": list(groups)}}})
        if request.path.endswith("/selfsubjectaccessreviews"):
            requested = json.loads(request.body or b"{}")["spec"]["resourceAttributes"]
            named = requested["resource"] + (f".{requested['group']}" if requested.get("group") else "")
            allowed = self.allows(
                who, requested["verb"], named, requested.get("namespace", ""), requested.get("name", "")
            )
            return reply({"status": {"allowed": allowed}})
        if request.path in {"/readyz", "/version"} or _DISCOVERY.fullmatch(request.path):
            return None
        verb, resource, namespace, name = parsed(request)
        if self.allows(who, verb, resource, namespace, name):
            return None
        place = f' in the namespace "{namespace}"' if namespace else " at the cluster scope"
        plural, _, group = resource.partition(".")
        text = f'{plural} is forbidden: User "{user}" cannot {verb} resource "{plural}" in API group "{group}"{place}'
        return status_reply(403, "Forbidden", text)

    def allows(self, who: tuple[str, tuple[str, ...]], verb: str, resource: str, namespace: str, name: str) -> bool:
        users = {who[0], *who[1]}
        return any(
            rule.who in users
            and ({verb, ANY} & rule.verbs)
            and ({resource, resource.partition(".")[0], ANY} & rule.resources)
            and rule.namespace in {ANY, namespace}
            and ({name, ANY} & rule.names if name else ANY in rule.names)
            for rule in self.rules
        )

    def _who(self, request: HttpRequest) -> tuple[str, tuple[str, ...]] | None:
        authorization = request.headers.get("Authorization", "")
        if authorization:
            return self.tokens.get(authorization.removeprefix("Bearer "))
        if self.own and (user := request.headers.get("Impersonate-User")):
            groups = tuple(value for key, value in request.more if key == "Impersonate-Group")
            return user, (*groups, "system:authenticated")
        return ("console", ()) if self.own else ("system:anonymous", ())


def reply(document: Any) -> Reply:
    return Reply(200, orjson.dumps(document), {})


def parsed(request: HttpRequest) -> tuple[str, str, str, str]:
    parts = [unquote(part) for part in request.path.strip("/").split("/")]
    group = "" if parts[0] == "api" else parts[1]
    rest = parts[2:] if parts[0] == "api" else parts[3:]
    namespace = ""
    if rest[:1] == ["namespaces"] and len(rest) > 2:
        namespace, rest = rest[1], rest[2:]
    name = rest[1] if len(rest) > 1 else ""
    verb = "get" if name else "watch" if request.query.get("watch") else "list"
    verb = verb if request.method == "GET" else "create"
    return verb, rest[0] + (f".{group}" if group else ""), namespace, name


@dataclass
class World:
    """A running console at ``url``, and its components."""

    kube: FakeKube
    users: Users
    feed: Feed
    registry: ViewerRegistry
    authentication: Authentication
    url: str

    def page(self) -> aiohttp.ClientSession:
        """A browser without a cookie."""
        return aiohttp.ClientSession(base_url=self.url, cookie_jar=aiohttp.CookieJar(unsafe=True))

    @asynccontextmanager
    async def logged_in(self, token: str) -> AsyncIterator[aiohttp.ClientSession]:
        """A browser with a session of the token."""
        async with self.page() as page:
            async with page.post("/api/session", json={"token": token}, headers={"Origin": self.url}) as answer:
                assert answer.status == 204, await answer.text()
            yield page


@asynccontextmanager
async def console(
    users: Users,
    *,
    proxy: Proxy | None = None,
    settings: Settings | None = None,
    metrics: Metrics | None = None,
    timings: Timings = Timings(),  # noqa: B008 - frozen
    heartbeats: Heartbeats | None = None,
) -> AsyncIterator[World]:
    """Serve a console in front of a fake API server with these users; no bus."""
    settings = settings or Settings(cluster="c")
    telemetry = setup("console", metrics=metrics or Metrics())
    kube = FakeKube(telemetry=telemetry)
    users.own = proxy is not None
    kube.api.fault = users
    cluster: asyncio.Future[str] = asyncio.get_running_loop().create_future()
    cluster.set_result("c")

    def connect(viewer: Viewer) -> FakeKube:
        view = kube.for_viewer(8, Health("viewer"))
        return view.with_token(viewer.token) if proxy is None else view.acting_as(viewer.user, viewer.groups)

    parts = all_parts(Place(settings.namespace, settings.installer_namespace))
    sessions = Sessions(settings.console_session_ttl, timings=timings)
    registry = ViewerRegistry(
        *(connect, parts, settings.console_viewers, cluster, telemetry),
        lost=sessions.end_all_of,
        heartbeats=heartbeats,
        timings=timings,
    )
    feed = Feed()
    link = BusConnection(settings.nats_url, None, cluster, feed, Health("console"), timings=timings)
    authentication = Authentication(
        sessions, lambda: kube, proxy, settings.console_url, secure=settings.secure, timings=timings
    )
    routes = Routes(settings, authentication, registry, feed, link, telemetry, timings, heartbeats)
    server = TestServer(make_application(routes, telemetry, Assets()))
    await server.start_server()
    running = asyncio.create_task(registry.run())
    try:
        yield World(kube, users, feed, registry, authentication, str(server.make_url("")).rstrip("/"))
    finally:
        registry.stopping.set()
        await server.close()
        running.cancel()
        await asyncio.gather(running, return_exceptions=True)


@dataclass
class Message:
    """One server-sent event."""

    event: str
    data: Any
    id: str = ""


async def messages(response: aiohttp.ClientResponse) -> AsyncIterator[Message]:
    """Yield the messages of a stream, without heartbeats."""
    fields: dict[str, str] = {}
    while line := await response.content.readline():
        text = line.decode().rstrip("\n")
        if text:
            name, _, value = text.partition(":")
            fields[name] = value.removeprefix(" ")
        elif "data" in fields:
            yield Message(fields["event"], json.loads(fields["data"]), fields.get("id", ""))
            fields = {}
        else:
            fields = {}


class Page:
    """The state of a page, as docs/console/api.md describes it."""

    def __init__(self) -> None:
        self.entities: dict[str, Any] = {}
        self.last = ""
        self.messages: list[Message] = []

    def take(self, message: Message) -> None:
        self.messages.append(message)
        match message.event:
            case "hello" if message.data.get("full"):
                self.entities = {}
            case "delta":
                self.entities |= message.data["set"]
                for deleted in message.data["deleted"]:
                    self.entities.pop(deleted, None)
                self.last = message.id or self.last
            case _:
                pass
