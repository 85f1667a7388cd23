"""A fleet of simulated nodes and the services that look after it, for one test.

Each test has nodes, namespaces, a cluster name on the bus and leases of its own; its objects are deleted at its end.
"""

from __future__ import annotations

import asyncio
import contextlib
import http
import secrets
import shutil
import tempfile
import time
from collections.abc import AsyncIterator, Callable, Iterable
from pathlib import Path
from typing import Any

import nats
import orjson
import pytest

import node_watcher.app
import node_watcher.settings
import node_watcher.timings
import provisioner.app
import provisioner.settings
from provisioner.timings import NodeTimings, Timings
from support.suite.suite_permissions import is_read_by_suite
from trellis import names
from trellis.bus.accounts.permissions import durables
from trellis.bus.streams.tail import Selection, TailedEvent, Tally, replay, tail
from trellis.config.timings import DeletionTimings
from trellis.events.subjects import NODE_WATCHER, PROVISIONER, STREAM_EVENTS
from trellis.kube.timings import RefusalTimings
from trellis.runtime.run import LedService
from trellis_dev import localcluster
from trellis_dev.localcluster import ClusterInfo
from trellis_dev.localcluster.api import Api
from trellis_dev.localcluster.nodes import node_manifest

Manifest = dict[str, Any]
KUBELET = "kwok.x-k8s.io/node"
"""Annotation of nodes that have one."""
SHIMS = "/apis/runtime.spinkube.dev/v1alpha1/shims"
QUICK = {"retry_min": 1, "retry_max": 2, "job_retries": 0}
SHORT = Timings(
    settle=0.3,
    status_delay=0.2,
    deleting=1.0,
    publish=0.5,
    nodes=NodeTimings(labels=0.2, in_use=2.0, drain=1.0, placed=1.0, pod_left=0.5, name_taken=0.5, clear=0.2),
    deletions=DeletionTimings(settle=0.5),
    refusals=RefusalTimings(retry=2.0, spread=0.0),
)
"""Timings of services that run in the process of a test. A test of one of them passes its own."""


def watcher_timings(timings: Timings) -> node_watcher.timings.Timings:
    """Return the timings of a node_watcher beside a provisioner with these."""
    return node_watcher.timings.Timings(timings.publish, timings.deletions, timings.refusals)


class _Unfinished:
    """Nodes without the label, with their Jobs and slots, as text for the failure of a test."""

    def __init__(self, fleet: Fleet, nodes: set[str]) -> None:
        self._fleet = fleet
        self._nodes = nodes

    def __str__(self) -> str:
        fleet = self._fleet
        nodes = {name: (fleet.labels(name), fleet.annotations(name), fleet.events(name)) for name in self._nodes}
        jobs = [(job["metadata"], job.get("status")) for job in fleet.jobs()]
        return f"nodes {nodes}; Jobs {jobs}; slots {fleet.ledger()}"


async def eventually(condition: Callable[[], Any], what: object, *, seconds: float = 40) -> Any:
    """Return the first true value of the condition, looking ten times a second; fail with ``what`` after a while."""
    deadline = time.monotonic() + seconds
    while not (value := condition()):
        assert time.monotonic() < deadline, f"not within {seconds} s: {what}"
        await asyncio.sleep(0.1)
    return value


async def counted(api: Api, quota: str) -> None:
    """Wait until a ResourceQuota counts: until then the API server refuses nothing by it."""
    await eventually(lambda: (api.call("GET", quota)[1].get("status") or {}).get("hard"), "it counts", seconds=60)


