"""A capability provider of wasmCloud v1 in place of keyvalue-nats: a program that a real host starts.

The published provider is an image in a registry of its maker, and no crate. In: the host's data on standard input;
links with ``cluster_uri`` and ``bucket``; calls of ``wasi:keyvalue/atomics.increment``. Out: values in a bucket of
JetStream, as the published provider writes them. It needs nats-py and nothing else.
Invariants, as of the published provider: the bucket that a component opens is the name of a link; the bucket of
JetStream is the one of the link's configuration; values are decimal numbers. It ends with its host.
Source: wRPC over NATS 0.0.1, wasmcloud-provider-sdk 0.17, keyvalue-nats 0.3.
"""

from __future__ import annotations

import asyncio
import base64
import json
import os
import sys
from typing import Any, Final

import nats
from nats.aio.client import Client
from nats.aio.msg import Msg
from nats.js.errors import KeyNotFoundError, KeyWrongLastSequenceError
from nats.js.kv import KeyValue

INCREMENT: Final = "wrpc.0.0.1.wrpc:keyvalue/atomics@0.2.0-draft.increment"
_OTHER: Final = 2
"""The case ``other`` of the error of wasi:keyvalue."""
_TRIES: Final = 5
_LOOK_SECONDS: Final = 0.5
_SECONDS: Final = 10.0
Link = dict[str, Any]


class RefusedError(Exception):
    """A call that the provider answers with the case ``other`` and this message."""


def write_number(value: int) -> bytes:
    """Return an unsigned LEB128 number."""
    found = bytearray()
    while value > 0x7F:
        found.append(value & 0x7F | 0x80)
        value >>= 7
    found.append(value)
    return bytes(found)


def read_number(data: bytes, at: int) -> tuple[int, int]:
    """Return an unsigned LEB128 number and the position after it."""
    value = shift = 0
    while True:
        byte = data[at]
        value, shift, at = value | (byte & 0x7F) << shift, shift + 7, at + 1
        if byte < 0x80:
            return value, at


def read_text(data: bytes, at: int) -> tuple[str, int]:
    """Return a string and the position after it."""
    length, at = read_number(data, at)
    return data[at : at + length].decode(), at + length


def write_text(text: str) -> bytes:
    """Return a string with its length."""
    raw = text.encode()
    return write_number(len(raw)) + raw


class Provider:
    """The provider on the NATS of its lattice."""

    def __init__(self, client: Client, data: dict[str, Any]) -> None:
        self._client = client
        self._data = data
        self._lattice, self._id = data["lattice_rpc_prefix"], data["provider_key"]
        self._buckets: dict[tuple[str, str], KeyValue] = {}
        self._connections: list[Client] = []
        self._stopped = asyncio.Event()

    async def run(self) -> None:
        """Serve until the host stops the provider, or ends."""
        own = f"wasmbus.rpc.{self._lattice}.{self._id}"
        # A host puts links under the provider's xkey, older ones under its name: each says which provider it is for.
        await self._client.subscribe(f"wasmbus.rpc.{self._lattice}.*.linkdefs.put", cb=self._put)
        await self._client.subscribe(f"{own}.health", cb=self._health)
        await self._client.subscribe(f"{own}.default.shutdown", cb=self._shut_down)
        await self._client.subscribe(f"{self._lattice}.{self._id}.{INCREMENT}", cb=self._increment)
        # The host's data has the links before its start. Those between it and the subscription were published to no
        # subscriber: an interpreter starts slower than the published provider.
        for link in (*self._data["link_definitions"], *await self._links()):
            await self._linked(link)
        parent = os.getppid()
        while os.getppid() == parent and not self._stopped.is_set():
            try:
                await asyncio.wait_for(self._stopped.wait(), _LOOK_SECONDS)
            except TimeoutError:
                continue
        for connection in self._connections:
            await connection.close()

    async def _links(self) -> list[Link]:
        """Return the provider's links that the lattice has now, with their configuration."""
        found: list[Link] = [link for link in await self._ask("link.get") if link["target"] == self._id]
        for link in found:
            configs = [await self._ask(f"config.get.{name}") for name in link["target_config"]]
            link["target_config"] = {key: value for config in configs for key, value in config.items()}
        return found

    async def _ask(self, operation: str) -> Any:
        reply = await self._client.request(f"wasmbus.ctl.v1.{self._lattice}.{operation}", b"", timeout=_SECONDS)
        return json.loads(reply.data)["response"]

    async def _put(self, message: Msg) -> None:
        await self._linked(json.loads(message.data))

    async def _linked(self, link: Link) -> None:
        """Open the bucket of a link, once."""
        place = link["source_id"], link["name"]
        if link["target"] != self._id or place in self._buckets:
            return
        config = link["target_config"]
        connection = await nats.connect(config["cluster_uri"])
        self._connections.append(connection)
        bucket = await connection.jetstream().key_value(config["bucket"])
        self._buckets[place] = bucket

    async def _health(self, message: Msg) -> None:
        await message.respond(b'{"healthy":true}')

    async def _shut_down(self, message: Msg) -> None:
        if json.loads(message.data)["host_id"] == self._data["host_id"]:
            await message.respond(b"shutting down")
            await self._client.flush()
            self._stopped.set()

    async def _increment(self, message: Msg) -> None:
        """Answer a call: accept it with a subject for parameters, then send the result and its end."""
        await self._client.publish(message.reply, b"", reply=self._client.new_inbox())
        bucket, at = read_text(message.data, 0)
        key, at = read_text(message.data, at)
        delta, _ = read_number(message.data, at)
        try:
            result = b"\x00" + write_number(await self._add((message.headers or {})["source-id"], bucket, key, delta))
        except RefusedError as error:
            result = b"\x01" + write_number(_OTHER) + write_text(str(error))
        await self._client.publish(f"{message.reply}.results", result)
        await self._client.publish(f"{message.reply}.results", b"")

    async def _add(self, component: str, bucket: str, key: str, delta: int) -> int:
        store = self._buckets.get((component, bucket))
        if store is None:
            raise RefusedError(f"{component} has no link {bucket}")
        for _ in range(_TRIES):
            try:
                entry = await store.get(key)
                value, last = int(entry.value or b"0") + delta, entry.revision
            except KeyNotFoundError:
                value, last = delta, 0
            try:
                await store.update(key, str(value).encode(), last=last)
            except KeyWrongLastSequenceError:
                continue
            return value
        raise RefusedError(f"{key} was changed {_TRIES} times during its update")


async def main() -> None:
    """Run the provider with the data that its host writes to standard input."""
    data = json.loads(base64.b64decode(sys.stdin.readline()))
    client = await nats.connect(data["lattice_rpc_url"])
    try:
        await Provider(client, data).run()
    finally:
        await client.close()


if __name__ == "__main__":
    asyncio.run(main())
