"""The live state of some namespaces for one viewer: watches, and the revisions from them.

In: a connection with the identity of the viewer, heartbeats of hosts of wasmCloud v2. Out: a journal, and a
notification of each revision. Created by the console for each viewer, and by `trellis top`. Invariants: a change is
part of a revision after the interval of a ``Pace``, together with all later changes; slow readers use no additional
memory.
"""

from __future__ import annotations

import asyncio
import contextlib
import secrets
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from trellis.kube.client import Kube
from trellis.kube.watch_timings import WatchTimings
from trellis.lattice.follow.heartbeats import Heartbeats
from trellis.read_model.entities.cards import ShimCard
from trellis.read_model.entities.composing import Composer
from trellis.read_model.entities.composing_v2 import HEARTBEATS, V2Composer
from trellis.read_model.entities.composing_wasm import SHARED, WasmComposer
from trellis.read_model.entities.entities import PartStatus
from trellis.read_model.entities.journal import Entity, Journal
from trellis.read_model.live.parts_v2 import v2_parts
from trellis.read_model.live.parts_wasm import wasm_parts
from trellis.read_model.live.watching import RETRYING, Part, Place, Watches, parts_of, viewer_timings
from trellis.read_model.live.watching_v2 import V2Watches
from trellis.read_model.live.watching_wasm import WasmWatches
from trellis.v2.workloads import WorkloadView

_LIMITED: Final = "only the selected namespaces are read"


class ChangeSignal:
    """Notifies any number of readers of the next change."""

    def __init__(self) -> None:
        self._next = asyncio.Event()

    @property
    def next(self) -> asyncio.Event:
        """An event that is set at the next change; get it before reading the current state."""
        return self._next

    def notify(self) -> None:
        """Wake all readers."""
        now, self._next = self._next, asyncio.Event()
        now.set()


@dataclass(frozen=True, slots=True)
class Parts:
    """The watched kinds.

    ``v2``: those of wasmCloud v2, watched only while they are served; ``wasm``: those of Wasm pods, only while a Shim
    exists.
    """

    own: Sequence[Part]
    v2: Sequence[Part] = ()
    wasm: Sequence[Part] = ()


def all_parts(place: Place) -> Parts:
    """Return all kinds of a page."""
    return Parts(parts_of(place), v2_parts(), wasm_parts())


@dataclass(frozen=True, slots=True)
class Pace:
    """Interval for which changes are collected before they are shown, in seconds, and number of ids that are stored."""

    seconds: float
    ids_kept: int
    look: float = 0.5
    """Interval of checks for readable kinds in seconds, which no watch reports."""
    evaluate: float = 1.0
    """Minimum interval of evaluations of wasmCloud v2, and of those of Wasm pods, in seconds."""
    evaluate_share: float = 0.1
    """Maximum share of the time for each: an evaluation with 10,000 Workloads lasts 0.1 s."""
    watch: WatchTimings = field(default_factory=viewer_timings)


