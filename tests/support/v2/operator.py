"""A stand-in for the operator of wasmCloud v2: it writes Hosts and Workloads as recorded, and asks hosts on NATS.

In: heartbeats, and calls of a test, which are the moments at which upstream's controllers look: ``look_at_host`` (each
60 s), ``place`` and ``look_at`` (each 30 s), ``remove``. Out: objects of ``runtime.wasmcloud.dev`` with their
conditions. Not simulated: ConfigMaps and Secrets, environments, leases; ``deployments`` has WorkloadDeployments and
EndpointSlices.
Invariant, as recorded: a heartbeat that is published overwrites the numbers in the status of its Host with "unknown"
and 0; only the answer to a question has them.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from datetime import UTC, datetime
from typing import Any, Final

from nats.aio.client import Client
from nats.aio.msg import Msg
from nats.errors import Error as NatsError
from nats.errors import NoRespondersError

from support.suite.settling import settle
from trellis.kube.client import Kube
from trellis.kube.errors import NotFound
from trellis.kube.resources import WASM_HOSTS, WORKLOADS, Manifest, Resource

NAMESPACE: Final = "wasmcloud-system"
_MANAGER: Final = "runtime-operator"
_HEARTBEATS: Final = "runtime.operator.heartbeat"
_HOST_FINALIZER: Final = f"{WASM_HOSTS.group}/host-finalizer"
_WORKLOAD_FINALIZER: Final = f"{WASM_HOSTS.group}/workload-finalizer"
_OPERATIONAL: Final = {"WORKLOAD_STATE_RUNNING", "WORKLOAD_STATE_COMPLETED"}
_COMPONENT_FIELDS: Final = ("image", "name", "imagePullPolicy", "poolSize", "maxInvocations", "maxConcurrency")
Json = dict[str, Any]


def make_host(beat: Json, namespace: str = NAMESPACE) -> Manifest:
    """Return the Host of a heartbeat."""
    fields: Json = {name: beat[name] for name in ("environment", "hostname", "httpPort") if name in beat}
    metadata = {"name": beat["friendlyName"], "namespace": namespace, "labels": beat.get("labels", {})}
    return {"apiVersion": WASM_HOSTS.api_version, "kind": "Host", "metadata": metadata, **fields, "hostId": beat["id"]}


def make_host_status(beat: Json, seen: str) -> Json:
    """Return the numbers of the answer to a question; of an empty heartbeat, those that a published one leaves."""
    counts: Json = {name: int(beat[name]) for name in ("componentCount", "workloadCount") if name in beat}
    return {
        **counts,
        "lastSeen": seen,
        **{name: beat.get(name, "unknown") for name in ("osArch", "osKernel", "osName", "version")},
        "systemCPUUsage": str(beat.get("systemCpuUsage", 0)),
        **{name: int(beat.get(name, 0)) for name in ("systemMemoryFree", "systemMemoryTotal")},
    }


def make_start(workload: Manifest) -> Json:
    """Return the request that starts a Workload; its Service adds host names to the HTTP interface."""
    metadata, spec = workload["metadata"], workload["spec"]
    aliases = [f"{name}.{metadata['namespace']}" for name in _service_names(spec)]
    aliases += [f"{alias}.svc" for alias in aliases]
    world: Json = {"components": [_component(component) for component in spec.get("components", [])]}
    if interfaces := [_interface(interface, aliases) for interface in spec.get("hostInterfaces", [])]:
        world["hostInterfaces"] = interfaces
    started = {
        "namespace": metadata["namespace"],
        "name": metadata["name"],
        **{name: metadata[name] for name in ("annotations",) if name in metadata},
        "witWorld": world,
    }
    return {"workload": started, "workloadId": metadata["uid"]}


def set_conditions(status: Json, now: str, **wanted: tuple[str, str]) -> Json:
    """Return a status with conditions, each a status and a message; a time changes only with its condition."""
    found = {condition["type"]: condition for condition in status.get("conditions", [])}
    for kind, (value, message) in wanted.items():
        former = found.get(kind, {})
        time = former["lastTransitionTime"] if former.get("status") == value else now
        reason = "Available" if value == "True" else "Reconcile"
        text = {"message": message} if message else {}
        found[kind] = {"type": kind, "status": value, "reason": reason, "lastTransitionTime": time, **text}
    return {**status, "conditions": list(found.values())}


class StandInOperator:
    """The operator on a connection to NATS and one to an API server that serves its kinds."""

    def __init__(
        self, client: Client, kube: Kube, *, clock: Callable[[], datetime] = lambda: datetime.now(UTC)
    ) -> None:
        self._client = client
        self._kube = kube
        self._clock = clock
        self._written = asyncio.Event()
        self._turn = asyncio.Lock()

    @classmethod
    @asynccontextmanager
    async def on(cls, client: Client, kube: Kube) -> AsyncIterator[StandInOperator]:
        """Write Hosts for the time of a block."""
        operator = cls(client, kube)
        subscription = await client.subscribe(f"{_HEARTBEATS}.>", cb=operator._receive)
        await settle(client)
        try:
            yield operator
        finally:
            await subscription.unsubscribe()

    async def host(self, id_: str, *, seconds: float = 30.0) -> Manifest:
        """Wait for the Host of an ID."""
        async with asyncio.timeout(seconds):
            while True:
                self._written.clear()
                for host in (await self._kube.list(WASM_HOSTS, NAMESPACE)).items:
                    if host["hostId"] == id_ and "status" in host:
                        return host
                await self._written.wait()

    async def look_at_host(self, host: Manifest) -> Manifest:
        """Ask a host for a heartbeat and write its conditions; return the Host."""
        name = host["metadata"]["name"]
        async with self._turn:
            current = await self._kube.get(WASM_HOSTS, name, NAMESPACE)
            status = current.get("status", {})
            try:
                beat = await self._ask(host["hostId"], "heartbeat", {})
            except NatsError as error:
                text = _describe(error)
                status = set_conditions(status, self._now(), Reporting=("False", text))
                status = set_conditions(status, self._now(), Ready=("Unknown", "host is not reporting"))
            else:
                status = {**status, **make_host_status(beat, self._now())}
                status = set_conditions(status, self._now(), Reporting=("True", ""), Ready=("True", ""))
            return await self.write_status(WASM_HOSTS, current, status)

    async def place(self, workload: Manifest, host: Manifest) -> Manifest:
        """Start a Workload on a host, then look at it; return the Workload."""
        metadata = workload["metadata"]
        current = await self._kube.get(WORKLOADS, metadata["name"], metadata["namespace"])
        current = await self._set_finalizers(WORKLOADS, current, [_WORKLOAD_FINALIZER])
        status = set_conditions({}, self._now(), Config=("True", ""), HostSelection=("True", ""))
        status |= {"hostId": host["hostId"], **({"environment": host["environment"]} if "environment" in host else {})}
        try:
            await self._ask(host["hostId"], "workload.start", make_start(current))
        except NatsError as error:
            status = set_conditions(status, self._now(), Placement=("False", _describe(error)))
            return await self.write_status(WORKLOADS, current, status)
        status = set_conditions(status, self._now(), Placement=("True", "")) | {"workloadId": metadata["uid"]}
        return await self.look_at(await self.write_status(WORKLOADS, current, status))

    async def look_at(self, workload: Manifest) -> Manifest:
        """Ask the host of a Workload for its state, and write it; return the Workload."""
        metadata, status = workload["metadata"], workload["status"]
        try:
            reply = await self._ask(status["hostId"], "workload.status", {"workloadId": metadata["uid"]})
        except NatsError as error:
            sync = "False", _describe(error)
        else:
            state = reply["workloadStatus"]["workloadState"]
            sync = ("True", "") if state in _OPERATIONAL else ("False", f"workload is not operational: {state}")
        ready = ("True", "") if sync[0] == "True" else ("False", "workload is not placed or not synced")
        status = set_conditions(status, self._now(), Sync=sync, Ready=ready)
        return await self.write_status(WORKLOADS, workload, status)

    async def remove(self, workload: Manifest) -> None:
        """Stop a Workload and delete it."""
        metadata = workload["metadata"]
        await self._kube.delete(WORKLOADS, metadata["name"], metadata["namespace"], uid=metadata["uid"])
        if host := workload.get("status", {}).get("hostId"):
            await self._ask(host, "workload.stop", {"workloadId": metadata["uid"]})
        await self._set_finalizers(WORKLOADS, workload, [])

    async def _receive(self, message: Msg) -> None:
        beat = json.loads(message.data)
        async with self._turn:
            wanted = make_host(beat)
            try:
                current = await self._kube.get(WASM_HOSTS, wanted["metadata"]["name"], NAMESPACE)
            except NotFound:
                current = await self._kube.apply(
                    WASM_HOSTS, wanted, field_manager="host-status-updater", create_if_missing=True
                )
                current = await self._set_finalizers(WASM_HOSTS, current, [_HOST_FINALIZER])
            status = {**current.get("status", {}), **make_host_status({}, self._now())}
            await self.write_status(WASM_HOSTS, current, status)
            self._written.set()

    async def _ask(self, host: str, command: str, request: Json) -> Json:
        reply = await self._client.request(f"runtime.host.{host}.{command}", json.dumps(request).encode(), timeout=60)
        found: Json = json.loads(reply.data)
        return found

    async def _set_finalizers(self, resource: Resource, found: Manifest, finalizers: Sequence[str]) -> Manifest:
        metadata = found["metadata"]
        patch = {"metadata": {"finalizers": list(finalizers)}}
        return await self._kube.merge_patch(
            resource, metadata["name"], patch, metadata["namespace"], field_manager=_MANAGER
        )

    async def write_status(self, resource: Resource, found: Manifest, status: Json) -> Manifest:
        """Merge a status into an object; return the object."""
        metadata = found["metadata"]
        return await self._kube.merge_patch(
            resource,
            metadata["name"],
            {"status": status},
            metadata["namespace"],
            field_manager=_MANAGER,
            subresource="status",
        )

    def _now(self) -> str:
        return self._clock().strftime("%Y-%m-%dT%H:%M:%SZ")


def _service_names(spec: Mapping[str, Any]) -> list[str]:
    name = spec.get("kubernetes", {}).get("service", {}).get("name")
    return [name] if name else []


def _component(component: Json) -> Json:
    found: Json = {name: component[name] for name in _COMPONENT_FIELDS if name in component}
    local = component.get("localResources", {})
    environment = local.get("environment", {}).get("config", {})
    resources = {name: local[name] for name in ("config", "volumeMounts", "allowedHosts") if name in local}
    return {**found, "localResources": resources | ({"environment": environment} if environment else {})}


def _interface(interface: Json, aliases: Sequence[str]) -> Json:
    is_http = (interface["namespace"], interface["package"]) == ("wasi", "http")
    if not (is_http and aliases and "incoming-handler" in interface["interfaces"]):
        return interface
    return {**interface, "config": {**interface.get("config", {}), "host-aliases": ",".join(aliases)}}


def _describe(error: NatsError) -> str:
    """Return an error as the client of upstream's operator writes it."""
    is_absent = isinstance(error, NoRespondersError)
    return "nats: no responders available for request" if is_absent else "context deadline exceeded"
