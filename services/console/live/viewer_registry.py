"""Registry of active viewers: a client and watches for each viewer, while one of their tabs is open.

In: viewers. Out: visits, which hold all that is read with the identity of one viewer. Called by routes. Invariants:
viewers share no data; a viewer's watches end some seconds after the last tab; the number of viewers, streams and reads
is limited; a viewer that the API server no longer accepts loses their sessions and watches.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any, Final

import orjson

from console.access.identity import Viewer
from console.access.permissions import ReviewedPermissions
from console.access.sessions import greedy
from console.domain.limits import (
    JOURNAL_IDS,
    READS,
    READS_EACH,
    STREAMS,
    STREAMS_EACH,
    WATCHES_EACH,
)
from console.http.refusals import busy
from console.timings import Timings
from trellis.kube.client import Kube
from trellis.kube.errors import Call, KubeError, Unauthorized
from trellis.kube.permissions import allowed_to
from trellis.kube.resources import NAMESPACES
from trellis.kube.transport import HttpRequest
from trellis.lattice.follow.heartbeats import Heartbeats
from trellis.read_model.live.live_model import LiveModel, Pace, Parts
from trellis.telemetry import Telemetry, get_logger

_SELF: Final = "/apis/authentication.k8s.io/v1/selfsubjectreviews"
_REVIEW: Final = {"apiVersion": "authentication.k8s.io/v1", "kind": "SelfSubjectReview"}
_UID_SHOWN: Final = 8
"""Characters of the uid of kube-system: the default of a cluster's name on the bus."""

_log = get_logger(__name__)


async def review_identity(kube: Kube) -> Mapping[str, Any]:
    """Return the SelfSubjectReview of a client's identity; raises KubeError."""
    call = Call("CREATE", "SelfSubjectReview", "selfsubjectreviews")
    body = await kube.ask(call, HttpRequest("POST", _SELF, body=orjson.dumps(_REVIEW)))
    found: Mapping[str, Any] = orjson.loads(body)
    return found


@dataclass(eq=False)
class Watched:
    """A live model and its task. ``users``: number of streams that read it; ``left``: end of the last one."""

    live_model: LiveModel
    task: asyncio.Task[None]
    users: int = 0
    left: float = 0.0


@dataclass(eq=False)
class Visit:
    """An active viewer. ``over``: set if the identity becomes invalid, or on eviction; ``reason``: for the streams."""

    viewer: Viewer
    kube: Kube
    permissions: ReviewedPermissions
    users: int = 0
    streams: int = 0
    left: float = 0.0
    checked: float = 0.0
    over: asyncio.Event = field(default_factory=asyncio.Event)
    reason: str = "login"
    reads: asyncio.Semaphore = field(default_factory=lambda: asyncio.Semaphore(READS_EACH))
    watched: dict[tuple[str, ...], Watched] = field(default_factory=dict)


