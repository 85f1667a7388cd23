"""Two replicas of ``support.cluster.replica`` in their own namespace, what is done to them, and what came of it."""

from __future__ import annotations

import asyncio
import contextlib
import dataclasses
import json
import os
import signal
import sys
from asyncio.subprocess import Process
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import psutil

from support.cluster import replica
from support.cluster.exclusion import Fate, Lease, accepted, late_writes, overlaps, place, runs_of, writer
from support.cluster.kube_world import configmap, labelled, until
from support.cluster.replica import LEASE, Part, now
from support.suite import stepped_clock
from trellis.kube.client import Kube
from trellis.kube.resources import CONFIGMAPS
from trellis_dev.localcluster import ClusterInfo

KEYS = ("k0", "k1", "k2")
PATIENCE = 90.0
"""Seconds for what takes a dozen on a quiet machine."""


class Pair:
    """Replicas by name. All times are of CLOCK_BOOTTIME."""

    def __init__(self, cluster: ClusterInfo, kube: Kube, namespace: str, directory: Path) -> None:
        assert cluster.audit_log is not None
        self.cluster = cluster
        self.kube = kube
        self.lease = Lease(namespace, LEASE)
        self._directory = directory
        self._journal = directory / "journal"
        self._read: list[dict[str, Any]] = []
        self._position = 0
        self._audit = Path(cluster.audit_log)
        self._mark = self._audit.stat().st_size
        self._fates: dict[str, Fate] = {}
        self.processes: dict[str, Process] = {}

    async def begin(self) -> None:
        """Make the namespace and what is worked on in it."""
        await self.kube.ensure_namespace(self.lease.namespace, {})
        for key in KEYS:
            manifest = labelled(configmap(self.lease.namespace, key), **{replica.LABEL: ""})
            await self.kube.create(CONFIGMAPS, manifest)

    async def lead_and_follow(
        self, *, first: dict[str, Any] | None = None, second: dict[str, Any] | None = None
    ) -> None:
        """Start ``first``, and when it works ``second``; both take fields of Part, and ``clock``."""
        await self.start("first", **(first or {}))
        await self.worked("first")
        await self.start("second", **(second or {}))
        await self.until(lambda: bool(self.noted("second", "standing")), "second stands by")

    async def start(self, name: str, *, clock: Path | None = None, **fields: Any) -> None:
        part = Part(
            name,
            fields.pop("kubeconfig", str(self.cluster.kubeconfig)),
            self.cluster.nats_url,
            self.lease.namespace,
            str(self._journal),
            **fields,
        )
        environment = {**os.environ, "PYTHONPATH": str(Path(replica.__file__).parents[2])}
        if clock is not None:
            environment[stepped_clock.VARIABLE] = str(clock)
        with (self._directory / f"{name}.log").open("wb") as log:
            self.processes[name] = await asyncio.create_subprocess_exec(
                sys.executable, replica.__file__, json.dumps(dataclasses.asdict(part)),
                env=environment, stdout=log, stderr=log,
            )  # fmt: skip

    # --- what is done to a replica ---

    async def terminate(self, name: str) -> None:
        self.processes[name].terminate()
        assert await asyncio.wait_for(self.processes[name].wait(), PATIENCE) == 0

    async def kill(self, name: str) -> None:
        """End it as a crash does."""
        with contextlib.suppress(ProcessLookupError):
            self.processes[name].kill()
        await self.processes[name].wait()
        self._fates[name] = dataclasses.replace(self._fates.get(name, Fate()), killed=now())

    async def stop(self, name: str) -> None:
        """Have it do nothing, as a paused machine."""
        process = psutil.Process(self.processes[name].pid)
        self.processes[name].send_signal(signal.SIGSTOP)
        await until(lambda: process.status() == psutil.STATUS_STOPPED, f"{name} is stopped")
        self._fates[name] = Fate(stopped=(now(), float("inf")))

    def stopped_for(self, name: str) -> float:
        """Return the seconds since a replica was stopped."""
        stopped = self._fates[name].stopped
        assert stopped is not None
        return now() - stopped[0]

    def go_on(self, name: str) -> None:
        stopped = self._fates[name].stopped
        assert stopped is not None
        self._fates[name] = Fate(stopped=(stopped[0], now()))
        self.processes[name].send_signal(signal.SIGCONT)

    # --- what came of it ---

    async def worked(self, name: str, times: int = 1) -> None:
        """Wait until a replica has written every key so many times from now on."""
        before = self.noted(name, "wrote")
        await self.until(
            lambda: all((self.noted(name, "wrote") - before)[key] >= times for key in KEYS),
            f"{name} writes every key {times} times",
        )

    async def until(self, condition: Callable[[], bool], what: str) -> None:
        """Wait for what needs files to be read: with patience, and not all the time."""
        await until(condition, f"{what}; see {self._directory}", PATIENCE, every=0.1)

    def noted(self, name: str, what: str) -> Counter[str]:
        """Count the lines of a replica's journal by key."""
        lines = (line for line in self.journal() if (line["replica"], line["what"]) == (name, what))
        return Counter(line["key"].rpartition("/")[2] for line in lines)

    def journal(self) -> list[dict[str, Any]]:
        """Return the lines of both replicas so far."""
        if self._journal.exists():
            with self._journal.open("rb") as journal:
                journal.seek(self._position)
                whole = journal.read().rpartition(b"\n")[0]
            if whole:
                self._position += len(whole) + 1
                self._read += [json.loads(line) for line in whole.splitlines()]
        return self._read

    def audited(self) -> Iterator[dict[str, Any]]:
        """Yield the writes to this pair's namespace, as the API server logged them."""
        with self._audit.open("rb") as log:
            log.seek(self._mark)
            for line in log:
                if (
                    line.endswith(b"\n")
                    and (record := json.loads(line)).get("objectRef", {}).get("namespace") == self.lease.namespace
                ):
                    yield record

    def codes(self, name: str) -> Counter[tuple[str, int]]:
        """Count a replica's writes as the API server logged them, by resource and status."""
        own = (record for record in self.audited() if writer(record, self.lease.product) == name)
        return Counter((place(record)[0], record["responseStatus"]["code"]) for record in own)

    def both_wrote(self) -> bool:
        who = {writer(record, self.lease.product) for record in self.audited() if accepted(record)}
        return {"first", "second"} <= who

    async def end(self) -> None:
        """End what still runs; a stopped process cannot be asked."""
        for name, process in self.processes.items():
            if process.returncode is None:
                await self.kill(name)

    def violations(self) -> list[str]:
        """Return every moment in which an object was in two hands; call ``end`` before."""
        return overlaps(list(runs_of(self.journal())), self._fates) + late_writes(self.audited(), self.lease)
