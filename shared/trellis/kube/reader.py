"""The read operations of the Kubernetes client: objects, paged lists, watches, logs.

In: a resource and names. Out: manifests, pages, watch events, or a ``KubeError`` that names the object. Called through
``trellis.kube.client.Kube`` by services, the informer and the leader. Invariant: each call ends within its budget.
"""

# ruff: noqa: ASYNC109 - a budget here covers retries and waits, and its end is an Unavailable that names the object

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any, Final

import orjson

from trellis.kube.calls import Caller
from trellis.kube.errors import Call, Gone, KubeError, error_from_event, unavailable
from trellis.kube.nesting import parse
from trellis.kube.pages import Items, Page, decode_page, is_list_of, is_object
from trellis.kube.resources import PODS, Manifest, Resource
from trellis.kube.shapes import Decode, Shape
from trellis.kube.timings import KubeTimings
from trellis.kube.transport import HttpRequest
from trellis.telemetry import Telemetry
from trellis.telemetry.health import Health

PAGE: Final = 500
"""Objects per page of a list."""
_LIST_STARTS: Final = 3
_METADATA_ALONE: Final = {"Accept": "application/json;as=PartialObjectMetadata;g=meta.k8s.io;v=v1"}


@dataclass(frozen=True, slots=True)
class Listing:
    """All objects of a list, and the resource version to watch from."""

    items: list[Manifest]
    resource_version: str


@dataclass(frozen=True, slots=True)
class Selection:
    """A selection of objects of a kind: ``namespace`` None means all namespaces; ``shape``: the decoded keys."""

    resource: Resource
    namespace: str | None = None
    label_selector: str | None = None
    field_selector: str | None = None
    shape: Shape | None = None

    def __str__(self) -> str:
        """Return ``jobs in trellis-installers with app=x``, for users and as an identifier of the watch."""
        place = f" in {self.namespace}" if self.namespace else ""
        chosen = ",".join(part for part in (self.label_selector, self.field_selector) if part)
        return f"{self.resource.plural}{place}" + (f" with {chosen}" if chosen else "")

    def call(self, verb: str) -> Call:
        """Return the ``Call`` of a request for this selection."""
        res = self.resource
        return Call(verb, res.kind, res.plural, self.namespace or "", group=res.group)

    def request(self, **query: str) -> HttpRequest:
        """Return the GET of this selection with further query parameters."""
        selectors = {"labelSelector": self.label_selector, "fieldSelector": self.field_selector}
        chosen = {key: value for key, value in selectors.items() if value}
        return HttpRequest("GET", self.resource.path(self.namespace), chosen | query)


@dataclass(frozen=True, slots=True)
class WatchEvent:
    """One line of a watch: type ADDED, MODIFIED, DELETED or BOOKMARK, and the object."""

    type: str
    object: Manifest


