"""The Kubernetes client: verbs on raw JSON.

In: a resource, names, manifests. Out: manifests as the server returns them, or a ``KubeError`` that names the object.
Called by services and the rest of ``trellis.kube``. Invariants: each call ends within its time budget; writes are not
repeated unless the server rejected their processing; with a guard, no write starts without its consent.
"""

# ruff: noqa: ASYNC109 - a budget here covers retries and waits, and its end is an Unavailable that names the object

from __future__ import annotations

import asyncio
import dataclasses
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Self, TypeAlias, TypeVar

import orjson

from trellis.kube.access import Access
from trellis.kube.calls import Caller
from trellis.kube.client_views import ClientViews
from trellis.kube.errors import AlreadyExists, Call, Invalid, KubeError, NotFound, PatchTestFailed
from trellis.kube.preconditions import require, require_tests
from trellis.kube.reader import PAGE, Listing
from trellis.kube.resources import NAMESPACES, PODS, Manifest, Resource
from trellis.kube.timings import KubeTimings
from trellis.kube.transport import HttpRequest, HttpTransport
from trellis.limits.backoff import Attempts
from trellis.telemetry import Telemetry, get_logger
from trellis.telemetry.health import Health
from trellis.telemetry.metrics import trellis_version

__all__ = ["PAGE", "Kube", "Listing", "PatchOps"]

B = TypeVar("B")
PatchOps: TypeAlias = Sequence[Mapping[str, Any]]
"""Operations of a JSON patch (RFC 6902): ``[{"op": "test", "path": "/metadata/uid", "value": "…"}, …]``."""
_JSON_PATCH = "application/json-patch+json"
_MERGE_PATCH = "application/merge-patch+json"
_APPLY_PATCH = "application/apply-patch+yaml"
_UNFIT_FOR_HEADERS = re.compile(r"[^A-Za-z0-9._:@_-]")
_TEST_FAILED = "the server rejected our request due to an error in our request"

log = get_logger(__name__)


@dataclass(frozen=True, slots=True)
class _Write:
    """One write: verb, object, and content type of the body."""

    verb: str
    res: Resource
    name: str
    namespace: str
    query: Mapping[str, str]
    content_type: str = "application/json"
    subresource: str | None = None

    @classmethod
    def of(cls, verb: str, res: Resource, manifest: Manifest, **query: str) -> Self:
        """Return the write of a manifest, with the name and namespace of its metadata."""
        metadata = manifest["metadata"]
        return cls(verb, res, metadata["name"], metadata.get("namespace") or "", query)


