"""An in-memory API server: a second ``Transport`` for the same client.

In: the HTTP requests of ``trellis.kube``. Out: the responses of a kube-apiserver, as far as the behaviour suite, which
runs against both, tests them. Called through ``trellis_dev.fakes.fake.FakeKube`` by tests of services.
Not simulated: admission, defaults, validation of a single kind, merging of lists by apply.
"""

from __future__ import annotations

import asyncio
import copy
import json
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any

import orjson

from trellis.kube.resources import ALL, PODS, Manifest, Resource
from trellis.kube.transport import AnswerTooLong, ConnectionFailed, HttpRequest, Reply, Stream
from trellis_dev.fakes.discovery import group_of, kinds_of, version_of, versions_of
from trellis_dev.fakes.fields import FieldOwners
from trellis_dev.fakes.patches import BadPatchError, TestFailed, json_patch, merge_patch
from trellis_dev.fakes.refusals import RefusedError, Target
from trellis_dev.fakes.rules import check_identity, check_size
from trellis_dev.fakes.selectors import check as check_selectors
from trellis_dev.fakes.selectors import selected
from trellis_dev.fakes.store import FakeStore, ObjectChange, Table

Fault = Callable[[HttpRequest], Reply | None]
"""Intercepts a request: returns a response, raises ConnectionFailed, or returns None to pass the request on."""
_REJECTED = "the server rejected our request due to an error in our request"


def status_reply(status: int, reason: str, message: str) -> Reply:
    """Return an error response with its Status object."""
    return _reply(RefusedError(status, reason, message).body, status)