class Reader:
    """A connection to one API server, with the read operations."""

    def __init__(self, caller: Caller, *, health: Health) -> None:
        self._caller = caller
        self.health = health
        self.describe_error: Callable[[KubeError], str] = str
        """Returns the message for an error, with a remedy if the service has one."""

    @property
    def server(self) -> str:
        """Address of the API server."""
        return self._caller.transport.server

    @property
    def timings(self) -> KubeTimings:
        """Timings of this connection and its users."""
        return self._caller.timings

    @property
    def telemetry(self) -> Telemetry:
        """Telemetry of the service this connection belongs to."""
        return self._caller.telemetry

    def answering_for(self) -> float:
        """Return the seconds for which every call was answered; 0 while the state of the server is unknown."""
        return self._caller.contact.answering_for(self.timings.recent)

    def since_last_call(self) -> float:
        """Return the seconds since a call last ended, with or without an answer; watches do not count."""
        return self._caller.contact.since_last_call()

    async def close(self) -> None:
        """Close all connections."""
        await self._caller.transport.close()

    async def probe(self, *, timeout: float | None = None) -> None:
        """Check the readiness of the server; raises KubeError if it is not ready."""
        timeout = self.timings.probe if timeout is None else timeout
        await self._caller.reply(Call("GET", "readyz", "readyz"), HttpRequest("GET", "/readyz"), timeout=timeout)

    async def get(
        self,
        res: Resource,
        name: str,
        namespace: str | None = None,
        *,
        metadata: bool = False,
        timeout: float | None = None,
    ) -> Manifest:
        """Return one object; raises NotFound or another KubeError. ``metadata``: request only its metadata."""
        headers = _METADATA_ALONE if metadata else {}
        request = HttpRequest("GET", res.path(namespace, name), headers=headers)
        call = Call("GET", res.kind, res.plural, namespace or "", name)
        return _manifest(await self._caller.call(call, request, timeout=self._budget(timeout)))

    async def list(
        self,
        res: Resource,
        namespace: str | None = None,
        *,
        label_selector: str | None = None,
        field_selector: str | None = None,
        limit: int = PAGE,
    ) -> Listing:
        """Return all objects of one consistent state, read in pages of ``limit``, each within the default timeout."""
        return await self.collect(Selection(res, namespace, label_selector, field_selector), limit=limit)

    async def collect(self, selection: Selection, *, limit: int = PAGE) -> Listing:
        """Return all pages of a list as one."""
        items: list[Manifest] = []
        version = ""
        async for page in self.pages(selection, limit=limit):
            items = [*page.items] if page.first else [*items, *page.items]
            version = page.resource_version
        return Listing(items, version)

    async def pages(self, selection: Selection, *, limit: int = PAGE) -> AsyncGenerator[Page, None]:
        """Yield a list page by page, with prefetch: the bodies of two pages are in memory.

        The first page requests the most recent state (resourceVersion ""). If the continue token expires, the list
        restarts; the third time, Gone is raised.
        """
        for start in range(_LIST_STARTS):
            following = asyncio.ensure_future(self._page(selection, limit, ""))
            try:
                while True:
                    page, token = await following
                    if token:
                        following = asyncio.ensure_future(self._page(selection, limit, token))
                        await asyncio.sleep(0)  # so that its request is sent before the caller evaluates this page
                    yield page
                    if not token:
                        return
            except Gone:
                if start == _LIST_STARTS - 1:
                    raise
            finally:
                if not following.done():
                    following.cancel()
                    await asyncio.wait({following})
                _ = following.cancelled() or following.exception()  # otherwise asyncio logs an unretrieved exception

    @asynccontextmanager
    async def watch(
        self, selection: Selection, resource_version: str, *, seconds: int, idle_seconds: float
    ) -> AsyncIterator[AsyncIterator[WatchEvent]]:
        """Open a watch with bookmarks; yields its events until the server ends it, after about ``seconds``.

        Raises:
            Gone: the resource version is too old (on opening or later): a new list is required.
            KubeError: refused, disconnected, or idle for ``idle_seconds``.
        """
        call = selection.call("WATCH")
        request = selection.request(
            watch="1", allowWatchBookmarks="true", resourceVersion=resource_version, timeoutSeconds=str(seconds)
        )
        async with self._caller.stream(call, request, idle_seconds=idle_seconds) as stream:
            yield _events(call, stream.lines, selection.shape.event if selection.shape else None)

    async def pod_log(
        self,
        namespace: str,
        pod: str,
        container: str,
        *,
        tail_lines: int = 20,
        limit_bytes: int = 4096,
        previous: bool = False,
    ) -> str:
        """Return the end of a container's log: at most ``tail_lines`` lines and ``limit_bytes`` bytes.

        ``previous``: that of its former run.
        """
        query = {"container": container, "tailLines": str(tail_lines), "limitBytes": str(limit_bytes)}
        query |= {"previous": "true"} if previous else {}
        request = HttpRequest("GET", PODS.path(namespace, pod, "log"), query)
        call = Call("GET", "Pod log", "pods/log", namespace, pod)
        reply = await self._caller.reply(call, request, timeout=self.timings.call)
        return reply.body.decode("utf-8", "replace")

    def _budget(self, timeout: float | None) -> float:
        """Return the timeout of a call in seconds: that of its caller, or the default."""
        return self.timings.call if timeout is None else timeout

    async def _page(self, selection: Selection, limit: int, token: str) -> tuple[Page, str]:
        query = {"limit": str(limit)} | ({"continue": token} if token else {"resourceVersion": ""})
        call = selection.call("LIST")

        def invalid() -> KubeError:
            return unavailable(call, f"{self.server} returned an answer that is not a list of {selection.resource}")

        found = await self._caller.call(call, selection.request(**query), timeout=self.timings.call, decode=decode_page)
        if not is_list_of(selection.resource, found):
            raise invalid()
        metadata, items = found["metadata"], Items(found.get("items") or [], selection.shape, invalid)
        return Page(items, str(metadata["resourceVersion"]), first=not token), str(metadata.get("continue") or "")


async def _events(call: Call, lines: AsyncIterator[bytes], decode: Decode | None) -> AsyncIterator[WatchEvent]:
    async for line in lines:
        try:
            event: Mapping[str, Any] = await parse(line, decode)
        except orjson.JSONDecodeError:
            # The connection was closed in the middle of a line.
            raise unavailable(call, "the watch disconnected within an event") from None
        if not _is_event(event):
            raise unavailable(call, "the watch returned an invalid event")
        if event["type"] == "ERROR":
            raise error_from_event(call, event["object"])
        yield WatchEvent(event["type"], event["object"])


def _is_event(event: Any) -> bool:  # noqa: ANN401 - it is JSON
    """Return whether a line of a watch is a valid event, so that an invalid one does not end an informer."""
    if not isinstance(event, dict) or not isinstance(event.get("type"), str):
        return False
    found = event.get("object")
    if event["type"] in {"ERROR", "BOOKMARK"}:
        metadata = found.get("metadata") if isinstance(found, dict) else None
        return isinstance(found, dict) and (event["type"] == "ERROR" or "resourceVersion" in (metadata or {}))
    return is_object(found)


def _manifest(found: Any) -> Manifest:  # noqa: ANN401 - it is JSON
    assert isinstance(found, dict)
    return found
