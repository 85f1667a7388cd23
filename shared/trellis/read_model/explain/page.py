"""The page that explains an object: its first line is the answer, then the whole chain, each step well or not.

Pure. In: steps, as the modules of kinds find them. Out: the answer, and the page for people and for JSON. Called by
``explain`` and, for the same causes, by ``status``. Invariant: there is a cause exactly if a step is not well; what
makes other steps fail is named before what only follows from it.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from enum import IntEnum
from typing import Any, Final

Manifest = Mapping[str, Any]

READY: Final = "ready"
_EVENTS_SHOWN: Final = 5
_TIME: Final = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d")
"""A time of Kubernetes to the second: some have fractions."""
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
"""Why a container waits for its image, in the kubelet's words (its package images, and the errors of the CRI)."""


class Rank(IntEnum):
    """How near a step that is not well is to the cause: of several the highest is the answer, of equals the first."""

    ASIDE = 0
    """One of several that may be so: it is shown, and is no trouble by itself."""
    SYMPTOM = 1
    SERVICE = 2
    """The service that would see to it does not run."""
    CAUSE = 3


@dataclass(frozen=True, slots=True)
class Line:
    """One step of the chain. ``well`` is None for what is neither good nor bad; ``do``: what to do about it."""

    about: str
    text: str
    well: bool | None = None
    do: str = ""
    rank: Rank = Rank.SYMPTOM

    @property
    def trouble(self) -> bool:
        """Whether something is wrong because of this step."""
        return self.well is False and self.rank is not Rank.ASIDE

    @property
    def shown(self) -> str:
        """What happened and what to do, in one sentence."""
        return f"{self.text}: {self.do}" if self.do else self.text

    def document(self) -> dict[str, object]:
        """Return the line for JSON."""
        return {"about": self.about, "ok": self.well, "text": self.text, "do": self.do or None}


@dataclass(frozen=True, slots=True)
class Explanation:
    """One object, ``subject``, and its chain. ``wanted``: what it is if all is well."""

    subject: str
    lines: Sequence[Line] = field(default_factory=list)
    wanted: str = READY

    @property
    def cause(self) -> Line | None:
        """The step that is the answer, None if nothing is wrong."""
        return max((line for line in self.lines if line.trouble), key=lambda line: line.rank, default=None)

    @property
    def headline(self) -> str:
        """``SUBJECT is not ready: CAUSE. DO THIS``."""
        cause = self.cause
        if cause is None:
            return f"{self.subject} is {self.wanted}"
        told = f"{self.subject} is not {self.wanted}: {_ended(cause.text)}"
        return f"{told} {cause.do[:1].upper()}{cause.do[1:]}" if cause.do else told.removesuffix(".")

    def document(self) -> dict[str, object]:
        """Return the page for JSON."""
        cause = self.cause
        return {
            "ok": cause is None,
            "subject": self.subject,
            "cause": cause.text if cause else None,
            "do": (cause.do or None) if cause else None,
            "headline": self.headline,
            "lines": [line.document() for line in self.lines],
        }


@dataclass(frozen=True, slots=True)
class Leader:
    """Who leads a service: "" for nobody, None if this account may not know. ``otherwise``: what then is.

    ``trouble``: what is wrong with a Lease that is held.
    """

    service: str
    holder: str | None
    otherwise: str
    trouble: str = ""

    def line(self) -> Line:
        """Return the step."""
        if self.holder is None:
            return Line(self.service, "who leads it is not known: this account may not read its Lease")
        if self.holder and not self.trouble:
            return Line(self.service, f"led by {self.holder}", well=True)
        text = f"led by {self.holder}" if self.holder else f"nobody leads {self.service}, so {self.otherwise}"
        if self.trouble:
            return Line(self.service, f"{text}; {self.trouble}", well=False, rank=Rank.SERVICE)
        return Line(self.service, text, False, f"start it with `trellis run {self.service}`", Rank.SERVICE)


def condition(status: Manifest, kind: str) -> Manifest:
    """Return a condition of a status, {} if there is none."""
    return next((one for one in status.get("conditions") or () if one.get("type") == kind), {})


def words(said: Manifest) -> str:
    """Return ``Reason: message`` of a condition, an Event or a container's state."""
    return ": ".join(str(said[part]).strip() for part in ("reason", "message") if said.get(part))


def warnings_of(events: Iterable[Manifest], *uids: str) -> list[Manifest]:
    """Return the warnings about objects of these uids, the newest first, each of its words once."""
    there = [
        one
        for one in events
        if one.get("type") == "Warning" and (one.get("involvedObject") or {}).get("uid") in uids and uids
    ]
    newest = sorted(there, key=_when, reverse=True)
    return list({words(one): one for one in reversed(newest)}.values())[::-1]


def told_since(events: Iterable[Manifest], created: Manifest | None) -> Iterator[Manifest]:
    """Yield the Events that are about an object, or that were repeated after it was created; None: there is no object.

    An Event stays for an hour, and is repeated every minute while it holds: an older one is about a former object. One
    that names a related object is about that one, whatever the clocks of two machines say.
    """
    metadata = created["metadata"] if created is not None else {}
    begin = _TIME.match(str(metadata.get("creationTimestamp") or ""))
    for one in events:
        if related := one.get("related"):
            if related.get("uid") == metadata.get("uid"):
                yield one
            continue
        last = _TIME.match(_when(one))
        if begin is None or last is None or last[0] >= begin[0]:
            yield one


def event_lines(events: Iterable[Manifest]) -> Iterator[Line]:
    """Yield what a few warnings say; they tell of what was, and are no trouble by themselves."""
    for one in [*events][:_EVENTS_SHOWN]:
        yield Line("event", words(one))


def _when(event: Manifest) -> str:
    series: Manifest = event.get("series") or {}
    times = (series.get("lastObservedTime"), event.get("lastTimestamp"), event.get("eventTime"))
    return next((str(time) for time in times if time), "")


def _ended(text: str) -> str:
    text = text.rstrip()
    return text if text.endswith((".", "!", "?")) else f"{text}."
