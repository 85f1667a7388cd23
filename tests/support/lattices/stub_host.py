"""A wasmCloud host without Wasm: it is in its lattice, and runs nothing. For tests of many hosts and for pods.

In: requests of the control interface (ping, inventory, labels, stop). Out: replies, and the events host_started,
host_heartbeat, labels_changed and host_stopped, with the data of a wasmCloud 1.9 host. As a library: :class:`StubHost`
on a connection, many on one if wanted. As a program: ``python stub_host.py``, with the options and environment
variables of a host (WASMCLOUD_LATTICE, WASMCLOUD_LABEL_<key>, …), so that it can stand in for one in a pod; of its own
has it STUB_HEARTBEAT, STUB_DRAIN (seconds that it takes to stop) and STUB_HTTP (a port on which it answers every
request with its host name, as an http-server might). One suite (host_behaviour) runs against it and against the real
host. It needs nats-py and nothing else.
Invariant: what it does not know it answers as the real host does, with an error, or like it not at all.
"""

from __future__ import annotations

import argparse
import asyncio
import base64
import binascii
import contextlib
import json
import os
import platform
import secrets
import signal
import socket
import sys
import time
import uuid
from collections.abc import AsyncIterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any, Final, Self

import nats
from nats.aio.client import Client
from nats.aio.msg import Msg
from nats.aio.subscription import Subscription
from nats.errors import Error as NatsError

VERSION: Final = "1.9.2"
_PREFIX_SERVER: Final = 13 << 3
_UNITS: Final = (("day", 86_400), ("h", 3_600), ("m", 60), ("s", 1))


class RefusedError(Exception):
    """A request that the host answers with ``success: false`` and this message."""


@dataclass(frozen=True)
class Options:
    """The options of a host. ``heartbeat`` in seconds; ``labels`` without the three that every host has."""

    lattice: str = "default"
    labels: Mapping[str, str] = field(default_factory=dict)
    heartbeat: float = 30.0
    host_id: str | None = None
    ctl_prefix: str = "wasmbus.ctl"
    js_domain: str | None = None
    url: str = "nats://127.0.0.1:4222"
    version: str = VERSION


