"""`trellis run` as a process of its own: started, asked over HTTP, its log read."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import socket
import sys
import urllib.error
import urllib.request
from asyncio.subprocess import Process
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any


def free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as server:
        return int(server.getsockname()[1])


def get(port: int, path: str) -> tuple[int, str]:
    """Return status and body, (0, "") while nobody listens."""
    try:
        with urllib.request.urlopen(f"http://127.0.0.1:{port}{path}", timeout=5) as answer:
            return answer.status, answer.read().decode()
    except urllib.error.HTTPError as error:
        with error:
            return error.code, error.read().decode()
    except OSError:
        return 0, ""


async def ask(port: int, path: str) -> tuple[int, str]:
    return await asyncio.to_thread(get, port, path)


async def until_status(port: int, path: str, status: int) -> str:
    async with asyncio.timeout(40):
        while True:
            found, body = await ask(port, path)
            if found == status:
                return body
            await asyncio.sleep(0.1)


@contextlib.asynccontextmanager
async def running(log: Path, *services: str, **environment: str) -> AsyncIterator[Process]:
    """Run `trellis run` with its log, in JSON, at the end of a file."""
    with log.open("ab") as output:
        process = await asyncio.create_subprocess_exec(
            sys.executable, "-m", "trellis_bundle", "run", *services,
            env={**os.environ, "TRELLIS_LOG_FORMAT": "json", **environment}, stdout=output, stderr=output,
        )  # fmt: skip
    try:
        yield process
    finally:
        if process.returncode is None:
            process.terminate()
            await asyncio.wait_for(process.wait(), 40)


def lines(log: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in log.read_text().splitlines()]