class Fleet:
    """Nodes of one test, and what the API server says about them."""

    def __init__(self, info: ClusterInfo, api: Api) -> None:
        self.info = info
        self.api = api
        self.id = f"t{secrets.token_hex(4)}"
        self.system = f"{self.id}-system"
        self.installers = f"{self.id}-installers"
        self._nodes: list[str] = []
        self._controllers = Path(tempfile.gettempdir(), f"{self.id}-controllers")

    def api_server(self) -> int:
        """Return the pid of the API server, which another test may have started again."""
        [info] = localcluster.status(self.info.name)
        return info.pids["kube-apiserver"]

    # --- nodes ---

    def add(self, *prefixes: str, opted_in: bool = True) -> list[str]:
        """Create a node a prefix, ``<prefix>-<test>-<n>``, and return their names."""
        made = [f"{prefix}-{self.id}-{len(self._nodes) + index}" for index, prefix in enumerate(prefixes)]
        for name in made:
            self.add_named(name, opted_in=opted_in)
        return made

    def add_named(self, name: str, *, opted_in: bool = True, annotation: str = "true", kubelet: bool = True) -> None:
        """Create one node of this very name; without a kubelet nothing becomes of its pods."""
        manifest = node_manifest(name)
        if not kubelet:
            del manifest["metadata"]["annotations"][KUBELET]
        del manifest["metadata"]["labels"]["kubernetes.io/hostname"]  # a label value holds 63 characters, a name 253
        if opted_in:
            manifest["metadata"]["annotations"][names.ANNOTATION_OPT_IN] = annotation
        assert self.api.call("POST", "/api/v1/nodes", manifest)[0] == http.HTTPStatus.CREATED
        self._nodes.append(name)

    def annotate(self, name: str, value: str | None) -> None:
        """Set or remove KWasm's annotation, as kubectl does."""
        self.patch(name, {"metadata": {"annotations": {names.ANNOTATION_OPT_IN: value}}})

    def patch(self, name: str, patch: Manifest, subresource: str = "") -> None:
        """Merge-patch a node."""
        status, answer = self.api.call("PATCH", f"/api/v1/nodes/{name}{subresource}", patch)
        assert status == http.HTTPStatus.OK, answer

    def delete(self, name: str) -> None:
        """Delete a node."""
        self.api.call("DELETE", f"/api/v1/nodes/{name}")

    def node(self, name: str) -> Manifest:
        """Return a node as it is."""
        status, node = self.api.call("GET", f"/api/v1/nodes/{name}")
        assert status == http.HTTPStatus.OK, node
        return node

    def labels(self, name: str) -> dict[str, str]:
        """Return a node's labels."""
        return dict(self.node(name)["metadata"].get("labels") or {})

    def annotations(self, name: str) -> dict[str, str]:
        """Return a node's annotations."""
        return dict(self.node(name)["metadata"].get("annotations") or {})

    def provisioned(self, name: str) -> bool:
        """Say whether a node carries KWasm's label."""
        return self.labels(name).get(names.LABEL_PROVISIONED) == names.provisioned_label_value(name)

    def events(self, name: str) -> dict[str, str]:
        """Return the messages of a node's Events by reason."""
        _, found = self.api.call("GET", f"/api/v1/namespaces/default/events?fieldSelector=involvedObject.name%3D{name}")
        return {event["reason"]: event["message"] for event in found.get("items", [])}

    async def event(self, name: str, reason: str) -> str:
        """Wait for a node's Event with a reason, which services write in the background, and return its message."""
        return str(await eventually(lambda: self.events(name).get(reason), f"the Event {reason} on {name}"))

    def cluster_uid(self) -> str:
        """Return the uid of kube-system, by which the bus knows the cluster."""
        status, namespace = self.api.call("GET", "/api/v1/namespaces/kube-system")
        assert status == http.HTTPStatus.OK, namespace
        return str(namespace["metadata"]["uid"])

    # --- pods, Jobs and ledger ---

    def pods_on(self, node: str) -> list[Manifest]:
        """Return the installer pods that are bound to a node's name."""
        path = f"/api/v1/namespaces/{self.installers}/pods?fieldSelector=spec.nodeName%3D{node}"
        return list(self.api.call("GET", path)[1].get("items", []))

    def show_pods(self, node: str) -> None:
        """Have kwok look at a node's pods: unlike a kubelet it misses what becomes of them while there is no Node."""
        for pod in self.pods_on(node):
            path = f"/api/v1/namespaces/{self.installers}/pods/{pod['metadata']['name']}"
            self.api.call("PATCH", path, {"metadata": {"annotations": {"shown": secrets.token_hex(4)}}})

    def jobs(self) -> list[Manifest]:
        """Return the installer Jobs that exist."""
        _, found = self.api.call("GET", f"/apis/batch/v1/namespaces/{self.installers}/jobs")
        return list(found.get("items", []))

    def job_of(self, node: str) -> Manifest | None:
        """Return a node's Job."""
        return next((job for job in self.jobs() if job["metadata"]["annotations"][names.ANNOTATION_NODE] == node), None)

    def delete_job(self, name: str) -> None:
        """Delete a Job as kubectl does."""
        path = f"/apis/batch/v1/namespaces/{self.installers}/jobs/{name}"
        self.api.call("DELETE", path, {"kind": "DeleteOptions", "apiVersion": "v1", "propagationPolicy": "Background"})

    def ledger(self) -> dict[str, str]:
        """Return the rollout ledger's entries by node uid."""
        _, found = self.api.call("GET", f"/api/v1/namespaces/{self.system}/configmaps/{names.LEDGER}")
        return dict(found.get("data") or {})

    async def all_provisioned(self, nodes: Iterable[str], *, seconds: float = 60) -> None:
        """Wait until each of the nodes carries KWasm's label and nothing is left to do."""
        open_ = set(nodes)

        def done() -> bool:
            open_.difference_update([name for name in open_ if self.provisioned(name)])
            return not open_

        await eventually(done, _Unfinished(self, open_), seconds=seconds)

    async def quiet(self) -> None:
        """Wait until no Job and no slot is left."""
        await eventually(lambda: not self.jobs() and not self.ledger(), "no Job and no slot left")

    # --- services ---

    def settings(self, **changes: Any) -> dict[str, Any]:
        """Return the settings of this test's services."""
        base = {
            "kubeconfig": Path(self.info.kubeconfig),
            "nats_url": self.info.nats_url,
            "cluster": self.id,
            "namespace": self.system,
            "installer_namespace": self.installers,
            "claim_namespace": self.system,
            "health_port": 0,
            "installer_image": "example.com/kwasm-node-installer:1",
        }
        return {**base, **QUICK, **changes}

    @contextlib.asynccontextmanager
    async def services(self, timings: Timings = SHORT, **changes: Any) -> AsyncIterator[list[LedService]]:
        """Run node_watcher and provisioner in this process for the time of a block; ``changes`` are settings."""
        settings = self.settings(**changes)
        services = [
            node_watcher.app.create_app(node_watcher.settings.Settings(**settings), timings=watcher_timings(timings)),
            provisioner.app.create_app(provisioner.settings.Settings(**settings), timings=timings),
        ]
        stop = asyncio.Event()
        tasks = [asyncio.create_task(service.run(stop), name=service.name) for service in services]
        try:
            yield services
            for task in tasks:
                assert not task.done(), f"{task.get_name()} ended: {task.exception()}"
        finally:
            stop.set()
            _, late = await asyncio.wait(tasks, timeout=30)
            for task in asyncio.all_tasks() if late else ():
                task.print_stack()
            assert not late, f"did not stop within 30 s: {[task.get_name() for task in late]}"
            await asyncio.gather(*tasks)

    def environment(self, **changes: Any) -> dict[str, str]:
        """Return the same settings as environment variables, for services in a process of their own.

        Suspended controllers have a place of their own, as the machine's may be another process'.
        """
        settings = {"controller_data_dir": self._controllers, **self.settings(**changes)}
        return {f"TRELLIS_{key.upper()}": str(value) for key, value in settings.items()}

    async def both_listen(self) -> None:
        """Wait until both services consume: events published before a consumer exists are found by its list, not
        received.
        """
        await self.listening(NODE_WATCHER, PROVISIONER)

    async def listening(self, *services: str) -> None:
        """Wait until services consume."""
        client = await nats.connect(self.info.nats_url)
        wanted = {name for service in services for name in durables(service, self.id)}
        async with asyncio.timeout(30):
            while wanted:
                with contextlib.suppress(nats.js.errors.NotFoundError):
                    consumers = await client.jetstream().consumers_info(STREAM_EVENTS)
                    wanted -= {found.name for found in consumers}
                await asyncio.sleep(0.1)
        await client.close()

    async def events_until_now(self) -> list[TailedEvent]:
        """Return all events of this test's cluster that are stored by now, in order of publication."""
        selection = Selection(cluster=self.id)
        return [event async for event in replay(self.info.nats_url, selection, Tally())]

    async def published_events(self, wanted: int, *, seconds: float = 60) -> list[TailedEvent]:
        """Return the first events of this test's cluster, in order of publication.

        The deadline is longer than the 15 s after which a service says again what was not stored.
        """
        found: list[TailedEvent] = []
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                async for event in tail(self.info.nats_url, Selection(cluster=self.id, last=10_000)):
                    found.append(event)
                    if len(found) >= wanted:
                        break
        return found

    # --- the API server's own history ---

    def writes(self, since: int = 0) -> list[Manifest]:
        """Return the audited writes after an audit offset (see ``offset``) as records."""
        assert self.info.audit_log is not None
        with Path(self.info.audit_log).open("rb") as log:
            log.seek(since)
            records = [orjson.loads(line) for line in log if line.endswith(b"\n")]
        return [record for record in records if not is_read_by_suite(record)]

    def audit_offset(self) -> int:
        """Return where the API server's history ends now."""
        assert self.info.audit_log is not None
        return Path(self.info.audit_log).stat().st_size

    def most_in_progress(self, offset: int) -> int:
        """Return the most nodes in progress at a time since an audit offset.

        A node is in progress from the creation of its Job until node_watcher writes the result on the Node.
        """
        at_work: set[str] = set()
        most = 0
        for write in self.writes(offset):
            reference = write.get("objectRef") or {}
            name, accepted = (
                reference.get("name", ""),
                write["responseStatus"]["code"] < http.HTTPStatus.MULTIPLE_CHOICES,
            )
            if accepted and reference.get("namespace") == self.installers and write["verb"] == "create":
                if reference.get("resource") == "jobs":
                    at_work.add(name.rsplit("-", 3)[0])
                    most = max(most, len(at_work))
            elif accepted and reference.get("resource") == "nodes" and write["verb"] == "patch" and is_ours(write):
                at_work.discard(name)
        assert not at_work
        return most

    def clean_up(self) -> None:
        """Remove what the test made; of its Shims also those whose finalizer no controller removes any more."""
        for name in self._nodes:
            self.delete(name)
        _, found = self.api.call("GET", SHIMS)
        for shim in (item["metadata"]["name"] for item in found.get("items", [])):
            if self.id in shim:
                self.api.call("DELETE", f"{SHIMS}/{shim}")
                self.api.call("PATCH", f"{SHIMS}/{shim}", {"metadata": {"finalizers": None}})
        for namespace in (self.system, self.installers):
            self.api.call("DELETE", f"/api/v1/namespaces/{namespace}")
        shutil.rmtree(self._controllers, ignore_errors=True)


def is_ours(write: Manifest) -> bool:
    """Say whether an audited write is one of our services'."""
    return "trellis" in str(write.get("userAgent", ""))


@pytest.fixture
def fleet(cluster: ClusterInfo, cluster_api: Api) -> Iterable[Fleet]:
    """A fleet of one test."""
    made = Fleet(cluster, cluster_api)
    yield made
    made.clean_up()


__all__ = ["SHORT", "Fleet", "eventually", "fleet", "is_ours", "watcher_timings"]
