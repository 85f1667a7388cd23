"""Waits until a nats-server has what a client sent."""

from __future__ import annotations

from nats.aio.client import Client


async def settle(client: Client) -> None:
    """Return when the server knows every subscription and has every message that was sent before this.

    One ``flush()`` of nats-py is no barrier: its PING is written at once, past commands that still wait for the task
    that writes them, so the answer can come before the server has seen those (4 of 300 here). When it has come that
    task has run, and a second PING follows them.
    """
    await client.flush()
    await client.flush()
