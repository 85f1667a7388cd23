"""The watches of wasmCloud v2 for one viewer, which run only while the API server serves its API group.

In: a connection with the viewer's identity, namespaces, a receiver of changes. Out: watches, and the read status of
each part. Called by ``live_model``. Invariants: without wasmCloud v2 there is no watch and no read status of a kind,
only one request for the group per interval; only the answer that there is no such group shows that there is none.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Final

from trellis.kube.client import Kube
from trellis.kube.discovery import served_versions
from trellis.kube.errors import KubeError
from trellis.kube.resources import WORKLOADS
from trellis.kube.watch_timings import WatchTimings
from trellis.limits.backoff import Attempts, Backoff
from trellis.read_model.entities.composing_v2 import INSTALLED
from trellis.read_model.entities.entities import PartStatus
from trellis.read_model.live.watching import RETRYING, Part, SwitchedWatches, Take

_OTHER: Final = "update Trellis, or the CRDs of wasmCloud"


class V2Watches(SwitchedWatches):
    """The watches of one viewer."""

    def __init__(
        self,
        kube: Kube,
        parts: Sequence[Part],
        namespaces: Sequence[str],
        take: Take,
        timings: WatchTimings,
        look: float,
    ) -> None:
        super().__init__(kube, parts, namespaces, take, timings, look)
        self._status = PartStatus(INSTALLED, synced=False, lacking={})

    async def run(self) -> None:
        """Watch while the API group is served, until cancelled."""
        attempts = Attempts(Backoff(self.timings.backoff_first, self.timings.backoff_most))
        async with asyncio.TaskGroup() as group:
            while True:
                if await self._update(group):
                    attempts.reset()
                    await asyncio.sleep(self.timings.absent)
                else:
                    await asyncio.sleep(attempts.next())

    def statuses(self) -> list[PartStatus]:
        """Return the read status of the API group, and of each part while it is served."""
        return [self._status, *super().statuses()]

    async def _update(self, group: asyncio.TaskGroup) -> bool:
        """Start or end the watches by the answer about the API group; return whether there was one."""
        try:
            versions = await served_versions(self.kube, WORKLOADS.group)
        except KubeError as error:
            if error.status and not self.running:
                self._status = PartStatus(INSTALLED, synced=True, lacking={"": (str(error), RETRYING)})
            return bool(error.status)  # a former answer holds
        if WORKLOADS.version in versions:
            self._status = PartStatus(INSTALLED, synced=True, lacking={})
            self.start(group)
            return True
        await self.end()
        lacking = {}
        if versions:
            text = f"{WORKLOADS.group} is served as {', '.join(versions)}; this version reads {WORKLOADS.version}"
            lacking = {"": (text, _OTHER)}
        self._status = PartStatus(INSTALLED, synced=True, lacking=lacking, absent=not versions)
        return True
