"""Records Kubernetes Events, which ``kubectl describe`` shows.

In: an object, a reason, a message. Out: one core/v1 Event per distinct (UID, reason, message), with a count of
repetitions; many that differ in the message only are combined. Called by services. Invariants: recording never raises
and is rate-limited for any messages; Normal Events never compete with the changes that they report, also for many
objects at once; Events of a Node are in ``default``; times are those of the clock of the API server. Source: the
core/v1 Event; kubectl finds them by name and UID in ``involvedObject``.
"""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
import time
from collections import deque
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from typing import Final, Literal

from trellis.crds.conditions import shortened
from trellis.kube.client import Kube
from trellis.kube.errors import AlreadyExists, Conflict, KubeError, NotFound, NotLeading
from trellis.kube.resources import EVENTS, Manifest
from trellis.kube.similar_events import SimilarEvents
from trellis.kube.timings import EventTimings
from trellis.telemetry import get_logger

log = get_logger(__name__)

_MESSAGE_MAX: Final = 1024
_NAME_PART_MAX: Final = 200
_REMEMBERED: Final = 4096
_CLUSTER_SCOPED_NAMESPACE: Final = "default"
_COMBINED: Final = "(combined from similar events): "
"""Prefix of the message of a combined Event, as in client-go."""


@dataclass(frozen=True, slots=True)
class ObjectRef:
    """Reference to the object of an Event; ``namespace`` None for cluster-scoped kinds."""

    api_version: str
    kind: str
    name: str
    uid: str
    namespace: str | None = None

    @classmethod
    def of(cls, manifest: Manifest) -> ObjectRef:
        """Return the reference to an object that was read."""
        metadata = manifest["metadata"]
        return cls(
            manifest["apiVersion"], manifest["kind"], metadata["name"], metadata["uid"], metadata.get("namespace")
        )


@dataclass(frozen=True, slots=True)
class _Occurrence:
    """Identity and content of an Event."""

    regarding: ObjectRef
    type: str
    reason: str
    message: str
    component: str
    related: ObjectRef | None = None
    annotations: Mapping[str, str] = field(default_factory=dict)
    combined: bool = False
    """Combined Event for all occurrences of its reason, with the message of the last one."""

    @property
    def name(self) -> str:
        """``<object>.<hash over uid, reason and message>``: equal for every repetition, in every process."""
        identity = f"{self.regarding.uid}\0{self.reason}\0{_COMBINED if self.combined else self.message}"
        digest = hashlib.sha256(identity.encode()).hexdigest()[:16]
        return f"{self.regarding.name[:_NAME_PART_MAX].rstrip('.-')}.{digest}"

    @property
    def namespace(self) -> str:
        """The object's namespace, ``default`` for cluster-scoped objects, as the server requires."""
        return self.regarding.namespace or _CLUSTER_SCOPED_NAMESPACE

    @property
    def identity(self) -> str:
        """Identity of repetitions: an Event with another related object or annotations is written immediately."""
        related = self.related.uid if self.related is not None else ""
        return "\0".join((self.name, related, *sorted(self.annotations.values())))