class ViewerRegistry:
    """All visits of this process. ``connect``: creates a viewer's client; ``lost``: called for an invalid identity.

    ``heartbeats``: of hosts of wasmCloud v2, shared by all viewers, None if no NATS is configured.
    """

    def __init__(  # noqa: PLR0913 (each is another component)
        self,
        connect: Callable[[Viewer], Kube],
        parts: Parts,
        most: int,
        cluster: asyncio.Future[str],
        telemetry: Telemetry,
        *,
        lost: Callable[[str], object],
        heartbeats: Heartbeats | None = None,
        timings: Timings = Timings(),  # noqa: B008 - frozen
    ) -> None:
        self._connect = connect
        self._lost = lost
        self._timings: Final = timings
        self._parts: Final = parts
        self._heartbeats: Final = heartbeats
        self._most: Final = most
        self._pace: Final = Pace(timings.coalesce, JOURNAL_IDS, watch=timings.watch)
        self._visits: dict[str, Visit] = {}
        self._closing: list[Visit] = []
        self._reads = asyncio.Semaphore(READS)
        self._group: asyncio.TaskGroup | None = None
        self._streams = 0
        self._metrics = telemetry.metrics.console_viewers.labels(telemetry.service)
        self._stopping = asyncio.Event()
        self.cluster: Final = cluster
        """The cluster's name on the bus; without a setting, the first permitted viewer resolves it."""

    @property
    def stopping(self) -> asyncio.Event:
        """Set when the process ends, which ends all streams."""
        return self._stopping

    async def run(self) -> None:
        """Run watches, and end unused ones, until cancelled."""
        try:
            async with asyncio.TaskGroup() as group:
                self._group = group
                while True:
                    await asyncio.sleep(self._timings.sweep)
                    await self._sweep(time.monotonic())
        finally:
            for visit in (*self._visits.values(), *self._closing):
                await visit.kube.close()
            self._visits.clear()
            self._closing.clear()

    @asynccontextmanager
    async def visit(self, viewer: Viewer) -> AsyncIterator[Visit]:
        """Yield the visit of a viewer while the block runs; raises RefusedError if there are too many viewers."""
        while (visit := self._here(viewer)) is None:
            if len(self._visits) < self._most:
                visit = self._arrive(viewer)
                break
            await self._evict_visit(viewer.user)
        visit.users += 1
        try:
            yield visit
        finally:
            visit.users -= 1
            visit.left = time.monotonic()

    @asynccontextmanager
    async def reading(self, visit: Visit) -> AsyncIterator[None]:
        """Limit concurrent reads; raises RefusedError if the viewer has too many."""
        if visit.reads.locked():
            raise busy(f"more than {READS_EACH} reads at a time")
        async with visit.reads, self._reads:
            yield

    @asynccontextmanager
    async def streaming(self, visit: Visit) -> AsyncIterator[None]:
        """Limit open streams; raises RefusedError if there are too many."""
        if visit.streams >= STREAMS_EACH:
            raise busy(f"more than {STREAMS_EACH} open streams: close a tab", 10)
        if self._streams >= STREAMS:
            raise busy("too many open pages", 30)
        visit.streams += 1
        self._streams += 1
        try:
            yield
        finally:
            visit.streams -= 1
            self._streams -= 1

    @asynccontextmanager
    async def live_model(self, visit: Visit, namespaces: tuple[str, ...]) -> AsyncIterator[LiveModel]:
        """Yield the live model of these namespaces (none: all) while the block runs, shared by the viewer's tabs."""
        watched = visit.watched.get(namespaces)
        if watched is None or watched.task.done():
            assert self._group is not None, "the registry runs"
            live_model = LiveModel(visit.kube, self._parts, namespaces, self._pace, self._heartbeats)
            _evict_watches_for(live_model, visit)
            task = self._group.create_task(_run(live_model), name="live_model")
            watched = visit.watched[namespaces] = Watched(live_model, task)
        watched.users += 1
        try:
            yield watched.live_model
        finally:
            watched.users -= 1
            watched.left = time.monotonic()

    def dismiss(self, key: str) -> None:
        """End the streams and watches of a viewer after their logout."""
        if (visit := self._visits.get(key)) is not None:
            visit.over.set()

    def _here(self, viewer: Viewer) -> Visit | None:
        """Return the visit of a viewer; one that is over is removed, and ends with its last stream."""
        visit = self._visits.get(viewer.key)
        if visit is None or not visit.over.is_set():
            return visit
        self._closing.append(self._visits.pop(viewer.key))
        return None

    def _arrive(self, viewer: Viewer) -> Visit:
        kube = self._connect(viewer)
        visit = Visit(viewer, kube, ReviewedPermissions(kube, timings=self._timings), checked=time.monotonic())
        kube.describe_error = lambda error: self._log_text(visit, error)
        self._visits[viewer.key] = visit
        self._metrics.set(len(self._visits))
        if not self.cluster.done() and self._group is not None:
            self._group.create_task(self._learn_cluster(kube), name="cluster")
        return visit

    async def _evict_visit(self, user: str) -> None:
        """End the visit that is unused for longest, else one of the user with the most, if they still have more.

        Raises:
            RefusedError: there is none to end.
        """
        idle = [visit for visit in self._visits.values() if not visit.users]
        if idle:
            await self._end(min(idle, key=lambda visit: visit.left))
            return
        most = greedy(user, [visit.viewer.user for visit in self._visits.values()])
        if most is None:
            raise busy(f"the limit of {self._most} viewers is reached", 30)
        visit = next(item for item in self._visits.values() if item.viewer.user == most)
        visit.reason = "again"  # the identity is still valid: the page may reconnect when there is room
        visit.over.set()
        self._closing.append(self._visits.pop(visit.viewer.key))

    async def _learn_cluster(self, kube: Kube) -> None:
        try:
            uid = str((await kube.get(NAMESPACES, "kube-system", metadata=True))["metadata"]["uid"])
        except KubeError:
            return  # the next viewer may have the permission
        if not self.cluster.done():
            self.cluster.set_result(uid[:_UID_SHOWN])

    def _log_text(self, visit: Visit, error: KubeError) -> str:
        """Return the log text of a viewer's error, without their name; an invalid identity ends the visit."""
        if isinstance(error, Unauthorized):
            visit.over.set()
        return f"cannot {allowed_to(error)}: {error.reason}"

    async def _sweep(self, now: float) -> None:
        for visit in [item for item in self._closing if not item.users]:
            self._closing.remove(visit)
            await self._end(visit)
        for visit in list(self._visits.values()):
            if visit.over.is_set():
                self._lost(visit.viewer.key)
                if not visit.users:
                    await self._end(visit)
                continue
            linger = self._timings.linger
            expired = [key for key, item in visit.watched.items() if not item.users and now - item.left > linger]
            for key in expired:
                if not visit.watched[key].users:  # a stream may have started during the await
                    await _stop(visit.watched.pop(key))
            if not visit.users and now - visit.left > linger:
                await self._end(visit)
            elif now - visit.checked > self._timings.recheck:
                visit.checked = now
                assert self._group is not None, "called within the group"
                self._group.create_task(_recheck(visit), name="recheck")

    async def _end(self, visit: Visit) -> None:
        if self._visits.get(visit.viewer.key) is visit:
            del self._visits[visit.viewer.key]
        self._metrics.set(len(self._visits))
        tasks = [watched.task for watched in visit.watched.values()]
        visit.watched.clear()
        for task in tasks:
            task.cancel()
        try:
            if tasks:
                await asyncio.wait(tasks)
        finally:  # the caller may be cancelled meanwhile
            await visit.kube.close()


def _evict_watches_for(live_model: LiveModel, visit: Visit) -> None:
    """End the viewer's watches without a tab, as needed; raises RefusedError if there are still too many watches."""
    for key in [key for key, item in visit.watched.items() if not item.users]:
        if live_model.watches + sum(item.live_model.watches for item in visit.watched.values()) > WATCHES_EACH:
            visit.watched.pop(key).task.cancel()
    if live_model.watches + sum(item.live_model.watches for item in visit.watched.values()) > WATCHES_EACH:
        raise busy("too many namespaces in all tabs: close one", 10)


async def _run(live_model: LiveModel) -> None:
    """Run a live model; a failure ends only this one, and the next stream starts another one."""
    try:
        await live_model.run()
    except Exception:  # noqa: BLE001 - never ends the process
        _log.exception("watches of a viewer failed, restarting with the next stream")


async def _stop(watched: Watched) -> None:
    watched.task.cancel()
    await asyncio.wait({watched.task})


async def _recheck(visit: Visit) -> None:
    try:
        await review_identity(visit.kube)
    except Unauthorized:
        visit.over.set()
    except KubeError as error:
        _log.debug("cannot check the identity of a viewer", reason=error.reason)
