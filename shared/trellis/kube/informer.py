"""An informer: keeps a projection of the objects of a kind up to date by list and watch.

In: a selection and ``project``, which converts a raw object to a small frozen value. Out: ``objects``, and a call of
``on_change`` per real difference. Called by services. Invariants: it cannot stall (every wait is bounded, a watch that
ends early continues only if the history of the server is the known one, a full list every ``relist_seconds`` corrects
missed events); an outage causes no hot loop; an object counts as deleted only after a DELETED event or a complete list
without it that is not older than the object. Source: list and watch of the Kubernetes API concepts, "Efficient
detection of changes".
"""

from __future__ import annotations

import asyncio
import contextlib
import random
import time
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from functools import partial
from typing import TYPE_CHECKING, Generic, TypeVar

from trellis.crds.conditions import State, state_of
from trellis.kube.changes import Change, ChangeKind
from trellis.kube.client import Kube
from trellis.kube.errors import Forbidden, Gone, KubeError, NotFound
from trellis.kube.reader import Selection, WatchEvent
from trellis.kube.resources import Manifest, Resource, key_of, older
from trellis.kube.watch_timings import WatchTimings
from trellis.limits.backoff import Attempts, Backoff
from trellis.telemetry import get_logger

if TYPE_CHECKING:
    from trellis.kube.shapes import Shape

__all__ = ["Change", "ChangeKind", "Informer"]

log = get_logger(__name__)
T = TypeVar("T")
V = TypeVar("V")
_PAGE = 200
"""Objects per page: listing 1,000 Nodes of 6.7 kB has a peak of 9 MiB, with pages of 500 it is 19 MiB."""
_SAME_VERSION_AGAIN = {401, 429}
"""Statuses of a refused watch that do not depend on its resource version."""
_WITHOUT = "dependent state is unknown and counts as missing"
"""Readiness note for a ``refusable`` kind, for example of other operators."""
_FRUITLESS_MOST = 3
"""Consecutive watches that ended early without an event or bookmark, before a list checks for missed events."""


