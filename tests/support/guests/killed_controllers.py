"""A host of thirty controllers that is killed again and again while objects change and the disk fills; what must hold.

In: a seed. Out: what a model says that each object's effect has to be, compared with what is there. Called by
tests/integration/controller_host/test_killed.py. `stateful` controllers report what they remember: a report that does
not add up is of a torn memory, and the one of an object made last has to know every object that is there. Others
mirror data: theirs is that of the last change, and goes with its object.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import random
import resource
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

from support.guests import built as guests
from support.guests.controllers_world import CONFIG_MAPS, Host, Tenant, prebuilt, until

STATEFUL = 30
MIRRORS = 6
OBJECTS = ("a", "b", "c")
MEMORY = 200_000
CHANGES = 25
"""In one round."""
FULL_BYTES = (16 << 20) + (64 << 10)
"""No file may grow beyond: a snapshot's memory begins at 16 MiB, everything else is smaller."""
SETTLED_SECONDS = 60.0


@dataclass
class Killed:
    """The world of one seed. ``data``: objects that are there; ``awaited``: reports that have to come again."""

    host: Host
    tenant: Tenant
    target: Tenant
    seed: int
    data: dict[str, int] = field(default_factory=dict)
    awaited: set[str] = field(default_factory=set)
    probes: set[str] = field(default_factory=set)
    version: int = 0

    def __post_init__(self) -> None:
        guests.needed("c")
        self.random = random.Random(self.seed)
        self.host.settings |= {"TRELLIS_IDENTITY": self.host.name, "TRELLIS_CONTROLLER_THREADS": "16"}

    def install(self) -> None:
        """Create the controllers."""
        self.tenant.account("one", CONFIG_MAPS, namespaces=(self.tenant.name, self.target.name))
        self.tenant.module("stateful", guests.example("c", "stateful").read_bytes())
        self.tenant.module("mirror", prebuilt("mirror"))
        for name in self.names():
            mirrors = name.startswith("m")
            watch = {"apiVersion": "v1", "kind": "ConfigMap", "labelSelector": {"matchLabels": {"for": name}}}
            self.tenant.controller(
                name,
                "mirror" if mirrors else "stateful",
                serviceAccountName="one",
                watches=[watch],
                config={"targetNamespace": self.target.name} if mirrors else {"bytes": MEMORY},
                idle={"suspendAfter": self.random.choice(["0s", "0s", "1s", "1h"])},
            )

    @staticmethod
    def names() -> list[str]:
        return [f"s{number}" for number in range(STATEFUL)] + [f"m{number}" for number in range(MIRRORS)]

    async def round(self, *, kills: bool) -> None:
        """Run the host, change objects, fill the disk now and then, and kill the host at some moment."""
        async with self.host.serving() as process:
            await until(lambda: self.host.metric("trellis_controllers") > 0, "it has begun")
            moment = self.random.randrange(CHANGES)
            for number in range(CHANGES):
                if self.random.random() < 0.1:
                    self._fill(process.pid, full=self.random.random() < 0.6)
                self._change()
                await asyncio.sleep(self.random.uniform(0.0, 0.03))
                if kills and number == moment:
                    await self.host.kill()
            if not kills:
                self._fill(process.pid, full=False)
                await self._settled()

    def _fill(self, pid: int, *, full: bool) -> None:
        most = FULL_BYTES if full else resource.RLIM_INFINITY
        with contextlib.suppress(ProcessLookupError):
            resource.prlimit(pid, resource.RLIMIT_FSIZE, (most, resource.RLIM_INFINITY))

    def _change(self) -> None:
        """Create, change or delete an object; its report goes before, and has to come again."""
        controller = self.random.choice(self.names())
        name = f"{controller}-{self.random.choice(OBJECTS)}"
        stateful = controller.startswith("s")
        was_notified = stateful and self._delete(f"{name}-seen")
        if name in self.data and self.random.random() < 0.3:
            self._delete(name)
            del self.data[name]
            if not was_notified:  # of what was there for a moment nobody has to know
                self.awaited.discard(name)
                return
        else:
            self.version += 1
            body = {"metadata": {"labels": {"for": controller}}, "data": {"version": str(self.version)}}
            path = f"/api/v1/namespaces/{self.tenant.name}/configmaps"
            if name in self.data:
                status, answer = self.tenant.api.call("PATCH", f"{path}/{name}", body)
            else:
                status, answer = self.tenant.api.call(
                    "POST", path, body | {"metadata": body["metadata"] | {"name": name}}
                )
            assert status in {200, 201}, answer
            self.data[name] = self.version
        if stateful:
            self.awaited.add(name)

    def _delete(self, name: str) -> bool:
        """Delete a ConfigMap; returns whether there was one."""
        return self.tenant.api.call("DELETE", f"/api/v1/namespaces/{self.tenant.name}/configmaps/{name}")[0] == 200

    async def _settled(self) -> None:
        """Wait until every object has the effect that it must have."""
        await self._without(self.lacking)
        metric = self.host.metric
        await until(lambda: metric("trellis_controllers_pending_keys") == 0, "nobody waits to be called")
        for number in range(STATEFUL):
            # An object that nobody knew before: its report is of the memory that there is now.
            self.probes.add(self._create(f"s{number}", f"s{number}-probe"))
        await until(lambda: self.probes <= self.reports().keys(), "all have been called for a new object")
        await self._without(self.forgotten)
        await until(lambda: self.host.metric("trellis_controllers_disk_full") == 0, "the disk takes what is written")

    async def _without(self, faults: Callable[[], Iterator[str]]) -> None:
        end = time.monotonic() + SETTLED_SECONDS
        while found := list(faults()):
            assert time.monotonic() < end, f"seed {self.seed}: {found}"
            await asyncio.sleep(0.2)

    def _create(self, controller: str, name: str) -> str:
        metadata = {"namespace": self.tenant.name, "name": name, "labels": {"for": controller}}
        self.tenant.make({"apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata})
        return name

    def lacking(self) -> Iterator[str]:
        """Yield what is not as the model has it."""
        reports = self.reports()
        for name in sorted(self.awaited - reports.keys()):
            yield f"{name} was not called for"
        copies = self._config_maps(self.target)
        mirrored = {name: version for name, version in self.data.items() if name.startswith("m")}
        for name in mirrored.keys() | copies.keys():
            found = (copies.get(name) or {}).get("data", {}).get("version")
            wanted = mirrored.get(name)
            if found != (None if wanted is None else str(wanted)) and not name.startswith("kube-"):
                yield f"the copy of {name} is {found}, not {wanted}"

    def forgotten(self) -> Iterator[str]:
        """Yield who does not know an object that is there, as their reports of the probes say."""
        reports = self.reports()
        for probe in sorted(self.probes):
            controller = probe.partition("-")[0]
            there = {name for name in self.data if name.startswith(f"{controller}-")}
            known = set(json.loads(reports[probe]["data"]["seen"]))
            if not there <= known:
                yield f"{controller} knows {sorted(known)}, and there is {sorted(there)}"

    def reports(self) -> dict[str, Any]:
        """Return the reports by the names of their objects, each of which adds up."""
        found = {}
        for name, item in self._config_maps(self.tenant).items():
            if name.endswith("-seen"):
                data = item["data"]
                seen = json.loads(data["seen"])
                whole = (data["memory"], data["clock"], int(data["calls"])) == ("whole", "forward", sum(seen.values()))
                assert whole, f"a torn memory was woken: {data} (seed {self.seed})"
                found[name.removesuffix("-seen")] = item
        return found

    def _config_maps(self, tenant: Tenant) -> dict[str, Any]:
        status, answer = tenant.api.call("GET", f"/api/v1/namespaces/{tenant.name}/configmaps?limit=1000")
        assert status == 200, answer
        return {item["metadata"]["name"]: item for item in answer["items"]}
