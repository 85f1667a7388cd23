"""``FakeKube``: the client with an in-memory API server, for tests of services.

The class derives from ``Kube``, so errors, pages, guards, spans and metrics are real; one behaviour suite runs against
it and a kube-apiserver. Invariant: nothing leaves the process.
"""

from __future__ import annotations

from collections.abc import Callable

from trellis.kube.calls import Caller
from trellis.kube.client import Kube
from trellis.kube.resources import ALL, PODS, Manifest, Resource
from trellis.kube.server_clock import ServerClock
from trellis.kube.timings import KubeTimings
from trellis.kube.transport import ConnectionFailed, HttpRequest, Reply
from trellis.telemetry import Telemetry, setup
from trellis.telemetry.health import Health
from trellis_dev.fakes.refusals import Target
from trellis_dev.fakes.server import FakeApiServer, status_reply

__all__ = ["FakeKube", "status_reply"]


class FakeKube(Kube):
    """``Kube`` without a cluster; starts with the namespaces ``default`` and ``kube-system``."""

    def __init__(
        self,
        *,
        telemetry: Telemetry | None = None,
        health: Health | None = None,
        resources: tuple[Resource, ...] = ALL,
        clock: ServerClock | None = None,
        timings: KubeTimings = KubeTimings(),
    ) -> None:
        self.api = FakeApiServer(resources)
        caller = Caller(self.api, telemetry or setup("fake"), clock=clock or ServerClock(), timings=timings)
        super().__init__(caller, health=health or Health("fake"))

    @property
    def writes(self) -> list[HttpRequest]:
        """All write requests so far, including rejected ones."""
        return [request for request in self.api.requests if request.method != "GET"]

    def objects(self, res: Resource) -> list[Manifest]:
        """Return all objects of a kind, by namespace and name; do not modify them."""
        return [manifest for _, manifest in sorted(self.api.store.tables[res].objects.items())]

    def define(self, res: Resource) -> None:
        """Serve a further kind, as after its CRD was applied."""
        self.api.define(res)

    def put(self, res: Resource, manifest: Manifest) -> Manifest:
        """Create or replace an object as another client would, immediately and without preconditions."""
        metadata = manifest["metadata"]
        target = Target(res, metadata.get("namespace", ""), metadata["name"])
        if target.key not in self.api.store.tables[res].objects:
            return self.api.store.create(target, {"apiVersion": res.api_version, "kind": res.kind} | manifest)
        free = {key: value for key, value in metadata.items() if key not in {"uid", "resourceVersion"}}
        return self.api.store.update(target, manifest | {"metadata": free})

    def remove(self, res: Resource, name: str, namespace: str = "") -> None:
        """Delete an object as another client would; with finalizers it is only marked."""
        self.api.store.delete(Target(res, namespace, name), {})

    def put_log(self, namespace: str, pod: str, container: str, text: str) -> None:
        """Set what ``pod_log`` returns; the pod must exist."""
        assert (namespace, pod) in self.api.store.tables[PODS].objects
        self.api.logs[namespace, pod, container] = text

    def fail_next(self, times: int, *, when: Callable[[HttpRequest], bool] | None = None) -> None:
        """Fail the next ``times`` requests that match ``when`` with Unavailable."""

        def fault(_: HttpRequest) -> Reply:
            raise ConnectionFailed(f"{self.server} cannot be reached: refused by the test")

        self.answer_next(times, fault, when=when)

    def answer_next(
        self, times: int, answer: Callable[[HttpRequest], Reply], *, when: Callable[[HttpRequest], bool] | None = None
    ) -> None:
        """Answer the next ``times`` requests that match ``when`` with ``answer``, without execution."""
        left = times

        def fault(request: HttpRequest) -> Reply | None:
            nonlocal left
            if left == 0 or (when is not None and not when(request)):
                return None
            left -= 1
            return answer(request)

        self.api.fault = fault

    def cut_watches(self) -> None:
        """Break all open watches, like a network failure."""
        self.api.cut_watches()

    def compact(self) -> None:
        """Delete the history: watches from an older version get Gone. Open watches end too."""
        self.api.store.compact()
        self.api.cut_watches()
