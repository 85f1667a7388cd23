"""The proxy of outages leaves nothing behind: what it left would be found in the middle of another test."""

from __future__ import annotations

import asyncio
import gc
import warnings

import pytest

from support.suite.tcp_proxy import TcpProxy


@pytest.mark.parametrize("turns", range(6))
def test_a_client_that_leaves_during_a_connect_leaves_no_connection(turns: int) -> None:
    async def leave_early() -> None:
        server = await asyncio.start_server(lambda _, writer: writer.close(), "127.0.0.1", 0)
        async with TcpProxy("127.0.0.1", server.sockets[0].getsockname()[1]) as proxy:
            _, writer = await asyncio.open_connection("127.0.0.1", proxy.port)
            for _ in range(turns):
                await asyncio.sleep(0)
        writer.transport.abort()
        server.close()

    with warnings.catch_warnings(record=True) as found:
        warnings.simplefilter("always")
        asyncio.run(leave_early())
        gc.collect()
    assert [str(item.message) for item in found] == []
