"""One real Jaeger for tests: spans by OTLP over HTTP, traces by its query API. It keeps them in memory."""

from __future__ import annotations

import asyncio
import json
import secrets
import time
import urllib.error
import urllib.request
from collections.abc import Awaitable, Callable, Iterable, Iterator, Mapping
from http import HTTPStatus
from pathlib import Path
from typing import Any, Self

import pytest

from support.suite.traces import Edge, assert_flow
from trellis.read_model.traces.spans import ReadSpan, read_spans
from trellis_dev.localcluster import tools
from trellis_dev.localcluster.commands import PORTS, command
from trellis_dev.localcluster.errors import PortInUseError, StartError
from trellis_dev.localcluster.guard import guard
from trellis_dev.localcluster.node_images import architecture
from trellis_dev.localcluster.ociarchive import Image, write_image
from trellis_dev.localcluster.paths import Layout
from trellis_dev.localcluster.ports import LOOPBACK, free_ports
from trellis_dev.localcluster.processes import end, spawn
from trellis_dev.localcluster.readiness import wait_ready

JAEGER = "trellis.local/jaeger:1"
"""The same program as an image, for what the chart has."""
_START_SECONDS = 30.0
_TRIES = 5
_PATIENCE = 60.0


def jaeger_image(target: Path) -> Path:
    """Write the archive of :data:`JAEGER`, and return it."""
    image = Image(JAEGER, ["/jaeger"], architecture(), open_directories=("tmp",))
    write_image(target, image, {"jaeger": tools.ensure("jaeger")})
    return target


class Jaeger:
    """A context manager; ``otlp`` is the address for services, ``url`` the query API."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory

    def __enter__(self) -> Self:
        self._directory.mkdir(parents=True)
        token = secrets.token_hex(16)
        self._guard = guard(self._directory, token)
        for _ in range(_TRIES):
            try:
                self._start(token)
            except PortInUseError:
                continue
            return self
        raise StartError("Jaeger found every port taken that was free just before")

    def __exit__(self, *_: object) -> None:
        end([self._process], grace=5)
        self._guard.abandon()

    def traces(self, service: str) -> list[list[ReadSpan]]:
        """Return the traces that a service has spans in."""
        found = self._get(f"/api/traces?service={service}&limit=1000")
        return [read_spans({"data": [trace]}) for trace in found["data"]]

    def trace(self, trace_id: str) -> list[ReadSpan]:
        """Return the spans of a trace, none if there is none."""
        try:
            return read_spans(self._get(f"/api/traces/{trace_id}"))
        except urllib.error.HTTPError as error:
            if error.code != HTTPStatus.NOT_FOUND:
                raise
            return []

    async def until(self, service: str, holds: Callable[[list[ReadSpan]], Any], what: str) -> list[ReadSpan]:
        """Wait for a trace of a service for which something holds; the newest of several."""
        deadline = time.monotonic() + _PATIENCE
        while True:
            traces = await asyncio.to_thread(self.traces, service)
            found = [spans for spans in traces if holds(spans)]
            if found:
                return max(found, key=lambda spans: min(span.start_ns for span in spans))
            if time.monotonic() > deadline:
                seen = sorted({f"{span.service}: {span.name}" for spans in traces for span in spans})
                pytest.fail(f"Jaeger has no trace of {service} with {what}; there is:\n" + "\n".join(seen))
            await asyncio.sleep(0.2)

    async def flow(
        self,
        service: str,
        holds: Callable[[list[ReadSpan]], Any],
        what: str,
        wanted: Iterable[Edge],
        names: Mapping[str, str],
    ) -> list[ReadSpan]:
        """Wait for a trace that is a flow. Until Jaeger has stored all that it was sent, spans are missing."""
        found: list[ReadSpan] = []

        async def is_flow() -> None:
            found[:] = await self.until(service, holds, what)
            assert_flow(found, wanted, names)

        await self.passes(is_flow)
        return found

    async def passes(self, check: Callable[[], Awaitable[object]]) -> None:
        """Wait until a check raises no AssertionError; let through the one of the deadline."""
        deadline = time.monotonic() + _PATIENCE
        while True:
            try:
                await check()
            except AssertionError:
                if time.monotonic() > deadline:
                    raise
            else:
                return
            await asyncio.sleep(0.2)

    def _get(self, path: str) -> Any:
        with urllib.request.urlopen(f"{self.url}{path}", timeout=10) as answer:
            return json.load(answer)

    def _start(self, token: str) -> None:
        ports = dict(zip(PORTS["jaeger"], free_ports(len(PORTS["jaeger"])), strict=True))
        _, *arguments = command("jaeger", Layout(self._directory), ports, audit=False)
        log = self._directory / "jaeger.log"
        self._process = spawn([str(tools.ensure("jaeger")), *arguments], log=log, token=token)
        self.otlp = f"http://{LOOPBACK}:{ports['jaeger-otlp-http']}"
        self.url = f"http://{LOOPBACK}:{ports['jaeger-query']}"
        wait_ready("jaeger", self._answers, self._process, (log, 0), _START_SECONDS)

    def _answers(self) -> bool:
        try:
            self._get("/api/services")
        except OSError:
            return False
        return True


@pytest.fixture(scope="session")
def jaeger(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Jaeger]:
    """A Jaeger of the test process."""
    with Jaeger(tmp_path_factory.mktemp("jaeger") / "server") as started:
        yield started


__all__ = ["JAEGER", "Jaeger", "jaeger", "jaeger_image"]