class StubHost:
    """One host on a connection of the caller's. ``components`` and ``providers`` are what its inventory shows.

    An async context manager; :meth:`vanish` ends it as a crash does, leaving the block as SIGTERM does.
    """

    def __init__(self, client: Client, options: Options) -> None:
        self._client = client
        self._options = options
        self._began = time.monotonic()
        self._subscriptions: list[Subscription] = []
        self._beating: asyncio.Task[None] | None = None
        self._ending: asyncio.Task[None] | None = None
        self.id = options.host_id or new_id()
        self.friendly_name = f"stub-host-{secrets.randbelow(10_000):04d}"
        self.labels = {**_own_labels(), **options.labels}
        self.components: list[dict[str, Any]] = []
        self.providers: list[dict[str, Any]] = []
        self.stopped = asyncio.Event()

    async def __aenter__(self) -> Self:
        """Subscribe, say host_started, begin to beat."""
        prefix = f"{self._options.ctl_prefix}.v1.{self._options.lattice}"
        for subject in (f"{prefix}.host.ping", f"{prefix}.host.*.{self.id}", f"{prefix}.label.*.{self.id}"):
            self._subscriptions.append(await self._client.subscribe(subject, cb=self._handle))
        await _settle(self._client)
        started = {"friendly_name": self.friendly_name, "labels": self.labels, "uptime_seconds": 0}
        await self._publish("host_started", started | {"version": self._options.version})
        self._beating = asyncio.create_task(self._beat())
        return self

    async def __aexit__(self, *_: object) -> None:
        """Say host_stopped, unless it is over already."""
        if await self.vanish():
            with contextlib.suppress(NatsError):
                await self._publish("host_stopped", {"labels": self.labels})
                await _settle(self._client)

    async def vanish(self) -> bool:
        """End without a word, as a crash does; return whether it was there."""
        if self._beating is None:
            return False
        await self.silence()
        subscriptions, self._subscriptions = self._subscriptions, []
        for subscription in subscriptions:
            with contextlib.suppress(NatsError):
                await subscription.unsubscribe()
        self._beating = None
        self.stopped.set()
        return True

    async def silence(self) -> None:
        """Beat no more, and go on answering: what a hung heartbeat looks like."""
        if self._beating is not None:
            self._beating.cancel()
            await asyncio.wait([self._beating])

    async def beat(self) -> None:
        """Publish one heartbeat now."""
        await self._publish("host_heartbeat", self._inventory())

    async def _beat(self) -> None:
        while True:
            await asyncio.sleep(self._options.heartbeat)
            with contextlib.suppress(NatsError):  # the connection is lost; the next one may get through
                await self.beat()

    async def _handle(self, message: Msg) -> None:
        noun, operation = message.subject.removeprefix(f"{self._options.ctl_prefix}.v1.").split(".")[1:3]
        try:
            reply = await self._answer(f"{noun}.{operation}", message.data)
        except RefusedError as refused:
            reply = {"success": False, "message": str(refused)}
        if message.reply:
            await message.respond(json.dumps(reply).encode())
        if (noun, operation) == ("host", "stop") and reply["success"]:
            # Not here: to unsubscribe cancels the task that this runs in.
            self._ending = asyncio.create_task(self.__aexit__())

    async def _answer(self, operation: str, body: bytes) -> dict[str, Any]:
        match operation:
            case "host.ping":
                return _ok(response=self._summary())
            case "host.get":
                return _ok(response=self._inventory())
            case "host.stop":
                given = _parsed(body, "failed to deserialize stop command") if body else {}
                if given.get("host_id", "") not in {"", self.id}:
                    raise RefusedError(f"invalid host_id [{given['host_id']}]")
                return _ok("successfully handled stop host")
            case "label.put":
                return await self._put_label(_parsed(body, "failed to deserialize put label request", "key", "value"))
            case "label.del":
                return await self._delete_label(_parsed(body, "failed to deserialize delete label request", "key"))
        raise RefusedError("unsupported subject")

    async def _put_label(self, given: Mapping[str, str]) -> dict[str, Any]:
        if given["key"].lower().startswith("hostcore."):
            raise RefusedError("hostcore.* labels cannot be set dynamically")
        self.labels[given["key"]] = given["value"]
        await self._publish("labels_changed", {"host_id": self.id, "labels": self.labels})
        return _ok("successfully put label")

    async def _delete_label(self, given: Mapping[str, str]) -> dict[str, Any]:
        if self.labels.pop(given["key"], None) is None:
            return _ok("successfully deleted label (no such label)")
        await self._publish("labels_changed", {"host_id": self.id, "labels": self.labels})
        return _ok("successfully deleted label")

    def _summary(self) -> dict[str, Any]:
        return {
            **dict.fromkeys(("rpc_host", "ctl_host"), self._options.url),
            "id": self.id,
            "lattice": self._options.lattice,
            **({"js_domain": self._options.js_domain} if self._options.js_domain else {}),
            **self._identity(),
        }

    def _inventory(self) -> dict[str, Any]:
        running = {"components": self.components, "providers": self.providers}
        return {**running, "host_id": self.id, **self._identity()}

    def _identity(self) -> dict[str, Any]:
        uptime = int(time.monotonic() - self._began)
        return {
            "friendly_name": self.friendly_name,
            "labels": dict(sorted(self.labels.items())),
            "version": self._options.version,
            "uptime_human": human(uptime),
            "uptime_seconds": uptime,
        }

    async def _publish(self, event: str, data: Mapping[str, Any]) -> None:
        now = datetime.now(UTC).isoformat(timespec="microseconds")
        envelope = {
            "specversion": "1.0",
            "id": str(uuid.uuid4()),
            "type": f"com.wasmcloud.lattice.{event}",
            "source": self.id,
            "datacontenttype": "application/json",
            "time": now.replace("+00:00", "Z"),
            "data": data,
        }
        await self._client.publish(f"wasmbus.evt.{self._options.lattice}.{event}", json.dumps(envelope).encode())


@contextlib.asynccontextmanager
async def stub_host(options: Options) -> AsyncIterator[StubHost]:
    """Have a host with a connection of its own, for the time of a block.

    Raises:
        OSError, nats.errors.Error: if the server cannot be reached.
    """
    client = await nats.connect(options.url, max_reconnect_attempts=-1, error_cb=_ignore)
    try:
        async with StubHost(client, options) as host:
            yield host
    finally:
        with contextlib.suppress(NatsError, OSError):  # it is just being connected again
            await client.close()


