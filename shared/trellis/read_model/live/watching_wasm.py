"""The watches of Wasm pods for one viewer, which run only while a Shim exists.

In: a connection with the viewer's identity, namespaces, a receiver of changes, whether a Shim exists. Out: watches, and
the read status of each part. Called by ``live_model``. Invariants: without a Shim there is no watch, and the part of
the pods has a read status; a viewer without permission for Shims has no watch either, because nothing could be
concluded.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence

from trellis.kube.client import Kube
from trellis.kube.watch_timings import WatchTimings
from trellis.read_model.entities.composing_wasm import PODS
from trellis.read_model.entities.entities import PartStatus
from trellis.read_model.live.watching import Part, SwitchedWatches, Take


class WasmWatches(SwitchedWatches):
    """The watches of one viewer. ``wanted``: whether a Shim exists, None before that is known."""

    def __init__(  # noqa: PLR0913, PLR0917 - those of all watches, and the switch
        self,
        kube: Kube,
        parts: Sequence[Part],
        namespaces: Sequence[str],
        take: Take,
        timings: WatchTimings,
        look: float,
        wanted: Callable[[], bool | None],
    ) -> None:
        super().__init__(kube, parts, namespaces, take, timings, look)
        self._wanted = wanted

    async def run(self) -> None:
        """Watch while a Shim exists, until cancelled."""
        async with asyncio.TaskGroup() as group:
            while True:
                if self._wanted():
                    self.start(group)
                elif self._wanted() is False:
                    await self.end()
                await asyncio.sleep(self.look)

    def statuses(self) -> list[PartStatus]:
        """Return the read status of each part, that of the pods only while nothing is watched."""
        found = super().statuses()
        return found or [PartStatus(PODS, synced=self._wanted() is False, lacking={})]
