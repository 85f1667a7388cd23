"""A world as seen by another client: the times of Jobs, of endpoints in slices and of stored applications.

In: a control plane, the lattices' NATS. Out: the present objects, and their times. Called by ``world`` and ``changes``.
It only reads: by watches of its own, and by a subscription to the subjects of wadm's storage.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import time
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

import nats
from nats.aio.client import Client
from nats.aio.msg import Msg

from load import sizes
from trellis import names
from trellis.kube.access import Access
from trellis.kube.client import Kube
from trellis.kube.informer import Change, Informer
from trellis.kube.resources import APPLICATIONS, CONFIGMAPS, ENDPOINT_SLICES, JOBS, LEASES, NODES, WASM_CONTROLLERS
from trellis.telemetry import setup
from trellis.telemetry.health import Health
from trellis_dev.localcluster import ClusterInfo

Manifest = dict[str, Any]
_STORED: Final = "$KV.wadm_manifests."


@dataclass
class Seen:
    """Present objects by name. ``ready`` and ``labelled`` are nodes; ``slices`` addresses by application.

    ``bases``: state of both sides in an application's object; ``jobs``, ``moved``, ``copies``, ``requests`` and
    ``deployed``: when a node's Job, a slice's content, a nonce in a copy and in the Lease of this benchmark, and a
    version in wadm's storage came.
    """

    ready: set[str] = field(default_factory=set)
    labelled: set[str] = field(default_factory=set)
    jobs: dict[str, float] = field(default_factory=dict)
    slices: dict[str, frozenset[str]] = field(default_factory=dict)
    moved: dict[str, float] = field(default_factory=dict)
    bases: dict[str, str] = field(default_factory=dict)
    controllers: set[str] = field(default_factory=set)
    copies: dict[tuple[str, str], float] = field(default_factory=dict)
    deployed: dict[str, tuple[str, float]] = field(default_factory=dict)
    requests: dict[str, float] = field(default_factory=dict)

    def node(self, change: Change[tuple[bool, bool]]) -> None:
        """Note whether a node is ready, and whether it is provisioned."""
        for number, known in enumerate((self.ready, self.labelled)):
            (known.add if change.new is not None and change.new[number] else known.discard)(change.key)

    def job(self, change: Change[str]) -> None:
        """Record the time of a node's first Job."""
        if change.new:
            self.jobs.setdefault(change.new, time.monotonic())

    def slice(self, change: Change[tuple[str, frozenset[str]]]) -> None:
        """Note where an application leads."""
        if change.new is not None:
            name, addresses = change.new
            self.slices[name] = addresses
            self.moved[name] = time.monotonic()

    def application(self, change: Change[str]) -> None:
        """Note what both sides have of an application."""
        self.bases[change.key.partition("/")[2]] = change.new or ""

    def controller(self, change: Change[bool]) -> None:
        """Note whether a controller is ready."""
        (self.controllers.add if change.new else self.controllers.discard)(change.key.partition("/")[2])

    def copy(self, change: Change[str]) -> None:
        """Note when a nonce came into a copy."""
        if change.new:
            self.copies.setdefault((change.key.partition("/")[2], change.new), time.monotonic())

    def request(self, change: Change[str]) -> None:
        """Note when a nonce came into the Lease."""
        if change.new:
            self.requests.setdefault(change.new, time.monotonic())

    async def stored(self, message: Msg) -> None:
        """Note when wadm deployed a version: its storage is written by messages to these subjects."""
        content = json.loads(message.data) if message.data else None
        if isinstance(content, dict) and content.get("deployed_version"):
            deployed = str(content["deployed_version"]), time.monotonic()
            self.deployed[message.subject.removeprefix(_STORED)] = deployed


async def until(check: Callable[[], bool], what: Callable[[], str], seconds: float = 600, pause: float = 0.002) -> None:
    """Wait until a check holds.

    Raises:
        TimeoutError: it does not; ``what`` describes its progress.
    """
    deadline = time.monotonic() + seconds
    while not check():
        if time.monotonic() > deadline:
            raise TimeoutError(f"not within {seconds} s: {what()}")
        await asyncio.sleep(pause)


@contextlib.asynccontextmanager
async def looking(info: ClusterInfo, lattices: str) -> AsyncIterator[tuple[Seen, Client]]:
    """Watch during a block; the client is one of the lattices' NATS."""
    seen = Seen()
    health = Health("load")
    kube = await Kube.connect(Access(Path(info.kubeconfig)), telemetry=setup("load"), health=health)
    client = await nats.connect(lattices, name="load")
    await client.subscribe(f"{_STORED}>", cb=seen.stored)
    inside = sizes.CONTROLLERS_NAMESPACE
    informers: list[Informer[Any]] = [
        Informer(kube, NODES, _node, seen.node),
        Informer(kube, JOBS, lambda job: str(job["spec"]["template"]["spec"]["nodeName"]), seen.job),
        Informer(kube, ENDPOINT_SLICES, _slice, seen.slice),
        Informer(kube, APPLICATIONS, _base, seen.application),
        Informer(kube, WASM_CONTROLLERS, _ready, seen.controller),
        Informer(kube, CONFIGMAPS, _nonce, seen.copy, inside),
        Informer(kube, LEASES, _holder, seen.request, sizes.REQUESTS_NAMESPACE),
    ]
    tasks = [asyncio.create_task(informer.run()) for informer in informers]
    try:
        for informer in informers:
            await informer.synced.wait()
        yield seen, client
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        await client.close()
        await kube.close()


def _condition(manifest: Manifest) -> bool:
    conditions = (manifest.get("status") or {}).get("conditions") or ()
    return any((condition["type"], condition["status"]) == ("Ready", "True") for condition in conditions)


_ready = _condition


def _node(manifest: Manifest) -> tuple[bool, bool]:
    return _condition(manifest), names.LABEL_PROVISIONED in (manifest["metadata"].get("labels") or {})


def _slice(manifest: Manifest) -> tuple[str, frozenset[str]]:
    endpoints = manifest.get("endpoints") or ()
    found = frozenset(endpoint["addresses"][0] for endpoint in endpoints if endpoint["conditions"]["ready"])
    return str((manifest["metadata"].get("labels") or {}).get(names.LABEL_SERVICE_NAME, "")), found


def _base(manifest: Manifest) -> str:
    """Return the version that both sides have and wadm runs, "" if it is not so."""
    synced = (manifest.get("status") or {}).get("synced") or {}
    return str(synced["wadmVersion"]) if synced.get("deployed") else ""


def _nonce(manifest: Manifest) -> str:
    return str((manifest.get("data") or {}).get("nonce", ""))


def _holder(manifest: Manifest) -> str:
    return str((manifest.get("spec") or {}).get("holderIdentity", ""))
