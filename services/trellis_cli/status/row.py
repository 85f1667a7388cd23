"""One row of ``trellis status``. Pure; used by the modules that create rows."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Final

from trellis.read_model.explain.page import Leader

_NAMED: Final = 5
_MOVING: Final = frozenset({"renewed_seconds_ago", "streams"})
"""Fields whose values, which the text has too, are different in each read."""


@dataclass(frozen=True, slots=True)
class Part:
    """One row. ``problem``: the problem and its resolution, "" if there is none; ``data``: JSON fields of the part.

    ``unread``: the permissions without which the row is incomplete, "" if it is complete. The
    account of the viewer lacks them, which is not a problem of the installation.
    """

    name: str
    text: str
    problem: str = ""
    data: dict[str, Any] = field(default_factory=dict)
    unread: str = ""

    @property
    def ok(self) -> bool | None:
        """False with a problem; None if there is none, but not everything was read."""
        return False if self.problem else None if self.unread else True

    def document(self) -> dict[str, Any]:
        """Return the part for JSON: ``ok``, ``problem``, ``unread`` and its own fields."""
        return {"ok": self.ok, "problem": self.problem or None, "unread": self.unread or None} | self.data

    def state(self) -> tuple[object, ...]:
        """Return the part without ages and counts of messages, which change while nothing happens to its objects."""
        moving = _MOVING & self.data.keys()
        data = {name: value for name, value in self.data.items() if name not in moving}
        return self.name, "" if moving else self.text, self.problem, self.unread, data


@dataclass(frozen=True, slots=True)
class Led:
    """The service that manages the objects of a row. ``leader``: "" if there is none, None if unknown.

    ``otherwise``: the effect of a missing leader.
    """

    service: str
    leader: str | None
    otherwise: str


@dataclass(frozen=True, slots=True)
class Unhealthy:
    """The unhealthy objects of a row: ``what`` describes them, ``kind`` is for ``trellis explain``.

    ``causes``: by ``namespace/name``, "" if only the page has the cause.
    """

    what: str
    kind: str
    causes: Mapping[str, str]


def command(kind: str, key: str) -> str:
    """Return the command that explains an object."""
    namespace, _, name = key.rpartition("/")
    return f"trellis explain {kind}/{name}" + (f" -n {namespace}" if namespace else "")


def named(unhealthy: Unhealthy) -> str:
    """Return a sentence with the first unhealthy objects, and the cause of the first."""
    keys = sorted(unhealthy.causes)
    more = f" and {len(keys) - _NAMED} more" if len(keys) > _NAMED else ""
    # Objects with a known cause come first.
    first = min(keys, key=lambda key: (not unhealthy.causes[key], key))
    of = f": {first}" if len(keys) > 1 else ""
    reason = f"{of}: {unhealthy.causes[first]}" if unhealthy.causes[first] else ""
    return f"{unhealthy.what}: {', '.join(keys[:_NAMED])}{more}{reason}: see `{command(unhealthy.kind, first)}`"


def led_part(name: str, text: str, led: Led, unhealthy: Unhealthy, data: dict[str, Any]) -> Part:
    """Return the row of objects of a service with a leader: unhealthy objects and a missing leader are problems.

    ``text`` is "" if the service has no objects; ``data`` get its ``holder`` and the ``causes``.
    """
    problems = []
    if text and led.leader == "":
        problems.append(
            f"no replica leads {led.service}, so {led.otherwise}: start it with `trellis run {led.service}`"
        )
    if unhealthy.causes:
        problems.append(named(unhealthy))
    by = f"; {led.service} led by {led.leader}" if led.leader else ""
    by = f"; leader of {led.service} unknown: this account may not read its Lease" if led.leader is None else by
    data = data | {"holder": led.leader or None, "causes": dict(sorted(unhealthy.causes.items()))}
    return Part(name, (text or "none") + by, "; ".join(problems), data)


def with_leader(part: Part, leader: Leader) -> Part:
    """Return a row with the problem of the Lease of its service."""
    trouble = f"{leader.service}: {leader.trouble}" if leader.trouble else ""
    return replace(part, problem="; ".join(filter(None, (part.problem, trouble))))
