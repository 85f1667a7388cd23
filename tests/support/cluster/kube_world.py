"""Parts of tests of the Kubernetes client: small objects, a watched namespace, waiting for conditions."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from typing import Any, Self

import pytest

from trellis.kube.client import Kube
from trellis.kube.informer import Change, ChangeKind, Informer
from trellis.kube.resources import CONFIGMAPS, Manifest

DEADLINE = 40.0
MANAGER = "trellis.dev/test"
ForgetHistory = Callable[[], Awaitable[None]]


def configmap(namespace: str, name: str, **data: str) -> Manifest:
    metadata: Manifest = {"name": name, "namespace": namespace}
    return {"apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata, "data": data}


def labelled(manifest: Manifest, **labels: str) -> Manifest:
    return manifest | {"metadata": manifest["metadata"] | {"labels": labels}}


def reference(manifest: Manifest) -> Manifest:
    """Return the fields by which an apply changes this very object."""
    metadata = manifest["metadata"]
    names = ("name", "namespace", "uid")
    return {
        "apiVersion": manifest["apiVersion"],
        "kind": manifest["kind"],
        "metadata": {name: metadata[name] for name in names if name in metadata},
    }


async def until(condition: Callable[[], bool], what: str, deadline: float = DEADLINE, *, every: float = 0.01) -> None:
    """Wait until the condition holds, looking ``every`` so many seconds; fail with ``what`` if it does not in time."""
    try:
        async with asyncio.timeout(deadline):
            while not condition():  # noqa: ASYNC110 - the condition is on objects that have no event
                await asyncio.sleep(every)
    except TimeoutError:
        pytest.fail(f"not within {deadline} s: {what}")


async def eventually(condition: Callable[[], Awaitable[bool]], what: str, deadline: float = DEADLINE) -> None:
    """As ``until``, for a condition that asks a server."""
    try:
        async with asyncio.timeout(deadline):
            while not await condition():  # noqa: ASYNC110 - the condition is another process' state
                await asyncio.sleep(0.1)
    except TimeoutError:
        pytest.fail(f"not within {deadline} s: {what}")


def len_is(things: Sequence[object], wanted: int) -> bool:
    return len(things) == wanted


@dataclass(frozen=True)
class Seen:
    uid: str
    data: tuple[tuple[str, str], ...]


def project(manifest: Manifest) -> Seen:
    return Seen(manifest["metadata"]["uid"], tuple(sorted((manifest.get("data") or {}).items())))


def watch_of(namespace: str) -> str:
    """Return what a watch of the ConfigMaps of a namespace is called in the health of a connection."""
    return f"watch {CONFIGMAPS.plural} in {namespace}"


class Watched:
    """A running informer on the ConfigMaps of a namespace that a test made, and all its changes."""

    def __init__(self, kube: Kube, namespace: str, **options: Any) -> None:
        self.changes: list[Change[Seen]] = []
        self.informer = Informer(
            kube,
            options.pop("resource", CONFIGMAPS),
            project=options.pop("project", project),
            on_change=options.pop("on_change", self.changes.append),
            namespace=namespace,
            **options,
        )

    async def __aenter__(self) -> Self:
        self.task = asyncio.create_task(self.informer.run())
        async with asyncio.timeout(DEADLINE):
            await self.informer.synced.wait()
        return self

    async def __aexit__(self, *_: object) -> None:
        self.task.cancel()
        await asyncio.gather(self.task, return_exceptions=True)

    def kinds_of(self, key: str) -> list[ChangeKind]:
        return [change.kind for change in self.changes if change.key == key]

    def of_tests(self) -> set[str]:
        """Keys known now, without the ConfigMap a controller puts into each namespace."""
        return {key for key in self.informer.objects if not key.endswith("/kube-root-ca.crt")}