class EventRecorder:
    """Recorder of Events of a component, for example ``trellis.dev/provisioner``."""

    def __init__(
        self,
        kube: Kube,
        *,
        component: str,
        clock: Callable[[], float] = time.monotonic,
        timings: EventTimings | None = None,
    ) -> None:
        self._kube = kube
        self._component = component
        self._clock = clock
        self._timings = timings or kube.timings.events
        self._written: dict[str, float] = {}
        self._similar = SimilarEvents(self._timings)
        self._waiting: deque[tuple[_Occurrence, str]] = deque()
        self._writer: asyncio.Task[None] | None = None

    @property
    def component(self) -> str:
        """Value of ``reportingComponent`` in its Events."""
        return self._component

    async def record(
        self,
        *,
        regarding: ObjectRef,
        type: Literal["Normal", "Warning"],  # noqa: A002 - the field's name in an Event
        reason: str,
        message: str,
        related: ObjectRef | None = None,
        annotations: Mapping[str, str] | None = None,
    ) -> None:
        """Record an Event; a failure is only logged.

        Normal Events are written in the background, one after another with a pause (``EventTimings.pause``): they do
        not delay the changes that they report, and are lost if the process or its leadership ends before. At most 4,096
        wait; the next ones are dropped.

        Args:
            regarding: the object.
            type: ``Normal`` or ``Warning``.
            reason: CamelCase, at most 128 characters.
            message: for users; shortened to 1,024 characters.
            related: another related object; a repetition replaces it.
            annotations: of the Event, for programs that read it; a repetition replaces them.
        """
        occurrence = _Occurrence(
            regarding, type, reason, shortened(message, _MESSAGE_MAX), self._component, related, annotations or {}
        )
        now = self._clock()
        if self._similar.too_many((regarding.uid, type, reason), occurrence.name, now):
            combined = shortened(f"{_COMBINED}{message}", _MESSAGE_MAX)
            occurrence = replace(occurrence, message=combined, combined=True)
        if self._is_repeat(occurrence.identity, now):
            return
        if not self._similar.may_write(regarding.uid, now):
            log.debug(
                "Kubernetes Event dropped by the rate limit", kind=regarding.kind, name=regarding.name, reason=reason
            )
            return
        occurred_at = datetime.fromtimestamp(self._kube.now(), UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
        if type == "Warning":
            await self._try(occurrence, occurred_at)
        elif len(self._waiting) >= _REMEMBERED:
            self._written.pop(occurrence.identity, None)
            log.debug(
                "Kubernetes Event dropped: too many wait", kind=regarding.kind, name=regarding.name, reason=reason
            )
        else:
            self._waiting.append((occurrence, occurred_at))
            if self._writer is None or self._writer.done():
                self._writer = asyncio.create_task(self._write_waiting())

    async def _write_waiting(self) -> None:
        while self._waiting:
            await self._try(*self._waiting.popleft())
            await asyncio.sleep(self._timings.pause)

    async def _try(self, occurrence: _Occurrence, occurred_at: str) -> None:
        regarding = occurrence.regarding
        try:
            await self._write(occurrence, occurred_at)
        except (KubeError, NotLeading) as error:
            self._written.pop(occurrence.identity, None)
            log.warning(
                "Kubernetes Event not recorded",
                kind=regarding.kind,
                name=regarding.name,
                reason=occurrence.reason,
                error=str(error),
            )
            if isinstance(error, NotLeading):
                self._waiting.clear()

    def _is_repeat(self, identity: str, now: float) -> bool:
        repeat = self._timings.repeat
        if now - self._written.get(identity, -repeat) < repeat:
            return True
        if len(self._written) >= _REMEMBERED:
            self._written = {key: at for key, at in self._written.items() if now - at < repeat}
        self._written[identity] = now
        return False

    async def _write(self, occurrence: _Occurrence, occurred_at: str) -> None:
        try:
            await self._kube.create(EVENTS, make_event(occurrence, occurred_at))
        except AlreadyExists:
            await self._count_up(occurrence, occurred_at)

    async def _count_up(self, occurrence: _Occurrence, occurred_at: str) -> None:
        try:
            found = await self._kube.get(EVENTS, occurrence.name, occurrence.namespace)
        except NotFound:
            return  # it expired in the meantime; the next repetition creates a new one
        read = {name: found["metadata"][name] for name in ("uid", "resourceVersion")}
        metadata = read | ({"annotations": dict(occurrence.annotations)} if occurrence.annotations else {})
        patch: Manifest = {
            "metadata": metadata,
            "count": int(found.get("count") or 1) + 1,
            "lastTimestamp": occurred_at,
        }
        if occurrence.combined:
            patch["message"] = occurrence.message
        if occurrence.related is not None:
            patch["related"] = _reference(occurrence.related)
        # After a conflict, a concurrent increment counts for this repetition too.
        with contextlib.suppress(Conflict):
            await self._kube.merge_patch(
                EVENTS, occurrence.name, patch, occurrence.namespace, field_manager=occurrence.component
            )


def make_event(occurrence: _Occurrence, occurred_at: str) -> Manifest:
    """Return the Event of a first occurrence at a time (RFC 3339, whole seconds)."""
    related = {"related": _reference(occurrence.related)} if occurrence.related is not None else {}
    annotations = {"annotations": dict(occurrence.annotations)} if occurrence.annotations else {}
    return {
        "apiVersion": EVENTS.api_version,
        "kind": EVENTS.kind,
        "metadata": {"name": occurrence.name, "namespace": occurrence.namespace, **annotations},
        "involvedObject": _reference(occurrence.regarding),
        **related,
        "type": occurrence.type,
        "reason": occurrence.reason,
        "message": occurrence.message,
        "source": {"component": occurrence.component},
        "reportingComponent": occurrence.component,
        "firstTimestamp": occurred_at,
        "lastTimestamp": occurred_at,
        "count": 1,
    }


def _reference(ref: ObjectRef) -> Manifest:
    found = {"apiVersion": ref.api_version, "kind": ref.kind, "name": ref.name, "uid": ref.uid}
    return found | ({"namespace": ref.namespace} if ref.namespace else {})
