"""The page that explains an object: the first line is the cause, then each step of its chain.

Pure. In: steps from the modules of kinds. Out: health, cause and page as text and as JSON. Called by ``explain`` and
``status``. Invariant: a page has a cause exactly if a step failed; a step that makes further steps fail is named before
its consequences.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from enum import IntEnum
from typing import Any, Final

from trellis.installer_api.redaction import redact_url
from trellis.read_model.health import Health, Verdict

Manifest = Mapping[str, Any]

READY: Final = "ready"
HEALTHY: Final = "Healthy"
"""Reason of a healthy object whose kind has no more specific one."""
NOT_FOUND: Final = "NotFound"
"""Reason of a page whose object does not exist."""
READ_INCOMPLETE: Final = "ReadIncomplete"
"""Reason while the state depends on objects that could not be read."""
_EVENTS_SHOWN: Final = 5
_TIME: Final = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d")
"""A time of Kubernetes without fractions of a second, which some have."""
PULL_FAILED: Final = frozenset(
    {
        "ErrImagePull",
        "ImagePullBackOff",
        "InvalidImageName",
        "ErrImageNeverPull",
        "ImageInspectError",
        "RegistryUnavailable",
        "SignatureValidationFailed",
    }
)
"""Reasons of the kubelet for a container that waits for its image (its package images, and the errors of the CRI)."""


class Rank(IntEnum):
    """Distance of a failed step to the cause: the highest is the cause, of equals the first."""

    ASIDE = 0
    """One of several alternatives: shown, but not a problem by itself."""
    SYMPTOM = 1
    SERVICE = 2
    """The responsible service does not run."""
    CAUSE = 3


@dataclass(frozen=True, slots=True)
class Line:
    """One step of the chain. ``ok`` is None for a neutral step; ``do``: the resolution; ``reason``: CamelCase.

    ``state``: health of the object because of this step; by default Degraded for a cause, Progressing otherwise.
    """

    about: str
    text: str
    ok: bool | None = None
    do: str = ""
    rank: Rank = Rank.SYMPTOM
    reason: str = ""
    state: Health | None = None

    @property
    def trouble(self) -> bool:
        """True if the step is a problem of the object."""
        return self.ok is False and self.rank is not Rank.ASIDE

    @property
    def shown(self) -> str:
        """Text and resolution, a sentence each: both can have colons."""
        return f"{_as_sentence(self.text)} {self.do[:1].upper()}{self.do[1:]}" if self.do else self.text

    @property
    def verdict(self) -> Verdict:
        """Health of the object if this step is the cause."""
        health = self.state or (Health.DEGRADED if self.rank is Rank.CAUSE else Health.PROGRESSING)
        return Verdict(health, self.reason, self.shown)

    def document(self) -> dict[str, object]:
        """Return the line for JSON."""
        return {"about": self.about, "ok": self.ok, "text": self.text, "do": self.do or None}


@dataclass(frozen=True, slots=True)
class Explanation:
    """One object, ``subject``, and its chain. ``wanted``: its predicate if it is healthy.

    ``own``: health as the function of its kind computes it; without it, that of the cause.
    """

    subject: str
    lines: Sequence[Line] = field(default_factory=list)
    wanted: str = READY
    own: Verdict | None = None

    @property
    def cause(self) -> Line | None:
        """The step that is the cause, None if nothing is wrong."""
        return max((line for line in self.lines if line.trouble), key=lambda line: line.rank, default=None)

    @property
    def verdict(self) -> Verdict:
        """Health of the object. A service without a leader does not change it."""
        if self.own is not None:
            return self.own
        return cause.verdict if (cause := self.cause) else Verdict(Health.HEALTHY, HEALTHY)

    @property
    def headline(self) -> str:
        """``SUBJECT is not ready: CAUSE. Do this``; ``SUBJECT is ready, but …`` if only a service is missing.

        A suspended object without a cause is not called ready. Of an object that does not exist only that is stated,
        as in kubectl: ``Shim "spin" not found. Do this``.
        """
        cause, verdict = self.cause, self.verdict
        state = self.wanted
        if verdict.health is Health.SUSPENDED:
            state = f"suspended: {verdict.message}".removesuffix(": ")
        if cause is None:
            return f"{self.subject} is {state}"
        if cause.rank is Rank.SERVICE and verdict.health in {Health.HEALTHY, Health.SUSPENDED}:
            return f"{self.subject} is {state}, but {cause.shown}"
        if cause.reason == NOT_FOUND:
            return cause.shown
        text = f"{self.subject} is not {self.wanted}: {cause.shown}"
        return text if cause.do else text.removesuffix(".")

    def document(self) -> dict[str, object]:
        """Return the page for JSON."""
        cause = self.cause
        return {
            "ok": cause is None,
            "health": self.verdict.health.value,
            "reason": self.verdict.reason or None,
            "subject": self.subject,
            "cause": cause.text if cause else None,
            "do": (cause.do or None) if cause else None,
            "headline": self.headline,
            "lines": [line.document() for line in self.lines],
        }


@dataclass(frozen=True, slots=True)
class Leader:
    """Leader of a service: "" for none, None if this account cannot read it. ``otherwise``: the consequence of none.

    ``trouble``: problem of a Lease that is held.
    """

    service: str
    holder: str | None
    otherwise: str
    trouble: str = ""

    def line(self) -> Line:
        """Return the step."""
        if self.holder is None:
            return Line(self.service, "its leader is unknown: this account cannot read its Lease")
        if self.holder and not self.trouble:
            return Line(self.service, f"led by {self.holder}", ok=True)
        reason = "LeaderMissing"
        unled = ", so ".join(filter(None, (f"no replica leads {self.service}", self.otherwise)))
        text = f"led by {self.holder}" if self.holder else unled
        if self.trouble:
            return Line(self.service, f"{text}; {self.trouble}", ok=False, rank=Rank.SERVICE, reason=reason)
        return Line(self.service, text, False, f"start it with `trellis run {self.service}`", Rank.SERVICE, reason)


def condition(status: Manifest, kind: str) -> Manifest:
    """Return a condition of a status, {} if there is none."""
    return next((item for item in status.get("conditions") or () if item.get("type") == kind), {})


def reason_and_message(found: Manifest) -> str:
    """Return ``Reason: message`` of a condition, an Event or a container's state, without credentials in URLs."""
    return redact_url(": ".join(str(found[part]).strip() for part in ("reason", "message") if found.get(part)))


