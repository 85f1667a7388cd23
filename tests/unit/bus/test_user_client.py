"""NATS' client for one user, where the server hangs up without a word."""

from __future__ import annotations

import asyncio
import json
import socket
import struct

import nats.errors
import pytest

from trellis.bus.connection import describe
from trellis.bus.user_client import UserClient

INFO = {"server_id": "x", "version": "2.15.1", "headers": True, "max_payload": 1024, "nonce": "n"}


@pytest.mark.parametrize(
    ("auth_required", "words"),
    [(True, "NATS refused the user: its nkey, credentials, password or token"), (False, "Connection reset by peer")],
    ids=["a server with users", "a server without"],
)
async def test_a_server_with_users_that_hangs_up_on_a_greeting_has_refused_the_user(
    auth_required: bool, words: str
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
    assert describe(met.value) == words
    client.hang_up()
    server.close()
    await server.wait_closed()
