"""`trellis run` as a process of its own: started, asked over HTTP, its log read."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import sys
import urllib.error
import urllib.request
from asyncio.subprocess import Process
from collections.abc import AsyncIterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from support.suite.forkserver import Child
from support.suite.typed import started
from trellis_dev.localcluster.ports import free_ports


def free_port() -> int:
    """Return a port that stays reserved for this process: it may give it to a server later, or to none."""
    (port,) = free_ports(1)
    return port


def get(port: int, path: str) -> tuple[int, str]:
    """Return status and body, (0, "") while no server listens."""
    try:
        with urllib.request.urlopen(f"http://127.0.0.1:{port}{path}", timeout=5) as answer:
            return answer.status, answer.read().decode()
    except urllib.error.HTTPError as error:
        with error:
            return error.code, error.read().decode()
    except OSError:
        return 0, ""


async def get_status(port: int, path: str) -> tuple[int, str]:
    return await asyncio.to_thread(get, port, path)


async def until_status(port: int, path: str, status: int) -> str:
    async with asyncio.timeout(40):
        while True:
            found, body = await get_status(port, path)
            if found == status:
                return body
            await asyncio.sleep(0.1)


@contextlib.asynccontextmanager
async def running(log: Path, *services: str, forked: bool = True, **environment: str) -> AsyncIterator[Child | Process]:
    """Run `trellis run` with its log, in JSON, at the end of a file.

    ``forked``: as ``support.suite.typed`` has its processes. A variable that the interpreter itself reads needs
    another.
    """
    environment = {**os.environ, "TRELLIS_LOG_FORMAT": "json", **environment}
    process = await (_forked if forked else _executed)(log, services, environment)
    try:
        yield process
    finally:
        if process.returncode is None:
            process.terminate()
            await asyncio.wait_for(process.wait(), 40)


async def _forked(log: Path, services: Sequence[str], environment: Mapping[str, str]) -> Child:
    return await asyncio.to_thread(started, environment, "run", *services, log=log)


async def _executed(log: Path, services: Sequence[str], environment: Mapping[str, str]) -> Process:
    with log.open("ab") as output:
        return await asyncio.create_subprocess_exec(
            sys.executable, "-m", "trellis_cli", "run", *services, env=environment, stdout=output, stderr=output
        )


def lines(log: Path) -> list[dict[str, Any]]:
    """Return what a log has; of its last line the end may not be written yet."""
    whole, _, _ = log.read_text().rpartition("\n")
    return [json.loads(line) for line in whole.splitlines()]
