"""A host of wasmCloud v2 without Wasm: it pulls and links images as the real one, and runs nothing, also no services.

In: requests on ``runtime.host.<id>.>``, and images with what a host finds in them. Out: replies, and heartbeats on
``runtime.operator.heartbeat.<id>``. As a library on a connection of the caller, many hosts on one if wanted. One suite
(host_behaviour) runs against it and against trellis-v2-host.
Invariants, as of the real host: requests and heartbeats follow each other, so a slow pull delays both; a request that
cannot be read gets no reply; id and name are new for each start.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import platform
import secrets
import sys
import uuid
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any, Final, Self

from nats.aio.client import Client
from nats.aio.msg import Msg
from nats.aio.subscription import Subscription
from nats.errors import Error as NatsError

from support.suite.settling import settle
from trellis.v2.workloads import is_host_name

PLUGINS: Final = (
    ("wasi", "blobstore", "0.2.0-draft", ("blobstore", "container", "types")),
    ("wasi", "keyvalue", "0.2.0-draft", ("atomics", "batch", "store")),
    ("wasi", "logging", "0.1.0-draft", ("logging",)),
)
"""The interfaces of plugins, which heartbeats list; those of WASI itself and of HTTP are built in."""
_BUILT_IN: Final = ("cli", "clocks", "filesystem", "http", "io", "random", "sockets")
_WORDS: Final = (
    ("amber", "bold", "calm", "deep", "even", "fond", "grand", "humble"),
    ("ash", "bee", "cove", "dune", "elm"),
)
_FIELDS: Final[Mapping[str, frozenset[str]]] = {
    "": frozenset({"workload", "workloadId"}),
    "workload": frozenset({"namespace", "name", "annotations", "service", "witWorld", "volumes"}),
    "service": frozenset({"image", "localResources", "maxRestarts", "imagePullSecret", "imagePullPolicy"}),
    "witWorld": frozenset({"components", "hostInterfaces"}),
    "components": frozenset(
        {"image", "localResources", "poolSize", "maxInvocations", "imagePullSecret", "name", "imagePullPolicy"}
        | {"maxConcurrency"}
    ),
    "hostInterfaces": frozenset({"namespace", "package", "version", "interfaces", "config", "name"}),
    "localResources": frozenset(
        {"memoryLimitMb", "cpuLimit", "config", "environment", "volumeMounts", "allowedHosts", "allowedIpNameLookups"}
        | {"allowedHostLoopbackPorts"}
    ),
    "imagePullSecret": frozenset({"username", "password"}),
}
"""Fields of each message by the field that contains it; other messages and maps are not checked."""
Json = dict[str, Any]


@dataclass(frozen=True)
class Component:
    """An image that can be pulled: imports of its component as in ``acme:widgets/gizmo@1.0.0``, and whether it serves
    HTTP.
    """

    imports: tuple[str, ...] = ()
    http: bool = True


@dataclass(frozen=True)
class PullFailure:
    """An image that cannot be pulled. ``seconds``: duration of the attempt."""

    cause: str
    seconds: float = 0.0


def unknown_image(image: str) -> PullFailure:
    """Return the failure to pull an image that its registry does not have."""
    cause = "Registry error: envelope: OCI API errors: [OCI API error: manifest unknown]"
    return PullFailure(f"failed to pull component from {image}: {cause}")


Images = Mapping[str, Component | PullFailure]


@dataclass(frozen=True)
class Options:
    """Options of a host; ``heartbeat`` in seconds. ``images`` by reference; a registry has no others."""

    images: Images = field(default_factory=dict)
    host_group: str = "default"
    environment: str = ""
    address: str = "127.0.0.1"
    port: int = 8080
    heartbeat: float = 15.0
    version: str = "2.7.0"


class UnreadableError(Exception):
    """A request that gets no reply."""


class PullError(Exception):
    """An image that cannot be pulled; the workload's id stays free."""


class LinkError(Exception):
    """A workload that cannot be linked or bound; its id is kept."""