class LiveModel:
    """Runs while it has readers. ``epoch`` distinguishes its revisions from those of other runs."""

    def __init__(
        self,
        kube: Kube,
        parts: Parts,
        namespaces: Sequence[str],
        pace: Pace,
        heartbeats: Heartbeats | None = None,
    ) -> None:
        self.epoch: Final = secrets.token_hex(8)
        self.journal: Final = Journal(pace.ids_kept)
        self._pace: Final = pace
        self.changes: Final = ChangeSignal()
        self._composer: Final = Composer()
        self._watches: Final = Watches(kube, parts.own, namespaces, self._take, pace.watch)
        self._kube: Final = kube
        self._v2: Final = V2Watches(kube, parts.v2, namespaces, self._take_v2, pace.watch, pace.look)
        self._v2_composer: Final = V2Composer(_LIMITED if namespaces else "")
        self._wasm: Final = WasmWatches(
            kube, parts.wasm, namespaces, self._take_wasm, pace.watch, pace.look, self._shims_exist
        )
        self._wasm_composer: Final = WasmComposer()
        self._heartbeats: Final = heartbeats
        self._v2_due = 0.0
        self._wasm_due = 0.0
        self._dirty = asyncio.Event()
        self.over = False
        """True once it has ended: no further revision follows."""

    @property
    def watches(self) -> int:
        """Maximum number of watches."""
        return len(self._watches.informers) + self._v2.count + self._wasm.count

    @property
    def former(self) -> list[WorkloadView]:
        """Workloads of wasmCloud v2 that were deleted or moved lately."""
        return self._v2_composer.former

    async def run(self) -> None:
        """Watch until cancelled."""
        try:
            await self._run()
        finally:
            self.over = True
            self.changes.notify()

    async def _run(self) -> None:
        async with asyncio.TaskGroup() as group:
            for informer in self._watches.informers:
                group.create_task(informer.run(), name="viewer's watch")
            group.create_task(self._watches.check_absences(self._pace.look), name="viewer's kinds")
            group.create_task(self._v2.run(), name="viewer's wasmCloud v2")
            group.create_task(self._wasm.run(), name="viewer's Wasm pods")
            while True:
                with contextlib.suppress(TimeoutError):
                    async with asyncio.timeout(self._pace.look):
                        await self._dirty.wait()
                if self._dirty.is_set():
                    await asyncio.sleep(self._pace.seconds)
                self._dirty.clear()
                self._revise()

    def _take(self, part: str, key: str, new: Any, /) -> None:  # noqa: ANN401 - the part's view
        self._composer.take(part, key, new)
        if part in SHARED:
            self._wasm_composer.take(part, key, new.view if isinstance(new, ShimCard) else new)
        self._dirty.set()

    def _take_v2(self, part: str, key: str, new: Any, /) -> None:  # noqa: ANN401 - the part's view
        self._v2_composer.take(part, key, new)
        self._dirty.set()

    def _take_wasm(self, part: str, key: str, new: Any, /) -> None:  # noqa: ANN401 - the part's view
        self._wasm_composer.take(part, key, new)
        self._dirty.set()

    def _shims_exist(self) -> bool | None:
        """Return whether a Shim exists; None before Shims are read, False if they cannot be."""
        if self._composer.seen.shims:
            return True
        status = next(item for item in self._watches.statuses() if item.name == "shims")
        return False if status.synced or status.lacking else None

    def _revise(self) -> None:
        self._watches.forget_refused()
        for status in self._watches.statuses():
            self._composer.report(status)
        if self.journal.write(self._composer.flush() | self._v2_changes() | self._wasm_changes()):
            self.changes.notify()

    def _v2_changes(self) -> dict[str, Entity | None]:
        """Return the changes of wasmCloud v2, none before the next evaluation is due."""
        began = time.monotonic()
        if began < self._v2_due:
            return {}
        now = self._kube.now()
        statuses, messages = self._v2.statuses(), None
        if self._heartbeats is not None:
            messages = self._heartbeats.messages(now)
            lacking = {"": (messages.error, RETRYING)} if messages.error else {}
            statuses.append(PartStatus(HEARTBEATS, synced=True, lacking=lacking))
        self._v2_composer.report(statuses)
        changes = self._v2_composer.flush(now, messages)
        ended = time.monotonic()
        read = all(status.synced or status.lacking for status in statuses)
        pause = max(self._pace.evaluate if read else 0.0, (ended - began) / self._pace.evaluate_share)
        self._v2_due = ended + (ended - began if self._v2_composer.behind else pause)
        return changes

    def _wasm_changes(self) -> dict[str, Entity | None]:
        """Return the changes of Wasm pods, none before the next evaluation is due."""
        began = time.monotonic()
        if began < self._wasm_due:
            return {}
        shared = [status for status in self._watches.statuses() if status.name in SHARED]
        own = self._wasm.statuses()
        self._wasm_composer.report([*shared, *own])
        changes = self._wasm_composer.flush()
        ended = time.monotonic()
        read = all(status.synced or status.lacking for status in own)
        pause = max(self._pace.evaluate if read else 0.0, (ended - began) / self._pace.evaluate_share)
        self._wasm_due = ended + (ended - began if self._wasm_composer.behind else pause)
        return changes