def new_id() -> str:
    """Return an id as hosts have: a public key of the kind "server" (to which nobody has the private one)."""
    content = bytes([_PREFIX_SERVER]) + secrets.token_bytes(32)
    checksum = binascii.crc_hqx(content, 0).to_bytes(2, "little")
    return base64.b32encode(content + checksum).decode().rstrip("=")


def human(seconds: int) -> str:
    """Return a time as hosts write it: ``1day 2h 1m 31s``, ``0s``."""
    parts = []
    for unit, size in _UNITS:
        count, seconds = divmod(seconds, size)
        if count:
            parts.append(f"{count}{unit}{'s' if unit == 'day' and count > 1 else ''}")
    return " ".join(parts) or "0s"


def _own_labels() -> dict[str, str]:
    return {"hostcore.arch": platform.machine(), "hostcore.os": sys.platform, "hostcore.osfamily": "unix"}


def _ok(message: str = "", **more: Any) -> dict[str, Any]:
    return {"success": True, "message": message, **more}


def _parsed(body: bytes, complaint: str, *required: str) -> dict[str, Any]:
    try:
        found = json.loads(body)
    except ValueError:
        found = None
    if not isinstance(found, dict) or not all(isinstance(found.get(key), str) for key in required):
        raise RefusedError(complaint)
    return found


async def _settle(client: Client) -> None:
    """Return when the server has all that was sent; a first PING of nats-py can overtake what still waits."""
    for _ in range(2):
        await client.flush()


async def _ignore(error: Exception) -> None:
    """Say nothing of a lost connection: the client connects again."""


def _options(argv: Sequence[str], environment: Mapping[str, str]) -> Options:
    """Read options and environment as a host's; what a stub has no use for is passed over."""
    place = environment.get("WASMCLOUD_NATS_HOST", "127.0.0.1"), environment.get("WASMCLOUD_NATS_PORT", "4222")
    prefix = "WASMCLOUD_LABEL_"
    labels = {name.removeprefix(prefix): value for name, value in environment.items() if name.startswith(prefix)}
    parser = argparse.ArgumentParser(description="A wasmCloud host without Wasm.", allow_abbrev=False)
    parser.add_argument("--nats", default=f"nats://{':'.join(place)}")
    parser.add_argument("--lattice", default=environment.get("WASMCLOUD_LATTICE", "default"))
    parser.add_argument("--label", action="append", default=[], metavar="KEY=VALUE")
    parser.add_argument("--heartbeat", type=float, default=environment.get("STUB_HEARTBEAT", 30.0))
    given, _ = parser.parse_known_args(argv)
    labels |= {key: value for key, _, value in (pair.partition("=") for pair in given.label)}
    return Options(
        lattice=given.lattice,
        labels=labels,
        heartbeat=given.heartbeat,
        ctl_prefix=environment.get("WASMCLOUD_CTL_TOPIC_PREFIX", "wasmbus.ctl"),
        js_domain=environment.get("WASMCLOUD_JS_DOMAIN"),
        url=given.nats,
    )


async def _serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    """Answer one request with the host name, which in a pod is the pod's."""
    with contextlib.suppress(OSError, ValueError, asyncio.IncompleteReadError):
        await reader.readuntil(b"\r\n\r\n")
        body = f"{socket.gethostname()}\n"
        head = f"HTTP/1.1 200 OK\r\nContent-Length: {len(body)}\r\nConnection: close\r\n\r\n"
        writer.write((head + body).encode())
        await writer.drain()
    writer.close()


async def _run(options: Options, drain: float, port: int) -> None:
    async with contextlib.AsyncExitStack() as stack:
        host = await stack.enter_async_context(stub_host(options))
        if port:
            await stack.enter_async_context(await asyncio.start_server(_serve, port=port))
        for number in (signal.SIGTERM, signal.SIGINT):
            asyncio.get_running_loop().add_signal_handler(number, host.stopped.set)
        os.write(sys.stdout.fileno(), f"stub host {host.id} is in lattice '{options.lattice}'\n".encode())
        await host.stopped.wait()
        await asyncio.sleep(drain)


if __name__ == "__main__":
    given = float(os.environ.get("STUB_DRAIN", "0")), int(os.environ.get("STUB_HTTP", "0"))
    asyncio.run(_run(_options(sys.argv[1:], os.environ), *given))