@dataclass(eq=False)
class Informer(Generic[T]):
    """One list and watch. ``objects`` is keyed ``namespace/name``, or ``name`` for cluster-scoped kinds.

    Only informers write to ``objects``: one, or one for each of several namespaces.
    ``synced`` is set by the first complete list, ``answered`` by the first answer of the server. ``project``,
    ``on_change`` and ``on_refresh`` are called in the event loop and must not block. An exception from one is logged
    with the key and skips only the update of that object. An object for which ``project`` returns None is not kept, as
    if it did not exist: for kinds whose relevant objects the API server cannot select. ``on_refresh`` is called with an
    object that replaces an equal one in ``objects``: only its resource version changed, which the next write requires.

    ``optional``: the kind does not have to be served. While the API server answers 404 for it, its objects are
    **unknown**, not absent: ``known`` is False and nothing may be deleted because an object is missing. The informer
    retries every ``absent`` seconds. Cached objects are kept: only a list or an event removes one. ``needed`` returns
    why the kind must be readable (a label, an annotation or a finalizer refers to its objects), or None; the service is
    not ready with that reason while the kind is not served. ``on_known`` is called when the kind can be listed after an
    interruption: an empty list changes no object, so ``on_change`` is not called for it.

    ``refusable``: the account may lack the permission to read the kind. There are no objects and no error then, and
    the informer retries every ``refused`` seconds. Both states are logged once; ``lacking`` is the error while they
    last; for a missing permission, readiness has a note. ``failing``: error of an interruption, None otherwise.
    ``shape``: the decoded keys; ``project`` reads no other key.
    ``states``: export the number of objects by the state that their conditions have, for services that write these.
    ``quiet``: log only at level debug, for informers of viewers.
    """

    kube: Kube
    resource: Resource
    project: Callable[[Manifest], T | None]
    on_change: Callable[[Change[T]], None]
    namespace: str | None = None
    label_selector: str | None = None
    field_selector: str | None = None
    shape: Shape | None = None
    on_refresh: Callable[[T], None] | None = None
    optional: bool = False
    refusable: bool = False
    states: bool = False
    quiet: bool = False
    needed: Callable[[], str | None] | None = None
    on_known: Callable[[], None] | None = None
    timings: WatchTimings | None = None
    objects: dict[str, T] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self._timings = self.timings or self.kube.timings.watch
        self.synced = asyncio.Event()
        self.answered = asyncio.Event()
        self._selection = Selection(self.resource, self.namespace, self.label_selector, self.field_selector, self.shape)
        self._what = f"watch {self._selection}"
        self._version = ""
        self._states: dict[str, State] = {}
        self._witness: Manifest | None = None
        """Metadata of the last changed object: a server that has it also has all earlier changes."""
        self._written: dict[str, str] = {}
        """The versions of written objects that neither the watch nor a list has reached: what these report is older."""
        self._fruitless = 0
        self._attempts = Attempts(Backoff(self._timings.backoff_first, self._timings.backoff_most))
        self._received_at = self._progressed = time.monotonic()
        self.failing: KubeError | None = None
        self.lacking: KubeError | None = None
        self._refusal: KubeError | None = None
        """A 403 or 404 of a required kind: the cached objects are incomplete."""
        self._warn = log.debug if self.quiet else log.warning

    @property
    def known(self) -> bool:
        """True if ``objects`` is complete; False before the first list, and while reads are refused."""
        return self.synced.is_set() and self.lacking is None and self._refusal is None

    def staleness(self) -> float:
        """Return the seconds since the last event, bookmark or complete list."""
        return time.monotonic() - self._received_at

    def outdated(self, seconds: float) -> bool:
        """Return whether the kind cannot be read, and the last event is older than ``seconds``."""
        return self.failing is not None and self.staleness() > seconds

    def wrote(self, manifest: Manifest, former: T | None) -> None:
        """Cache the result of a write, unless ``former``, from which the write was computed, is no longer cached.

        ``former`` is None for a created object. A version that the watch already reported is ignored: the object may
        have been deleted since, without a further event to remove it.
        Without this, the next run would decide on the state before its own write, and get a conflict.
        """
        version = manifest["metadata"]["resourceVersion"]
        reported = version == self._version or older(version, self._version)
        if not reported and self.objects.get(key := key_of(manifest)) is former:
            self._written[key] = version
            self._upsert(manifest)

    async def run(self) -> None:
        """List and watch until cancelled; raises no other exception."""
        telemetry = self.kube.telemetry
        labels = (telemetry.service, self.resource.plural, str(self._selection))
        forgets = [telemetry.metrics.watch_staleness(*labels, self.staleness)]
        if self.states:
            reads = {state.value: partial(self._count, state) for state in State}
            forgets.append(telemetry.metrics.object_states(labels[0], labels[1:], reads))
        self._progressed = time.monotonic()
        self.kube.health.expect(self._what)
        self.kube.health.add_liveness(self._what, self._stall_reason)
        try:
            async with asyncio.TaskGroup() as group:
                group.create_task(self._keep_contact(), name=f"probe for {self._what}")
                while True:
                    await self._list_then_watch()
        finally:
            for forget in forgets:
                forget()
            self.kube.health.forget(self._what)

    def _count(self, state: State) -> float:
        return sum(found is state for found in self._states.values())

    async def _keep_contact(self) -> None:
        """Probe the API server if the process sends no other calls: liveness depends on whether the server answers.

        The probe of one informer, or any other call, counts for the whole process.
        """
        while True:
            await asyncio.sleep(max(self._timings.probe - self.kube.since_last_call(), 0.1 * self._timings.probe))
            if self.kube.since_last_call() >= self._timings.probe:
                with contextlib.suppress(KubeError):  # the caller records the result
                    await self.kube.probe()

    async def _list_then_watch(self) -> None:
        """Update ``objects`` by a list, then by watches until the next list is due."""
        try:
            await self._list()
        except KubeError as error:
            if not await self._done_without(error):
                await self._failed(error)
            return
        relist_at = asyncio.get_running_loop().time() + self._timings.relist * random.uniform(0.9, 1.1)  # noqa: S311 - spreads load
        try:
            async with asyncio.timeout_at(relist_at):
                while await self._watch_once() or await self._same_history():
                    pass
            log.info("watch ended early, starting a full list", resource=self.resource.plural)
        except TimeoutError:
            log.debug("periodic full list", resource=self.resource.plural)
        except Gone as error:
            log.info("watch expired, starting a full list", resource=self.resource.plural, error=error.message)
            # With a delay: a server that answers every watch like this would cause a hot loop of lists.
            await asyncio.sleep(self._attempts.next())
        except KubeError as error:
            if not await self._done_without(error):
                await self._failed(error)

    async def _done_without(self, error: KubeError) -> bool:
        """Return whether the refused kind is optional for this informer; wait until the next attempt."""
        if isinstance(error, NotFound) and self.optional and not self.objects:
            wait = self._timings.absent
        elif isinstance(error, Forbidden) and self.refusable:
            wait = self._timings.refused
        else:
            return False
        if self.lacking is None:
            self._warn(
                "object kind cannot be read, continuing without it",
                resource=self.resource.plural,
                error=self.kube.describe_error(error),
            )
        self.lacking = error
        self._recovered()
        if isinstance(error, Forbidden) and not self.quiet:
            self.kube.health.note(self._what, f"{self.kube.describe_error(error)}; {_WITHOUT}")
        if self.needed is not None and (reason := self.needed()) is not None:
            self.kube.health.not_ready(self._what, f"{self.kube.describe_error(error)}; {reason}")
        await asyncio.sleep(wait)
        return True

    async def _list(self) -> None:
        seen: set[str] = set()
        self._written.clear()  # the list has the most recent state
        version, witness = "", None
        async for page in self.kube.pages(self._selection, limit=_PAGE):
            if page.first:
                seen.clear()
                witness = None
            for manifest in page.items:
                witness = _newer(witness, manifest)
                key = key_of(manifest)
                if not self._outdated(key, manifest["metadata"]["resourceVersion"]):
                    self._upsert(manifest)
                if key in self.objects:
                    seen.add(key)
            version = page.resource_version
            self._progressed = time.monotonic()
        place = f"{self.namespace}/" if self.namespace else ""
        for key in [key for key in self.objects if key not in seen and key.startswith(place)]:
            if not self._outdated(key, version):
                self._remove(key)
        self._version, self._witness, self._fruitless = version, witness, 0
        lacked = self.lacking is not None or self._refusal is not None
        self.lacking = self._refusal = None
        self.kube.health.note(self._what, "")
        self._recovered()
        if lacked and self.on_known is not None:
            self.on_known()

    async def _watch_once(self) -> bool:
        """Run a watch, and wait afterwards if it was short; return whether it lasted for its full time."""
        began = time.monotonic()
        opened = cut = False
        seconds = random.randint(*self._timings.watch)  # noqa: S311 - spreads load, guards no secret
        try:
            async with self.kube.watch(
                self._selection, self._version, seconds=seconds, idle_seconds=self._timings.idle
            ) as events:
                opened = True
                self._progressed = time.monotonic()
                self._announce_recovery()
                async for event in events:
                    self._take(event)
        except Gone:
            raise
        except KubeError as error:
            if not opened:
                await self._refused(error)
                return False
            log.debug("watch disconnected", resource=self.resource.plural, error=str(error))
            cut = True
            if time.monotonic() - self._progressed >= self._timings.idle:
                self._witness = None  # idle without a bookmark: events may have been missed
        if time.monotonic() - began >= self._timings.lived:
            self._attempts.reset()
        await asyncio.sleep(self._attempts.next())
        if not cut and time.monotonic() - began >= seconds - self._timings.early:
            return True
        self._fruitless += 1
        if self._fruitless >= _FRUITLESS_MOST:
            self._witness = None  # a proxy that does not support streams ends all of them: events may be missed
        return False

    async def _same_history(self) -> bool:
        """Return whether the API server still has the most recent change that this informer received.

        If etcd was restored from a backup, the server accepts a watch from a version newer than its own, without
        events, and later assigns the same versions to other changes. Then a list is required.

        Raises:
            KubeError: the API server did not answer.
        """
        witness = self._witness
        if witness is None:
            return False
        fields = [f"metadata.{field}={witness[field]}" for field in ("name", "namespace") if witness.get(field)]
        selector = ",".join([*filter(None, [self.field_selector]), *fields])
        found = await self.kube.collect(replace(self._selection, field_selector=selector))
        # Compare all decoded metadata: after a restore, another object of this name, or another change, can have the
        # same version.
        same = [item["metadata"] for item in found.items] == [witness]
        return same and not older(found.resource_version, self._version)

    def _take(self, event: WatchEvent) -> None:
        self._received_at = self._progressed = time.monotonic()
        self._fruitless = 0
        self._version = event.object["metadata"]["resourceVersion"]
        if event.type == "BOOKMARK":
            return
        self._attempts.reset()
        self._witness = None if event.type == "DELETED" else _newer(None, event.object)
        if self._outdated(key := key_of(event.object), self._version):
            return
        if event.type == "DELETED":
            self._remove(key)
        elif event.type in {"ADDED", "MODIFIED"}:
            self._upsert(event.object)

    def _outdated(self, key: str, version: str) -> bool:
        """Return whether a version is older than the cached result of a write, which the watch reports later."""
        if older(version, self._written.get(key, "")):
            return True
        self._written.pop(key, None)
        return False

    def _upsert(self, manifest: Manifest) -> None:
        key = key_of(manifest)
        try:
            new = self.project(manifest)
        except Exception:
            log.exception("object cannot be projected", resource=self.resource.plural, key=key)
            return
        if new is None:
            self._remove(key)
            return
        if self.states:
            self._states[key] = state_of((manifest.get("status") or {}).get("conditions") or ())
        old = self.objects.get(key)
        self.objects[key] = new
        if old is None or old != new:
            kind = ChangeKind.ADDED if old is None else ChangeKind.MODIFIED
            self._notify(self.on_change, Change(kind, key, old, new), key)
        elif self.on_refresh is not None:
            self._notify(self.on_refresh, new, key)

    def _remove(self, key: str) -> None:
        self._states.pop(key, None)
        old = self.objects.pop(key, None)
        if old is not None:
            self._notify(self.on_change, Change(ChangeKind.DELETED, key, old, None), key)

    def _notify(self, callback: Callable[[V], None], change: V, key: str) -> None:
        try:
            callback(change)
        except Exception:
            log.exception("change handler failed", resource=self.resource.plural, key=key)

    async def _refused(self, error: KubeError) -> None:
        """Wait if the refusal does not depend on the resource version: the same watch can then be retried.

        Raise any other error, because a list is required after an outage.
        """
        if error.status not in _SAME_VERSION_AGAIN:
            raise error
        await self._failed(error)

    async def _failed(self, error: KubeError) -> None:
        """Log an interruption once, and wait until the next attempt."""
        if error.status:
            self._progressed = time.monotonic()  # the server answered: a restart would not remove the refusal
            self.answered.set()
        if isinstance(error, Forbidden | NotFound):
            self._refusal = error
        text = self.kube.describe_error(error)
        self.kube.health.not_ready(self._what, text)
        if self.failing is None:
            self._warn("watch interrupted, retrying", resource=self.resource.plural, error=text)
        self.failing = error
        # Add the backoff to Retry-After, so that clients do not retry at the same time.
        await asyncio.sleep((error.retry_after or 0.0) + self._attempts.next())

    def _recovered(self) -> None:
        """Record a complete list, or that none is required."""
        self.synced.set()
        self.answered.set()
        self._received_at = self._progressed = time.monotonic()
        self._announce_recovery()

    def _announce_recovery(self) -> None:
        self.kube.health.ready(self._what)
        if self.failing is not None:
            log.info("watch recovered", resource=self.resource.plural)
        self.failing = None

    def _stall_reason(self) -> str | None:
        """Return the liveness error: no progress although the API server answers other calls; None in an outage."""
        silence = time.monotonic() - self._progressed
        if silence < self._timings.idle + self._timings.stalled_after:
            return None
        if self.kube.answering_for() < self._timings.stalled_after:
            return None
        return f"no progress for {silence:.0f} s although {self.kube.server} answers"


def _newer(witness: Manifest | None, manifest: Manifest) -> Manifest:
    """Return the metadata of the object that changed last."""
    metadata: Manifest = manifest["metadata"]
    if witness is not None and older(metadata["resourceVersion"], witness["resourceVersion"]):
        return witness
    return metadata