class Kube(ClientViews):
    """A connection to one API server. Create it with ``connect``."""

    @classmethod
    async def connect(
        cls,
        access: Access,
        *,
        telemetry: Telemetry,
        health: Health,
        identity: str = "",
        timings: KubeTimings = KubeTimings(),
    ) -> Kube:
        """Load credentials, without a request.

        ``identity`` identifies the replica of a service in the cluster's audit log.

        Raises:
            AccessError: the kubeconfig or the service account's files cannot be used.
        """
        user_agent = f"trellis-{telemetry.service.replace('_', '-')}/{trellis_version()}"
        if identity:
            user_agent += f" ({_UNFIT_FOR_HEADERS.sub('-', identity)})"
        transport = await HttpTransport.open(access, user_agent, timings.connection)
        return cls(Caller(transport, telemetry, timings=timings), health=health)

    def now(self) -> float:
        """Return the time in Unix seconds by the API server's clock, for comparison with times in objects."""
        return self._caller.clock()

    async def wait_available(self) -> None:
        """Wait until the server is ready; retries forever, with one warning per outage."""
        attempts = Attempts()
        warned = False
        while True:
            try:
                await self.probe()
            except KubeError as error:
                self.health.not_ready("kubernetes", str(error))
                if not warned:
                    log.warning("Kubernetes API unreachable, retrying", server=self.server, error=str(error))
                warned = True
                await asyncio.sleep(attempts.next())
            else:
                self.health.ready("kubernetes")
                if warned:
                    log.info("Kubernetes API reachable again", server=self.server)
                return

    async def create(
        self, res: Resource, manifest: Manifest, *, field_manager: str = "", timeout: float | None = None
    ) -> Manifest:
        """Create an object; raises AlreadyExists, or NotFound if its namespace does not exist.

        ``field_manager``: manager of its fields; by default, the server derives it from the client.
        """
        query = {"fieldManager": field_manager} if field_manager else {}
        return await self._write(_Write.of("POST", res, manifest, **query), manifest, timeout)

    async def apply(
        self,
        res: Resource,
        manifest: Manifest,
        *,
        field_manager: str,
        create_if_missing: bool = False,
        dry_run: bool = False,
        timeout: float | None = None,
    ) -> Manifest:
        """Apply fields server-side, with force; fields that the manager applied before and now omits are removed.

        A manifest with ``metadata.uid`` changes only that object (Conflict if it was deleted or replaced). Without it,
        an apply would re-create a deleted object, so this requires ``create_if_missing``.
        With ``dry_run`` nothing is stored; the result is the object that would be stored.
        """
        if not create_if_missing and not manifest["metadata"].get("uid"):
            raise ValueError(f"apply of {res.kind} {manifest['metadata']['name']} needs metadata.uid")
        if manifest["metadata"].get("uid"):
            self._expect(require, f"apply of {res.kind}", manifest)
        query = {"fieldManager": field_manager, "force": "true"} | ({"dryRun": "All"} if dry_run else {})
        write = _Write.of("PATCH", res, manifest, **query)
        return await self._write(dataclasses.replace(write, content_type=_APPLY_PATCH), manifest, timeout)

    async def apply_unless_owned(self, res: Resource, manifest: Manifest, *, field_manager: str) -> Manifest:
        """Apply fields server-side, without force, and create a missing object.

        Raises Conflict, and changes nothing, if another manager set one of the fields to another value.
        """
        if manifest["metadata"].get("uid"):
            self._expect(require, f"apply of {res.kind}", manifest)
        write = _Write.of("PATCH", res, manifest, fieldManager=field_manager)
        return await self._write(dataclasses.replace(write, content_type=_APPLY_PATCH), manifest)

    async def json_patch(
        self,
        res: Resource,
        name: str,
        ops: PatchOps,
        namespace: str | None = None,
        *,
        field_manager: str,
        timeout: float | None = None,
    ) -> Manifest:
        """Patch an object atomically by operations; raises PatchTestFailed if a ``test`` fails."""
        self._expect(require_tests, f"JSON patch of {res.kind}", ops)
        write = _Write("PATCH", res, name, namespace or "", {"fieldManager": field_manager}, _JSON_PATCH)
        try:
            return await self._write(write, list(ops), timeout)
        except Invalid as error:
            if error.message.startswith(_TEST_FAILED) and any(op["op"] == "test" for op in ops):
                raise PatchTestFailed(
                    error.call, status=error.status, reason="PatchTestFailed", message="the object has changed"
                ) from error
            raise

    async def merge_patch(
        self,
        res: Resource,
        name: str,
        patch: Manifest,
        namespace: str | None = None,
        *,
        field_manager: str,
        subresource: str | None = None,
    ) -> Manifest:
        """Merge fields into an object (RFC 7386: null removes); include resourceVersion as a precondition.

        With ``subresource`` ``status``, only the status changes, which an ordinary patch does not change.
        """
        self._expect(require, f"merge patch of {res.kind}", patch)
        query = {"fieldManager": field_manager}
        write = _Write("PATCH", res, name, namespace or "", query, _MERGE_PATCH, subresource)
        return await self._write(write, patch)

    async def replace(self, res: Resource, manifest: Manifest, *, timeout: float | None = None) -> Manifest:
        """Replace an object that was read before; raises Conflict if its resourceVersion is not the newest."""
        if not manifest["metadata"].get("resourceVersion"):
            raise ValueError(f"replace of {res.kind} {manifest['metadata']['name']} needs metadata.resourceVersion")
        return await self._write(_Write.of("PUT", res, manifest), manifest, timeout)

    async def delete(
        self,
        res: Resource,
        name: str,
        namespace: str | None = None,
        *,
        uid: str,
        resource_version: str | None = None,
        propagation: str = "Background",
    ) -> None:
        """Delete exactly the object that was read; raises NotFound if it was deleted, Conflict if it was replaced.

        ``propagation`` is Background, Foreground (dependents first) or Orphan.
        """
        preconditions = {"uid": uid} | ({"resourceVersion": resource_version} if resource_version else {})
        self._expect(require, f"delete of {res.kind}", {"metadata": preconditions})
        options = {
            "apiVersion": "v1",
            "kind": "DeleteOptions",
            "preconditions": preconditions,
            "propagationPolicy": propagation,
        }
        await self._write(_Write("DELETE", res, name, namespace or "", {}), options)

    async def evict(self, namespace: str, pod: str, *, uid: str) -> None:
        """Evict a pod; raises NotFound if it was deleted, TooManyRequests if its disruption budget does not allow it.

        Source: policy/v1 Eviction, the API of ``kubectl drain``.
        """
        body = {
            "apiVersion": "policy/v1",
            "kind": "Eviction",
            "metadata": {"name": pod, "namespace": namespace},
            "deleteOptions": {"preconditions": {"uid": uid}},
        }
        await self._write(_Write("POST", PODS, pod, namespace, {}, subresource="eviction"), body, self.timings.evict)

    async def ask(self, call: Call, request: HttpRequest, *, timeout: float | None = None) -> bytes:
        """Return the unparsed body of the answer to a prepared request, for example of a guest.

        Raises:
            KubeError: as any verb, and AnswerTooLarge beyond ``request.most``.
            NotLeading: the guard refused; it is checked before reads too, so that other threads detect the end of the
                term. Preconditions of writes are not checked.
        """
        if self._caller.guard is not None:
            request = request.sent_with(self._caller.guard, {})
        return (await self._caller.reply(call, request, timeout=self._budget(timeout))).body

    async def ensure_namespace(self, name: str, labels: Mapping[str, str]) -> None:
        """Create a namespace unless it exists; an existing one is not changed."""
        try:
            await self.get(NAMESPACES, name)
        except NotFound:
            metadata = {"name": name, "labels": dict(labels)}
            try:
                await self.create(NAMESPACES, {"apiVersion": "v1", "kind": "Namespace", "metadata": metadata})
            except AlreadyExists:
                log.debug("namespace was created concurrently", namespace=name)

    def _expect(self, check: Callable[[str, B], None], what: str, body: B) -> None:
        """Raise ValueError if this is a guarded view and the body has no preconditions."""
        if self._caller.guard is not None:
            check(what, body)

    async def _write(
        self,
        write: _Write,
        body: Any,  # noqa: ANN401 - JSON
        timeout: float | None = None,
    ) -> Manifest:
        res = write.res
        call = Call("CREATE" if write.verb == "POST" else write.verb, res.kind, res.plural, write.namespace, write.name)
        # A new object is posted to its collection, a subresource to its object.
        name = write.name if write.verb != "POST" or write.subresource else None
        path = res.path(write.namespace, name, write.subresource)
        request = HttpRequest(write.verb, path, write.query, orjson.dumps(body), write.content_type)
        found = await self._caller.call(call, request, timeout=self._budget(timeout))
        assert isinstance(found, dict)
        return found
