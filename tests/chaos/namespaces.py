"""Namespaces of a run: made, deleted, and looked at for what keeps them from going.

In: names; lists of objects that services hold (``apis/…/applications``). Out: calls to the API server. Called by the
sides of a run. Invariant: only what has a finalizer is waited for; when the namespace itself goes is up to Kubernetes,
which waits for half a pod's grace period though the pod is deleted.
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from dataclasses import dataclass

from chaos.retrying_requests import RetryingRequests

_PATH = "/api/v1/namespaces"


@dataclass(frozen=True)
class Namespaces:
    """The namespaces of one side. ``lists``: of what services put finalizers on."""

    requests: RetryingRequests
    names: tuple[str, ...]
    lists: tuple[str, ...]

    async def make(self) -> None:
        """Create them."""
        for name in self.names:
            await self.requests.accepted(
                "POST", _PATH, {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}}
            )

    async def delete(self) -> None:
        """Ask for their deletion, with all that is in them."""
        for name in self.names:
            await self.requests.deleted(f"{_PATH}/{name}")

    async def left(self) -> AsyncIterator[str]:
        """Yield which do not go at all, and what is held in them."""
        for name in self.names:
            found = await self.requests.found(f"{_PATH}/{name}")
            if found is not None and "deletionTimestamp" not in found["metadata"]:
                yield f"namespace {name} does not go"
        async for path, finalizers in self._held():
            yield f"{path} is held by {finalizers}"

    async def unhook(self) -> None:
        """Take the finalizers from all that have one, by force."""
        async for path, _ in self._held():
            await self.requests.call("PATCH", path, {"metadata": {"finalizers": None}})

    async def _held(self) -> AsyncIterator[tuple[str, list[str]]]:
        """Yield the paths of what has finalizers, and those."""
        for name, each in ((name, each) for name in self.names for each in self.lists):
            group, _, plural = each.rpartition("/")
            path = f"/{group}/namespaces/{name}/{plural}"
            for item in await self.requests.items(path):
                if finalizers := item["metadata"].get("finalizers"):
                    yield f"{path}/{item['metadata']['name']}", finalizers