class StandInHost:
    """One host on a connection. An async context manager; leaving the block is the end of the process, at any time."""

    def __init__(self, client: Client, options: Options) -> None:
        self._client = client
        self._options = options
        self._subscription: Subscription | None = None
        self._beating: asyncio.Task[None] | None = None
        self._turn = asyncio.Lock()
        self._started_at = datetime.now(UTC)
        self.id = str(uuid.uuid4())
        self.friendly_name = "-".join([*map(secrets.choice, _WORDS), f"{secrets.randbelow(10_000):04d}"])
        self.workloads: dict[str, int | str] = {}
        """By id: the number of components that run, or the cause of a failure."""
        self._cached: set[str] = set()

    async def __aenter__(self) -> Self:
        self._subscription = await self._client.subscribe(f"runtime.host.{self.id}.>", cb=self._receive)
        await settle(self._client)
        self._beating = asyncio.create_task(self._beat())
        return self

    async def __aexit__(self, *_: object) -> None:
        if self._beating is None or self._subscription is None:
            return
        self._beating.cancel()
        await asyncio.wait([self._beating])
        with contextlib.suppress(NatsError):
            await self._subscription.unsubscribe()
            await settle(self._client)
        self._beating = self._subscription = None

    async def _beat(self) -> None:
        while True:
            async with self._turn:
                with contextlib.suppress(NatsError):  # the connection is lost; the next one may get through
                    payload = json.dumps(self._heartbeat(), separators=(",", ":")).encode()
                    await self._client.publish(f"runtime.operator.heartbeat.{self.id}", payload)
            await asyncio.sleep(self._options.heartbeat)

    async def _receive(self, message: Msg) -> None:
        async with self._turn:
            command = message.subject.removeprefix(f"runtime.host.{self.id}.")
            with contextlib.suppress(UnreadableError):
                reply = await self._reply(command, message.data)
                if message.reply:
                    await message.respond(json.dumps(reply, indent=2).encode())

    async def _reply(self, command: str, payload: bytes) -> Json:
        match command:
            case "heartbeat":
                return self._heartbeat()
            case "workload.start":
                request = _read(payload)
                if not request.get("workloadId") or "workload" not in request:
                    raise UnreadableError
                return await self._start(request["workloadId"], request["workload"])
            case "workload.status":
                return self._status(_read(payload, "workload").get("workloadId", ""))
            case "workload.stop":
                return self._stop(_read(payload, "workload").get("workloadId", ""))
        raise UnreadableError

    async def _start(self, workload: str, given: Json) -> Json:
        if workload in self.workloads:
            return _status(workload, "ERROR", f"Workload ID [{workload}] already exists")
        world = given.get("witWorld", {})
        try:
            pulled = [await self._pull(component) for component in world.get("components", [])]
        except PullError as failure:
            return _status(workload, "ERROR", str(failure))
        try:
            for component in pulled:
                link(component, world.get("hostInterfaces", []))
        except LinkError as failure:
            self.workloads[workload] = str(failure)
            return _status(workload, "ERROR", str(failure))
        self.workloads[workload] = len(pulled)
        return _status(workload, "RUNNING", "Workload started successfully")

    def _status(self, workload: str) -> Json:
        match self.workloads.get(workload):
            case None:
                return _status(workload, "NOT_FOUND", f"Workload not found: {workload}")
            case str(cause):
                return _status(workload, "ERROR", f"Workload is Error: {cause}")
        return _status(workload, "RUNNING", "Workload is Running")

    def _stop(self, workload: str) -> Json:
        if self.workloads.pop(workload, None) is None:
            return _status(workload, "NOT_FOUND", "Workload not found")
        return _status(workload, "STOPPING", "Workload stopped successfully")

    async def _pull(self, component: Json) -> Component:
        image = component["image"]
        found = self._options.images.get(image, unknown_image(image))
        if component.get("imagePullPolicy") == "IMAGE_PULL_POLICY_NEVER" and image not in self._cached:
            found = PullFailure("component not found in cache and pull policy is 'Never'")
        if isinstance(found, Component):
            self._cached.add(image)
            return found
        await asyncio.sleep(found.seconds)
        raise PullError(f"failed to pull image for component '{component.get('name', '')}': {found.cause}")

    def _heartbeat(self) -> Json:
        running = [count for count in self.workloads.values() if isinstance(count, int)]
        numbers = {"componentCount": sum(running), "workloadCount": len(self.workloads)}
        return {
            "id": self.id,
            "hostname": self._options.address,
            "friendlyName": self.friendly_name,
            "version": self._options.version,
            "labels": {"hostgroup": self._options.host_group},
            "startedAt": self._started_at.isoformat(),
            "osArch": platform.machine(),
            "osName": sys.platform,
            "osKernel": "unix",
            "systemCpuUsage": 12.5,
            "systemMemoryTotal": str(8 << 30),
            "systemMemoryFree": str(4 << 30),
            **{name: str(count) for name, count in numbers.items() if count},
            "imports": [
                {"namespace": namespace, "package": package, "version": version, "interfaces": list(interfaces)}
                for namespace, package, version, interfaces in PLUGINS
            ],
            "httpPort": self._options.port,
            **({"environment": self._options.environment} if self._options.environment else {}),
        }