class FakeApiServer:
    """Answers requests from a ``FakeStore``."""

    server = "https://fake.invalid:6443"

    def __init__(self, resources: tuple[Resource, ...] = ALL, *, bookmark: float = 1.0) -> None:
        """Set up the resources. ``bookmark``: seconds without an event after which a watch gets a bookmark."""
        self._bookmark = bookmark
        self.store = FakeStore(resources)
        self.fault: Fault | None = None
        self.logs: dict[tuple[str, str, str], str] = {}
        self.requests: list[HttpRequest] = []
        self._resources = {(res.api_version, res.plural): res for res in resources}
        self._cuts: set[asyncio.Event] = set()
        self._pages: dict[str, tuple[int, list[Manifest]]] = {}

    async def send(self, request: HttpRequest) -> Reply:
        """Answer one request."""
        await asyncio.sleep(0)  # like a network call: other tasks can run
        self.requests.append(request)
        if self.fault is not None and (reply := self.fault(request)) is not None:
            return reply
        try:
            reply = self._answer(request)
        except RefusedError as refused:
            return _reply(refused.body, refused.status)
        if request.most is not None and len(reply.body) > request.most:
            raise AnswerTooLong
        return reply

    @asynccontextmanager
    async def stream(self, request: HttpRequest, *, idle_seconds: float) -> AsyncIterator[Stream]:
        """Open a watch; ``cut_watches`` ends it with ConnectionFailed."""
        del idle_seconds  # an in-memory watch never stalls
        await asyncio.sleep(0)
        self.requests.append(request)
        if self.fault is not None and (reply := self.fault(request)) is not None:
            yield Stream(reply.status, reply.headers, _one_line(reply.body))
            return
        cut, wake = asyncio.Event(), asyncio.Event()
        self._cuts.add(cut)
        self.store.watchers.add(wake)
        try:
            yield Stream(200, {}, self._watch(request, cut, wake))
        finally:
            self._cuts.discard(cut)
            self.store.watchers.discard(wake)

    def define(self, res: Resource) -> None:
        """Serve a further kind."""
        self.store.tables.setdefault(res, Table())
        self._resources[res.api_version, res.plural] = res

    def cut_watches(self) -> None:
        """Break all open watches, like a network failure."""
        for cut in self._cuts:
            cut.set()
        for wake in self.store.watchers:
            wake.set()

    async def renew_credentials(self) -> None:
        """Do nothing: there are no credentials."""

    def apart(self, connections: int) -> FakeApiServer:
        """Return itself: there are no connections."""
        del connections
        return self

    async def close(self) -> None:
        """End all watches."""
        self.cut_watches()

    def _answer(self, request: HttpRequest) -> Reply:
        if request.path == "/readyz":
            return Reply(200, b"ok", {})
        if (group := group_of(request.path)) is not None:
            return _reply(versions_of(group, self._resources.values()))
        if (api_version := version_of(request.path)) is not None:
            return _reply(kinds_of(api_version, self._resources.values()))
        target = self._target(request.path)
        if target.subresource == "log":
            return self._log(target, request)
        if request.method == "GET" and not target.name:
            return _reply(self._list(target, request))
        check_size(request.body)
        body = json.loads(request.body or b"{}")
        manager = request.query.get("fieldManager", "")
        match request.method:
            case "GET":
                return _reply(self.store.get(target))
            case "POST":
                created = Target(target.res, target.namespace, body["metadata"]["name"])
                return _reply(self._create(created, body, manager), 201)
            case "PUT":
                check_identity(target, body)
                return _reply(self._changed(target, self.store.update, body, manager))
            case "PATCH":
                return _reply(self._patch(target, request, body))
            case _:
                return _reply(self.store.delete(target, body))

    def _create(self, target: Target, body: Manifest, manager: str) -> Manifest:
        check_identity(target, body)
        new = self.store.create(target, _typed(target, body))
        self._owners(target, new).written({}, new, manager)
        return new

    def _changed(
        self, target: Target, store: Callable[[Target, Manifest], Manifest], wanted: Manifest, manager: str
    ) -> Manifest:
        old = self.store.get(target)
        new = store(target, wanted)
        self._owners(target, new).written(old, new, manager)
        return new

    def _owners(self, target: Target, manifest: Manifest) -> FieldOwners:
        return self.store.tables[target.res].owners.setdefault(manifest["metadata"]["uid"], FieldOwners())

    def _target(self, path: str) -> Target:
        """Parse ``/api/v1/…`` or ``/apis/<group>/<version>/…``."""
        _, root, *parts = path.split("/")
        version = parts.pop(0) if root == "api" else f"{parts.pop(0)}/{parts.pop(0)}"
        namespace = ""
        if parts[0] == "namespaces" and len(parts) > 2:
            namespace = parts[1]
            parts = parts[2:]
        plural, name, subresource = (*parts, "", "")[:3]
        res = self._resources.get((version, plural))
        if res is None:
            raise RefusedError(404, "NotFound", "the server could not find the requested resource")
        return Target(res, namespace, name, subresource)

    def _list(self, target: Target, request: HttpRequest) -> Manifest:
        """Return a page. All pages of a list have the state of the first page, until that state expires."""
        check_selectors(request)
        if token := request.query.get("continue"):
            if token not in self._pages or self._pages[token][0] < self.store.oldest:
                raise RefusedError(410, "Expired", "The provided continue parameter is too old")
            version, found = self._pages[token]
        else:
            version = self.store.version
            objects = self.store.tables[target.res].objects
            found = [item for _, item in sorted(objects.items()) if selected(item, target.namespace, request)]
        limit = int(request.query.get("limit") or len(found) or 1)
        more = ""
        if found[limit:]:
            more = f"{version}-{len(self._pages)}"
            self._pages[more] = (version, found[limit:])
        metadata = {"resourceVersion": str(version), "continue": more}
        kind, version_of = f"{target.res.kind}List", target.res.api_version
        return {"apiVersion": version_of, "kind": kind, "metadata": metadata, "items": found[:limit]}

    def _patch(self, target: Target, request: HttpRequest, body: Any) -> Manifest:  # noqa: ANN401 - JSON
        manager = request.query["fieldManager"]
        match request.content_type:
            case "application/apply-patch+yaml" if request.query.get("dryRun"):
                # Validation of the kind is not simulated: only the identity is checked.
                check_identity(target, body)
                return dict(body)
            case "application/apply-patch+yaml":
                return self._apply(target, body, request)
            case "application/json-patch+json":
                try:
                    wanted = json_patch(self.store.get(target), body)
                except (TestFailed, BadPatchError):
                    raise RefusedError(422, "Invalid", _REJECTED) from None
            case _:
                wanted = merge_patch(self.store.get(target), body)
        check_identity(target, wanted)
        return self._changed(target, self.store.patch, wanted, manager)

    def _apply(self, target: Target, wanted: Manifest, request: HttpRequest) -> Manifest:
        check_identity(target, wanted)
        manager = request.query["fieldManager"]
        table = self.store.tables[target.res]
        old = table.objects.get(target.key)
        if old is not None:
            conflicting = self._owners(target, old).conflicts(old, wanted, manager)
            if conflicting and request.query.get("force") != "true":
                raise target.conflict(f"Apply failed with {len(conflicting)} conflicts: {', '.join(conflicting)}")
            # Ownership changes only if the write is accepted.
            owners = copy.deepcopy(self._owners(target, old))
            new = self.store.patch(target, owners.applied(old, wanted, manager))
            table.owners[new["metadata"]["uid"]] = owners
            return new
        if uid := wanted["metadata"].get("uid"):
            raise target.conflict(f"uid mismatch: the provided object specified uid {uid}, and no existing object")
        # As with the real server, an apply with a resourceVersion can create an object.
        metadata = {key: value for key, value in wanted["metadata"].items() if key != "resourceVersion"}
        new = self.store.create(target, _typed(target, wanted | {"metadata": metadata}))
        self._owners(target, new).applied({}, wanted, manager)
        return new

    def _log(self, target: Target, request: HttpRequest) -> Reply:
        self.store.get(Target(PODS, target.namespace, target.name))
        text = self.logs.get((target.namespace, target.name, request.query["container"]), "")
        lines = text.splitlines(keepends=True)[-int(request.query["tailLines"]) :]
        return Reply(200, "".join(lines).encode()[: int(request.query["limitBytes"])], {})

    async def _watch(self, request: HttpRequest, cut: asyncio.Event, wake: asyncio.Event) -> AsyncIterator[bytes]:
        target = self._target(request.path)
        version = int(request.query["resourceVersion"])
        loop = asyncio.get_running_loop()
        ends = loop.time() + float(request.query["timeoutSeconds"])
        while True:
            wake.clear()
            if cut.is_set():
                raise ConnectionFailed(f"{self.server} cannot be reached: connection reset")
            if version < self.store.oldest:
                deleted = RefusedError(410, "Expired", f"too old resource version: {version} ({self.store.oldest})")
                yield orjson.dumps({"type": "ERROR", "object": deleted.body})
                return
            for change in [item for item in self.store.tables[target.res].history if item.version > version]:
                version = change.version
                if (event := _event(change, target, request)) is not None:
                    yield orjson.dumps(event)
            left = ends - loop.time()
            if left <= 0:
                return
            try:
                # Not wait_for, which before Python 3.12 drops a cancellation that arrives together with a wake.
                async with asyncio.timeout(min(left, self._bookmark)):
                    await wake.wait()
            except TimeoutError:
                if wake.is_set():
                    continue  # a change arrived together with the timeout: a bookmark here would skip its event
                version = self.store.version
                yield orjson.dumps({"type": "BOOKMARK", "object": {"metadata": {"resourceVersion": str(version)}}})


def _event(change: ObjectChange, target: Target, request: HttpRequest) -> Manifest | None:
    """Return the event of a change for one selector: DELETED if the object leaves it, ADDED if it enters."""
    was = change.old is not None and selected(change.old, target.namespace, request)
    new = change.new
    if new is not None and selected(new, target.namespace, request):
        return {"type": "MODIFIED" if was else "ADDED", "object": new}
    if not was:
        return None
    last = dict(change.old or {})
    last["metadata"] = last["metadata"] | {"resourceVersion": str(change.version)}
    return {"type": "DELETED", "object": last}


def _typed(target: Target, manifest: Manifest) -> Manifest:
    metadata = dict(manifest["metadata"])
    if target.res.namespaced:
        metadata["namespace"] = target.namespace
    return manifest | {"apiVersion": target.res.api_version, "kind": target.res.kind, "metadata": metadata}


def _reply(body: Manifest, status: int = 200) -> Reply:
    return Reply(status, orjson.dumps(body), {})


async def _one_line(body: bytes) -> AsyncIterator[bytes]:
    yield body
