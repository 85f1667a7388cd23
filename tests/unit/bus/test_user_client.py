"""NATS' client for one user, where the server hangs up without a word."""

from __future__ import annotations

import asyncio
import json
import socket
import struct

import nats.errors
import pytest

from trellis.bus.connection.connection import REFUSED, describe
from trellis.bus.connection.user_client import PermissionDenied, UserClient

INFO = {"server_id": "x", "version": "2.15.1", "headers": True, "max_payload": 1024, "nonce": "n"}


@pytest.mark.parametrize(
    ("auth_required", "expected_text"),
    [(True, REFUSED), (False, "connection reset")],
    ids=["a server with users", "a server without"],
)
async def test_a_server_with_users_that_hangs_up_on_a_greeting_has_refused_the_user(
    auth_required: bool, expected_text: str
) -> None:
    """Its answer is lost where the client has sent more before it read it: the system drops it with the connection."""

    async def greet_and_reset(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(b"INFO " + json.dumps({**INFO, "auth_required": auth_required}).encode() + b"\r\n")
        await reader.readuntil(b"PING\r\n")
        connection: socket.socket = writer.get_extra_info("socket")
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))  # close by a reset
        writer.close()

    async def note(error: Exception) -> None:
        raise error

    server = await asyncio.start_server(greet_and_reset, "127.0.0.1", 0)
    port = server.sockets[0].getsockname()[1]
    client = UserClient(None)
    with pytest.raises((nats.errors.Error, OSError)) as met:
        await client.connect(f"nats://127.0.0.1:{port}", error_cb=note)
    assert describe(met.value) == expected_text
    client.hang_up()
    server.close()
    await server.wait_closed()


@pytest.mark.parametrize(
    ("error", "word"),
    [
        (socket.gaierror(-2, "Name or service not known"), "host name"),
        (ConnectionRefusedError(111, "Connect call failed"), "refused"),
        (TimeoutError(), "in time"),
    ],
    ids=lambda value: type(value).__name__,
)
def test_a_failed_connection_is_described_without_text_of_the_system(error: OSError, word: str) -> None:
    assert word in describe(error)
    assert not any(part in describe(error) for part in error.args[1:])


async def test_two_refusals_of_one_request_end_it_once() -> None:
    """A user of another service may neither receive the answer nor request: the server reports both, one after the
    other.
    """

    async def greet(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(b"INFO " + json.dumps(INFO).encode() + b"\r\n")
        await reader.readuntil(b"PING\r\n")
        writer.write(b"PONG\r\n")
        await reader.readuntil(b"PUB question")
        writer.write(b"-ERR 'Permissions Violation for Subscription to \"_INBOX.x.*\"'\r\n")
        await reader.read()
        writer.close()

    async def note(error: Exception) -> None:
        raise error

    server = await asyncio.start_server(greet, "127.0.0.1", 0)
    client = UserClient(None)
    await client.connect(f"nats://127.0.0.1:{server.sockets[0].getsockname()[1]}", error_cb=note)
    refused = client._process_err
    both: asyncio.Future[None] = asyncio.get_running_loop().create_future()

    async def twice(text: str) -> None:
        await refused(text)
        await asyncio.sleep(0)  # the request is being ended, and has not ended
        try:
            await refused("'permissions violation for publish to \"question\"'")
        except RuntimeError as error:
            both.set_exception(error)
        else:
            both.set_result(None)

    client._process_err = twice  # type: ignore[method-assign]
    with pytest.raises(PermissionDenied, match=r'subscribe to "_inbox\.x'):
        await client.request("question", timeout=30)
    await both
    await client.close()
    server.close()
    await server.wait_closed()