def link(component: Component, declared: Sequence[Json]) -> None:
    """Do nothing if a component can be linked with the declared interfaces of its workload.

    Raises:
        LinkError: as the real host: a declared interface that the component uses and no plugin has, HTTP without a
            valid host name, or an import that nothing provides.
    """
    exported = ("wasi:http/incoming-handler",) if component.http else ()
    used = {_parsed(name) for name in (*component.imports, *exported)}
    wanted = [it for it in declared if all((it["namespace"], it["package"], name) in used for name in it["interfaces"])]
    if unavailable := [it for it in wanted if not _offered(it)]:
        written = ", ".join(map(_debug, unavailable))
        raise LinkError(
            f"workload component Component({uuid.uuid4()}) requested interfaces that are not available on this host: "
            f"{{{written}}}"
        )
    if any(_is_http(it) and "host" not in it.get("config", {}) for it in wanted):
        raise LinkError("no host header found")
    names = [it["config"]["host"] for it in wanted if _is_http(it)]
    if invalid := [name for name in names if not is_host_name(name)]:
        raise LinkError(f'primary host "{invalid[0]}" is not a valid RFC 1123 hostname')
    provided = {(it["namespace"], it["package"]) for it in wanted} | {("wasi", package) for package in _BUILT_IN}
    for name in component.imports:
        if _parsed(name)[:2] not in provided:
            raise LinkError(
                f"component imports instance `{name}`, but a matching implementation was not found in the linker"
            )


def _offered(interface: Json) -> bool:
    if _is_http(interface):
        return True
    key = interface["namespace"], interface["package"]
    names = {name for *plugin, _, interfaces in PLUGINS if tuple(plugin) == key for name in interfaces}
    return set(interface["interfaces"]) <= names


def _is_http(interface: Json) -> bool:
    return (interface["namespace"], interface["package"]) == ("wasi", "http")


def _debug(interface: Json) -> str:
    """Return an interface as Rust writes it."""
    names = ", ".join(f'"{name}"' for name in interface["interfaces"])
    version = f"Some({_debug_version(interface['version'])})" if "version" in interface else "None"
    return (
        f'WitInterface {{ namespace: "{interface["namespace"]}", package: "{interface["package"]}", '
        f"interfaces: {{{names}}}, version: {version}, config: {{}}, name: None }}"
    )


def _debug_version(version: str) -> str:
    numbers, _, pre = version.partition("-")
    major, minor, patch = numbers.split(".")
    suffix = f', pre: Prerelease("{pre}")' if pre else ""
    return f"Version {{ major: {major}, minor: {minor}, patch: {patch}{suffix} }}"


def _parsed(name: str) -> tuple[str, str, str]:
    package, _, interface = name.partition("@")[0].partition("/")
    return package.partition(":")[0], package.partition(":")[2], interface


def _status(workload: str, state: str, message: str) -> Json:
    found = {"workloadId": workload, "workloadState": f"WORKLOAD_STATE_{state}", "message": message}
    return {"workloadStatus": found}


def _read(payload: bytes, *unknown: str) -> Json:
    """Return a request with names in lowerCamelCase. ``unknown``: fields that this request lacks.

    Raises:
        UnreadableError: the payload is no JSON object, or has an unknown field.
    """
    try:
        found = _camel(json.loads(payload), "")
    except ValueError:
        raise UnreadableError from None
    if not isinstance(found, dict) or not found.keys().isdisjoint(unknown):
        raise UnreadableError
    return found


def _camel(value: Any, inside: str) -> Any:
    if isinstance(value, list):
        return [_camel(item, inside) for item in value]
    if not isinstance(value, dict) or (fields := _FIELDS.get(inside)) is None:
        return value
    found = {}
    for key, item in value.items():
        first, *rest = key.split("_")
        name = first + "".join(word.title() for word in rest)
        if name not in fields:
            raise UnreadableError
        found[name] = _camel(item, name)
    return found
