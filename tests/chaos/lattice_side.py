"""Carry out the steps of users on applications and host groups with kubectl and with wash, and read the result.

In: steps of the part ``lattice``. Out: calls to the API server and to wadm; what is not as it has to be, in sentences.
Called by ``world``. One lattice on the control plane's NATS, with a real wadm; the services reach it through a proxy.
"""

from __future__ import annotations

import asyncio
import contextlib
import http
import json
from collections.abc import AsyncIterator, Awaitable
from typing import Any, Final

import nats
import nats.errors

from chaos.bus_servers import quiet
from chaos.lattice_work import GROUPS, KUBECTL_S, WASH_S, Act, App
from chaos.model import Expected
from chaos.namespaces import Namespaces
from chaos.retrying_requests import RetryingRequests
from chaos.steps import Step
from support.lattices.host_groups import MINIMAL
from support.suite.tcp_proxy import TcpProxy
from support.wadm.manifests import ANY_HOST, capability, link
from trellis import names
from trellis.kube.resources import APPLICATIONS, DEPLOYMENTS, ENDPOINT_SLICES, HOST_CONFIGS, SERVICES

Manifest = dict[str, Any]
_HOME: Final = "home"
"""The group whose namespace is the lattice's home, all the time."""
_PORT: Final = 8000
_HELD: Final = (
    "apis/core.oam.dev/v1beta1/applications",
    "api/v1/services",
    "apis/k8s.wasmcloud.dev/v1alpha1/wasmcloudhostconfigs",
)


def spec_of(version: str) -> Manifest:
    """Return a spec that listens on a port of its version's own."""
    component = {"name": "component", "type": "component", "properties": {"image": f"example.com/hello:{version}"}}
    listens = link(f"0.0.0.0:{_PORT + int(version)}")
    return {"components": [component, capability("httpserver", listens, ANY_HOST)]}


class LatticeSide:
    """``proxy``: the way of all services to the lattice's NATS."""

    def __init__(self, requests: RetryingRequests, url: str, proxy: TcpProxy, run_id: str) -> None:
        self._requests = requests
        self._url = url
        self._proxy = proxy
        self._lattice = run_id
        self._namespace = f"{run_id}-apps"
        self._namespaces = Namespaces(requests, (self._namespace,), _HELD)
        self.deleted: set[str] = set()

    async def begin(self) -> None:
        """Make the namespace and the group that is there all the time."""
        await self._namespaces.make()
        await self._scale(_HOME, 1)

    def act(self, step: Step) -> Awaitable[None]:
        """Return what carries a step out."""
        act = Act(step.act)
        if act in {Act.MARK, Act.DELETE, Act.UNDEPLOY, Act.WASH_DELETE, Act.DELETE_GROUP}:
            self.deleted.add(step.on)
        match act:
            case Act.APPLY:
                return self._apply(step.on, step.value)
            case Act.MARK | Act.UNMARK:
                value = "true" if act is Act.MARK else None
                return self._patch(step.on, {"metadata": {"annotations": {names.ANNOTATION_UNDEPLOY: value}}})
            case Act.DELETE:
                return self._requests.deleted(APPLICATIONS.path(self._namespace, step.on))
            case Act.PUT:
                return self._put(step.on, step.value)
            case Act.UNDEPLOY:
                return self._wash(f"undeploy.{step.on}", {})
            case Act.WASH_DELETE:
                return self._wash(f"del.{step.on}", {"version": None})
            case Act.SCALE:
                return self._scale(step.on, int(step.value))
            case Act.DELETE_GROUP:
                return self._requests.deleted(HOST_CONFIGS.path(self._namespace, step.on))

    async def _patch(self, name: str, patch: Manifest) -> None:
        path = APPLICATIONS.path(self._namespace, name) + "?fieldManager=kubectl"
        await self._requests.accepted("PATCH", path, patch)

    async def _apply(self, name: str, version: str) -> None:
        kind = {"apiVersion": APPLICATIONS.api_version, "kind": APPLICATIONS.kind}
        await self._create_or_change(APPLICATIONS, kind | {"metadata": {"name": name}, "spec": spec_of(version)})

    async def _scale(self, name: str, hosts: int) -> None:
        spec = MINIMAL | {"lattice": self._lattice, "hostReplicas": hosts}
        spec |= {"natsAddress": "nats://127.0.0.1", "natsClientPort": self._proxy.port}
        kind = {"apiVersion": HOST_CONFIGS.api_version, "kind": HOST_CONFIGS.kind}
        await self._create_or_change(HOST_CONFIGS, kind | {"metadata": {"name": name}, "spec": spec})

    async def _create_or_change(self, res: Any, manifest: Manifest) -> None:
        """Create an object or change its spec; one that is being deleted is waited for."""
        name = manifest["metadata"]["name"]
        path = res.path(self._namespace, name)
        while True:
            found = await self._requests.found(path)
            if found is not None and "deletionTimestamp" in found["metadata"]:
                await asyncio.sleep(0.2)
            elif found is not None:
                body = {"metadata": {"uid": found["metadata"]["uid"]}, "spec": manifest["spec"]}
                if (await self._requests.call("PATCH", f"{path}?fieldManager=kubectl", body))[0] == http.HTTPStatus.OK:
                    return
            else:
                made = f"{res.path(self._namespace)}?fieldManager=kubectl"
                status, answer = await self._requests.call("POST", made, manifest)
                if status == http.HTTPStatus.CREATED:
                    return
                assert status == http.HTTPStatus.CONFLICT, f"POST {made}: {status} {answer}"

    async def _put(self, name: str, version: str) -> None:
        metadata = {"name": name, "annotations": {"version": f"v{version}"}}
        manifest = {"apiVersion": "core.oam.dev/v1beta1", "kind": "Application", "metadata": metadata}
        await self._wash("put", manifest | {"spec": spec_of(version)})
        await self._wash(f"deploy.{name}", {"version": f"v{version}"})

    async def _wash(self, operation: str, body: Manifest | None) -> None:
        """Say something to wadm until it has answered; that a version exists means that it was taken before."""
        reported = await self._requested(operation, body)
        taken = reported.get("result") in {"success", "created", "newversion", "acknowledged", "deleted", "noop"}
        assert taken or "already exists" in str(reported), f"{operation}: {reported}"

    async def _requested(self, operation: str, body: Manifest | None) -> Manifest:
        given = b"" if body is None else json.dumps(body).encode()
        async with asyncio.timeout(120):
            while True:
                with contextlib.suppress(nats.errors.Error, OSError):
                    client = await nats.connect(self._url, connect_timeout=2, allow_reconnect=False, error_cb=quiet)
                    try:
                        subject = f"wadm.api.{self._lattice}.model.{operation}"
                        found: Manifest = json.loads((await client.request(subject, given, timeout=5)).data)
                        return found
                    finally:
                        await client.close()
                await asyncio.sleep(0.5)

    async def wrong(self, wanted: Expected) -> AsyncIterator[str]:
        """Yield what is not as it has to be."""
        models = {model["name"]: model for model in (await self._requested("get", None))["models"]}
        objects = {item["metadata"]["name"]: item for item in await self._items(APPLICATIONS)}
        services = {item["metadata"]["name"]: item for item in await self._items(SERVICES)}
        for name in (*KUBECTL_S, *WASH_S):
            app = wanted.apps.get(name)
            for item in (
                *_wrong_model(models.get(name), app),
                *_wrong_object(objects.get(name), app, models.get(name)),
                *_wrong_service(services.get(name), app),
            ):
                yield f"{name}: {item}"
        for piece in await self._items(ENDPOINT_SLICES):
            if (name := piece["metadata"].get("labels", {}).get(names.LABEL_SERVICE_NAME, "")) not in services:
                yield f"EndpointSlice {piece['metadata']['name']} is left of Service {name}"
        deployments = {item["metadata"]["name"]: item for item in await self._items(DEPLOYMENTS)}
        groups = {item["metadata"]["name"]: item for item in await self._items(HOST_CONFIGS)}
        for name, hosts in {**dict.fromkeys(GROUPS), _HOME: 1, **wanted.groups}.items():
            for item in _wrong_group(groups.get(name), deployments.get(name), hosts):
                yield f"group {name}: {item}"

    async def _items(self, res: Any) -> list[Manifest]:
        return await self._requests.items(res.path(self._namespace))

    async def release(self) -> None:
        """Ask for the deletion of everything."""
        await self._namespaces.delete()

    async def left(self) -> AsyncIterator[str]:
        """Yield what is still there."""
        async for item in self._namespaces.left():
            yield item

    async def clean_up(self) -> None:
        """Remove what is left."""
        await self._namespaces.delete()
        await self._namespaces.unhook()