def warnings_of(events: Iterable[Manifest], *uids: str) -> list[Manifest]:
    """Return the warnings about objects of these uids, newest first, without repetitions."""
    there = [
        event
        for event in events
        if event.get("type") == "Warning" and (event.get("involvedObject") or {}).get("uid") in uids and uids
    ]
    newest = sorted(there, key=time_of, reverse=True)
    return list({reason_and_message(item): item for item in reversed(newest)}.values())[::-1]


def events_since(events: Iterable[Manifest], created: Manifest | None) -> Iterator[Manifest]:
    """Yield the Events about an object, or repeated after its creation; None: the object does not exist.

    An Event stays for an hour, and is repeated every minute while its cause persists: an older one is about a former
    object. One with a related object is about that one, without a comparison of clocks.
    """
    metadata = created["metadata"] if created is not None else {}
    begin = _TIME.match(str(metadata.get("creationTimestamp") or ""))
    for event in events:
        if related := event.get("related"):
            if related.get("uid") == metadata.get("uid"):
                yield event
            continue
        last = _TIME.match(time_of(event))
        if begin is None or last is None or last[0] >= begin[0]:
            yield event


def event_lines(events: Iterable[Manifest]) -> Iterator[Line]:
    """Yield a few warnings; they report the past, and do not indicate a problem by themselves."""
    for event in [*events][:_EVENTS_SHOWN]:
        yield Line("event", reason_and_message(event))


def time_of(event: Manifest) -> str:
    """Return when an Event was last observed, "" if it has no time."""
    series: Manifest = event.get("series") or {}
    times = (series.get("lastObservedTime"), event.get("lastTimestamp"), event.get("eventTime"))
    return next((str(time) for time in times if time), "")


def _as_sentence(text: str) -> str:
    text = text.rstrip()
    return text if text.endswith((".", "!", "?")) else f"{text}."
