"""Two replicas of controller_host with one lease, and controllers whose work tells who did it, and whether any is lost.

In: a tenant and a namespace for what its controllers make. Out: what became of their work, and what the API server's
audit log says of who wrote when. Called by the tests of leader changes.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import signal
import time
from collections.abc import AsyncIterator, Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import psutil

from support.cluster.exclusion import Lease, accepted, late_writes, place, writer
from support.guests import built as guests
from support.guests.controllers_world import CONFIG_MAPS, Host, Tenant, prebuilt, until
from support.guests.wat_guests import beats
from support.suite.service_process import free_port, get
from support.suite.suite_permissions import is_read_by_suite
from trellis_dev.localcluster import ClusterInfo

RING = 4
BEAT = "beat"
LEASE = "trellis-controller-host"
READY = 200


def replica(host: Host, name: str, **settings: str) -> Host:
    """Return another replica of a host: of its lease, with a disk and a port of its own."""
    directory = host.directory / name
    directory.mkdir()
    # One of the guests never leaves its call, as far as the test is concerned.
    named = settings | {"TRELLIS_IDENTITY": name, "TRELLIS_CONTROLLER_MAX_TIME_PER_CALL": "10m"}
    return replace(host, directory=directory, settings=named, port=free_port(), process=None)


@dataclass
class Work:
    """A ring, a mirror, one that counts in memory, and one whose only call never ends; ``change`` gives them work."""

    tenant: Tenant
    target: Tenant

    def __post_init__(self) -> None:
        tenant, places = self.tenant, (self.tenant.name, self.target.name)
        tenant.account("worker", CONFIG_MAPS, namespaces=places)
        guests.needed("c")
        modules = {
            "ring": prebuilt("ring"),
            "mirror": prebuilt("mirror"),
            "stateful": guests.example("c", "stateful").read_bytes(),
            "beats": beats(self.target.name, BEAT),
        }
        for name, wasm in modules.items():
            tenant.module(name, wasm)
        for number in range(RING):
            self._object(f"ring-{number}", f"ring-{number}")
            following = {"next": f"ring-{(number + 1) % RING}"}
            self._controller(f"ring-{number}", "ring", f"ring-{number}", config=following)
        self._controller("mirror", "mirror", "mirrored", config={"targetNamespace": self.target.name})
        self._controller("stateful", "stateful", "counted", config={"bytes": 100_000})
        limits = {"timePerCall": "10m", "hostCallsPerSecond": 1000}
        self._controller("beats", "beats", "beats", limits=limits)
        self._object("begin", "beats")

    def change(self, number: int) -> None:
        """Give everybody but the one that beats something new to do."""
        self.tenant.config_map("ring-0", nonce=str(number))
        self._object(f"mirrored-{number}", "mirrored")
        self._object(f"counted-{number}", "counted")

    async def done(self, number: int) -> None:
        """Wait until everything that was to be done is: nothing is lost on the way."""

        def is_done() -> bool:
            nonces = {(self.tenant.data(f"ring-{item}") or {}).get("nonce") for item in range(RING)}
            counted = self.tenant.data(f"counted-{number}-seen") or {}
            mirrored = self.target.data(f"mirrored-{number}")
            return nonces == {str(number)} and mirrored is not None and counted.get("memory") == "whole"

        await until(is_done, f"everything of round {number} is done", 60.0)

    def _object(self, name: str, role: str) -> None:
        metadata = {"namespace": self.tenant.name, "name": name, "labels": {"role": role}}
        self.tenant.make({"apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata, "data": {"made": "by hand"}})

    def _controller(self, name: str, module: str, role: str, **spec: Any) -> None:
        watched = {"apiVersion": "v1", "kind": "ConfigMap", "labelSelector": {"matchLabels": {"role": role}}}
        self.tenant.controller(name, module=module, serviceAccountName="worker", watches=[watched], **spec)


@dataclass
class Replicas:
    """``first``, which leads as it is alone at the start, and ``second``."""

    cluster: ClusterInfo
    first: Host
    second: Host
    mark: int = field(init=False)

    def __post_init__(self) -> None:
        assert self.cluster.audit_log is not None
        self.audit = Path(self.cluster.audit_log)
        self.mark = self.audit.stat().st_size
        self.lease = Lease(self.first.name, LEASE)

    @contextlib.asynccontextmanager
    async def serving(self, work: Work) -> AsyncIterator[None]:
        """Run both: the one leads and has a guest in the middle of a call, the other stands by."""
        async with self.first.serving(), self.second_after(work):
            try:
                yield
            finally:
                self.go_on("first")

    @contextlib.asynccontextmanager
    async def second_after(self, work: Work) -> AsyncIterator[None]:
        work.change(1)
        await work.done(1)
        await until(lambda: bool(self.beats("first")), "the guest is in its call")
        async with self.second.serving():
            await until(lambda: get(self.second.port, "/readyz")[0] == READY, "the second stands by")
            yield

    async def stop(self, name: str) -> None:
        """Have a replica do nothing, as a paused machine."""
        process = self._process(name)
        process.send_signal(signal.SIGSTOP)
        await until(lambda: process.status() == psutil.STATUS_STOPPED, "stopped")

    def go_on(self, name: str) -> None:
        """Let it go on, if it was stopped."""
        with contextlib.suppress(psutil.NoSuchProcess):
            self._process(name).send_signal(signal.SIGCONT)

    async def terminate(self, name: str) -> float:
        """Ask a replica to end; return the seconds that it took."""
        host = getattr(self, name)
        began = time.monotonic()
        host.process.terminate()
        assert await asyncio.wait_for(host.process.wait(), 40) == 0
        return time.monotonic() - began

    def beats(self, name: str) -> list[str]:
        """Return when a replica's guest that beats wrote, as far as the API server took it."""
        return [
            item["requestReceivedTimestamp"]
            for item in self.audited()
            if place(item)[2] == BEAT and accepted(item) and writer(item, LEASE) == name
        ]

    async def second_beats(self) -> None:
        """Wait until the second leads, and called the guest that beats, too."""
        await until(lambda: bool(self.beats("second")), "the second's guest is in its call", 60.0)

    def lists(self, name: str) -> float:
        """Return how many lists a replica's guests were given; only the one that beats asks for any."""
        return float(getattr(self, name).metric("trellis_controller_host_calls_total", op="list", outcome="ok"))

    def audited(self) -> Iterator[dict[str, Any]]:
        """Yield what the API server logged of writes since the start."""
        with self.audit.open("rb") as log:
            log.seek(self.mark)
            for line in log:
                if line.endswith(b"\n") and not is_read_by_suite(record := json.loads(line)):
                    yield record

    def violations(self) -> list[str]:
        """Return each write of a former leader to what its successor had written already."""
        return late_writes(self.audited(), self.lease)

    def _process(self, name: str) -> psutil.Process:
        return psutil.Process(getattr(self, name).process.pid)
