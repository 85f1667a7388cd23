"""Routes of the console, as docs/console/api.md describes them; none changes the cluster.

In: requests. Out: JSON and streams, read with the identity of the viewer. Called by ``app``. Invariant: every route
except login and logout is a GET.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from typing import Any, Final

from aiohttp import web

from console.access.authentication import Authentication
from console.access.permissions import TRACES, ReviewedPermissions
from console.domain.limits import NAMESPACES, PAGE_EVENTS, SPANS
from console.domain.messages import message, message_id, parse_message_id
from console.http.answers import json_response
from console.http.refusals import RefusedError, bad, not_allowed
from console.live.bus_connection import BusConnection
from console.live.feed import Feed, Filter, permissions_of, read_filter
from console.live.replays import dead_letter_page, dead_letters, read_page_request, replay
from console.live.streaming import Outlet, counted, send_model
from console.live.viewer_registry import ViewerRegistry, Visit
from console.settings import Settings
from console.timings import Timings
from trellis.installer_api.parse_int import whole
from trellis.lattice.follow.heartbeats import Heartbeats
from trellis.read_model.explain.page import Explanation
from trellis.read_model.reading.cluster import Reading
from trellis.read_model.reading.explained import KINDS, page_of
from trellis.read_model.reading.explained_pods import pods_page
from trellis.read_model.reading.explained_v2 import KINDS as V2_KINDS
from trellis.read_model.reading.explained_v2 import Received, v2_page_of
from trellis.read_model.reading.find import ObjectNotFoundError
from trellis.read_model.reading.pod_kinds import KINDS as POD_KINDS
from trellis.read_model.reading.traces import ask_jaeger
from trellis.read_model.traces.span_tree import document_of
from trellis.telemetry import Telemetry, trellis_version

_RECENT: Final = 50
_RECENT_MOST: Final = 500
_LABEL: Final = re.compile(r"[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?")
_NAME: Final = re.compile(r"[a-z0-9]([a-z0-9.-]{0,251}[a-z0-9])?")
_TRACE: Final = re.compile(r"[0-9a-f]{32}")
EXPLAINED: Final = (*KINDS, *V2_KINDS, *POD_KINDS)
"""Kinds that have a page."""
_CLUSTERED: Final = frozenset({"node", "shim"})


@dataclass(frozen=True, slots=True)
class Routes:
    """Handlers by address."""

    settings: Settings
    authentication: Authentication
    registry: ViewerRegistry
    feed: Feed
    bus: BusConnection
    telemetry: Telemetry
    timings: Timings = field(default_factory=Timings)
    heartbeats: Heartbeats | None = None

    def add_to(self, router: web.UrlDispatcher) -> None:
        """Register every address."""
        router.add_post("/api/session", self.log_in)
        router.add_post("/api/session/end", self.log_out)
        for path, handler in (
            ("/api/session", self.session),
            ("/api/stream", self.model),
            ("/api/events", self.past_events),
            ("/api/events/stream", self.events),
            ("/api/dead-letters", self.dead_letters),
            ("/api/dead-letters/{sequence}", self.dead_letter),
            ("/api/explain/{kind}/{name}", self.explain),
            ("/api/explain/{kind}/{namespace}/{name}", self.explain),
            ("/api/traces/{id}", self.trace),
        ):
            router.add_get(path, handler)

    async def log_in(self, request: web.Request) -> web.StreamResponse:
        """Log in with a token; set a cookie."""
        _, response = await self.authentication.log_in(request)
        self._count_sessions()
        return response

    async def log_out(self, request: web.Request) -> web.StreamResponse:
        """End the session of a cookie, and the streams of its viewer with the last one."""
        deleted, response = self.authentication.log_out(request)
        if deleted:
            self.registry.dismiss(deleted)
        self._count_sessions()
        return response

    async def session(self, request: web.Request) -> web.StreamResponse:
        """Return the viewer and the available features."""
        viewer, seconds = self.authentication.viewer(request)
        jaeger = self.settings.jaeger_link
        return json_response(
            {
                "user": viewer.user,
                "groups": list(viewer.groups),
                "auth": self.authentication.mode,
                "expires_in": None if seconds == float("inf") else round(seconds),
                "version": trellis_version(),
                "cluster": self.registry.cluster.result() if self.registry.cluster.done() else None,
                "traces": self.settings.jaeger_url is not None,
                "jaeger": jaeger.rstrip("/") if jaeger else None,
                "explained": list(EXPLAINED),
                "namespaces_most": NAMESPACES,
                "page_most": PAGE_EVENTS,
            }
        )

    async def model(self, request: web.Request) -> web.StreamResponse:
        """Stream the model and its changes."""
        namespaces = _namespaces(request)
        viewer, seconds = self.authentication.viewer(request)
        async with self.registry.visit(viewer) as visit, self.registry.streaming(visit):
            outlet = Outlet(request, visit, self.registry.stopping, seconds=seconds, timings=self.timings)
            async with self.registry.live_model(visit, namespaces) as live_model:
                await outlet.open()
                async with counted(self.telemetry, "model"):
                    await send_model(outlet, live_model, _last_id(request))
            return outlet.response

    async def events(self, request: web.Request) -> web.StreamResponse:
        """Stream events on the bus whose objects the viewer can read."""
        wanted = read_filter(request.query)
        recent = _number(request, "recent", _RECENT, _RECENT_MOST)
        viewer, seconds = self.authentication.viewer(request)
        async with self.registry.visit(viewer) as visit, self.registry.streaming(visit):
            outlet = Outlet(request, visit, self.registry.stopping, seconds=seconds, timings=self.timings)
            known = parse_message_id(_last_id(request))
            resumed = known is not None and known[0] == self.feed.epoch
            at = known[1] if known is not None and resumed else self.feed.last(wanted, recent)
            await outlet.open()
            async with counted(self.telemetry, "events"):
                lacking = await visit.permissions.lacking(permissions_of(wanted.streams))
                hello = {"epoch": self.feed.epoch, "resumed": resumed, "unavailable": self.bus.unavailable or None}
                hello |= {"lacking": lacking}
                await outlet.write([message("hello", hello)])
                await self._send_events(outlet, wanted, visit.permissions, at)
            return outlet.response

    async def _send_events(self, outlet: Outlet, wanted: Filter, permissions: ReviewedPermissions, at: int) -> None:
        while True:
            changed = self.feed.changes.next
            items, missed = self.feed.after(at)
            if missed and at:
                await outlet.write([message("gap", {})])
            for item in items:
                at = item.index
                if wanted.wants(item) and await permissions.allowed(item.about.permission):
                    await outlet.write([message("event", item.document, message_id(self.feed.epoch, at))])
                await outlet.check()
            if not items:
                await outlet.wait(changed)

    async def past_events(self, request: web.Request) -> web.StreamResponse:
        """Return a page of stored events."""
        page = read_page_request(request.query)
        viewer, _ = self.authentication.viewer(request)
        async with self.registry.visit(viewer) as visit, self.registry.reading(visit):
            return json_response(await replay(self.bus, visit.permissions, page, seconds=self.timings.replay))

    async def dead_letters(self, request: web.Request) -> web.StreamResponse:
        """Return the dead letters."""
        viewer, _ = self.authentication.viewer(request)
        async with self.registry.visit(viewer) as visit, self.registry.reading(visit):
            found = await dead_letters(self.bus, visit.permissions, request.query, seconds=self.timings.replay)
            return json_response(found)

    async def dead_letter(self, request: web.Request) -> web.StreamResponse:
        """Return one dead letter with its body and its cause."""
        sequence = whole(request.match_info["sequence"])
        if sequence is None:
            raise bad("invalid sequence", "use a number of the list of dead letters")
        viewer, _ = self.authentication.viewer(request)
        async with self.registry.visit(viewer) as visit, self.registry.reading(visit):
            return json_response(await dead_letter_page(self.bus, visit.permissions, sequence))

    async def explain(self, request: web.Request) -> web.StreamResponse:
        """Return the output of ``trellis explain``, read with the identity of the viewer."""
        kind, name = request.match_info["kind"], request.match_info["name"]
        namespace = request.match_info.get("namespace")
        if kind not in EXPLAINED or (namespace is None) != (kind in _CLUSTERED):
            known = ", ".join(EXPLAINED)
            raise bad("invalid kind or namespace", f"use one of {known}, with the namespace of a namespaced object")
        if not _NAME.fullmatch(name) or (namespace is not None and not _LABEL.fullmatch(namespace)):
            raise bad("invalid name", "use a name as kubectl shows it")
        viewer, _ = self.authentication.viewer(request)
        async with self.registry.visit(viewer) as visit, self.registry.reading(visit):
            reading = Reading(visit.kube, self.settings.namespace)
            try:
                page = await self._page(reading, visit, kind, (name, namespace))
            except ObjectNotFoundError as error:
                page = error.page
            return json_response(page.document())

    async def _page(self, reading: Reading, visit: Visit, kind: str, of: tuple[str, str | None]) -> Explanation:
        name, namespace = of
        if kind in V2_KINDS and namespace is not None:
            received = None
            if self.heartbeats is not None:
                former = [item for watched in visit.watched.values() for item in watched.live_model.former]
                received = Received(self.heartbeats.messages(reading.kube.now()), former)
            return await v2_page_of(reading, kind, name, namespace, received)
        if kind in POD_KINDS:
            return await pods_page(reading, kind, name, namespace)
        return await page_of(reading, self.settings.installer_namespace, kind, name, namespace)

    async def trace(self, request: web.Request) -> web.StreamResponse:
        """Return one trace as a tree."""
        trace = request.match_info["id"].lower()
        if not _TRACE.fullmatch(trace):
            raise bad("invalid trace id", "use 32 hex digits")
        viewer, _ = self.authentication.viewer(request)
        url = self.settings.jaeger_url
        async with self.registry.visit(viewer) as visit, self.registry.reading(visit):
            if not await visit.permissions.allowed(TRACES):
                raise not_allowed(f"{TRACES}")
            if url is None:
                raise RefusedError(404, "no Jaeger is configured", "set TRELLIS_JAEGER_URL")
            spans = await ask_jaeger(url, trace)
            document: dict[str, Any] = document_of(trace, spans[:SPANS])
            return json_response(document | {"cut": len(spans) > SPANS, "link": self._trace_url(trace)})

    def _trace_url(self, trace: str) -> str | None:
        found = self.settings.jaeger_link
        return f"{found.rstrip('/')}/trace/{trace}" if found else None

    def _count_sessions(self) -> None:
        sessions = self.telemetry.metrics.console_sessions.labels(self.telemetry.service)
        sessions.set(len(self.authentication.sessions))


def _namespaces(request: web.Request) -> tuple[str, ...]:
    """Return the selected namespaces, none for all."""
    found = tuple(sorted({item.strip() for item in request.query.get("namespaces", "").split(",") if item.strip()}))
    if len(found) > NAMESPACES:
        raise bad(f"{len(found)} namespaces are too many", f"select at most {NAMESPACES}")
    for name in found:
        if not _LABEL.fullmatch(name):
            raise bad(f"invalid namespace {name[:80]!r}", "use names as kubectl shows them, separated by commas")
    return found


def _number(request: web.Request, name: str, default: int, most: int) -> int:
    text = request.query.get(name, "")
    found = whole(text) if text else default
    if found is None or found > most:
        raise bad(f"invalid {name}", f"use a number from 0 to {most}")
    return found


def _last_id(request: web.Request) -> str:
    """Return the last id of a page that reconnects, from the header or the query."""
    return request.headers.get("Last-Event-ID", "") or request.query.get("last", "")