def _wrong_model(model: Manifest | None, app: App | None) -> list[str]:
    if (model is None) != (app is None):
        return [f"wadm has it: {model is not None}"]
    if model is None or app is None:
        return []
    runs = bool(model.get("deployed_version"))
    return [] if runs == app.runs else [f"wadm runs it: {runs}"]


def _wrong_object(found: Manifest | None, app: App | None, model: Manifest | None) -> list[str]:
    if found is None or app is None:
        return [] if (found is None) == (app is None) else [f"Kubernetes has it: {found is not None}"]
    image = found["spec"]["components"][0]["properties"]["image"]
    status = found.get("status") or {}
    reported = {condition["type"]: condition["status"] for condition in status.get("conditions") or ()}
    deployed = (status.get("synced") or {}).get("deployed")
    checks = {
        f"it has {image}, not {app.version} (synced: {status.get('synced')}; wadm: {model})": (
            image == f"example.com/hello:{app.version}"
        ),
        f"it is not synced: {reported}": reported.get("Synced") == "True",
        f"it ran when it was synced: {deployed}": deployed is app.runs,
    }
    return [text for text, holds in checks.items() if not holds]


def _wrong_service(found: Manifest | None, app: App | None) -> list[str]:
    wanted = [_PORT + int(app.version)] if app is not None and app.runs else None
    has = [port["port"] for port in found["spec"]["ports"]] if found is not None else None
    return [] if has == wanted else [f"its Service has ports {has}, not {wanted}"]


def _wrong_group(group: Manifest | None, deployment: Manifest | None, hosts: int | None) -> list[str]:
    if group is None or deployment is None or hosts is None:
        there = [group is not None, deployment is not None]
        return [] if there == [hosts is not None] * 2 else [f"it is there: {there[0]}; its Deployment: {there[1]}"]
    status = group.get("status") or {}
    reported = {condition["type"]: condition["status"] for condition in status.get("conditions") or ()}
    has = deployment["spec"]["replicas"]
    found = [] if has == hosts else [f"its Deployment has {has} replicas, not {hosts}"]
    if (reported.get("Available"), reported.get("Progressing"), reported.get("Degraded")) != ("True", "False", "False"):
        found.append(f"it says {reported}")
    return found
