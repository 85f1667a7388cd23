"""Knows when what was allowed about Secrets, and judges each answer that was given meanwhile.

Pure. In: steps of users and their acceptance by the API server, with times; answers. Out: messages about forbidden
answers. Called by ``secret_side``. Invariant: an answer may be permitted from the request of its permission until the
end of that was accepted and can have reached the service.
"""

from __future__ import annotations

import math
from collections import defaultdict
from dataclasses import dataclass, field
from typing import Final

from chaos.secret_work import Act
from chaos.steps import Step

DECIDED_SECONDS: Final = 5.0
"""The API server decides about a right and a value; it learns of them from its own storage."""
GRANT_SECONDS: Final = 90.0
"""The documentation's word for a grant whose end was said over a connection that was cut in silence."""

Triple = tuple[str, str, str]


@dataclass(frozen=True, slots=True)
class Answer:
    """A value that was given. ``requested``, ``answered``: times, in the seconds of the steps."""

    account: str
    secret: str
    value: str
    requested: float
    answered: float


@dataclass
class Witness:
    """When each fact held, as far as anybody can know."""

    _times: dict[Triple, list[list[float]]] = field(default_factory=lambda: defaultdict(list))

    def requested_for(self, step: Step, now: float) -> None:
        """A step begins to be carried out: what it gives may hold from now on."""
        if (event := _given(step)) is not None:
            self._times[event].append([now, math.inf])

    def accepted(self, step: Step, now: float) -> None:
        """Record that the API server accepted a step: a permission that it ends does not hold from now on."""
        new = _given(step)
        for event, times in self._times.items():
            if event != new and _ends(step, event):
                for time in times:
                    time[1] = min(time[1], now)

    def wrong(self, answer: Answer) -> list[str]:
        """Return what is wrong with an answer: nothing, if all that it needs may have held."""
        events: dict[Triple, float] = {
            ("value", answer.secret, answer.value): DECIDED_SECONDS,
            ("right", answer.account, answer.secret): DECIDED_SECONDS,
            ("grant", answer.account, ""): GRANT_SECONDS,
        }
        lacking = [
            event for event, late in events.items() if not self._held(event, answer.requested - late, answer.answered)
        ]
        who = f"{answer.account} was given {answer.secret} in version {answer.value}"
        return [f"{who} at {answer.answered:.1f} s, without {' '.join(event).strip()}" for event in lacking]

    def _held(self, triple: Triple, since: float, until: float) -> bool:
        return any(begin <= until and end >= since for begin, end in self._times.get(triple, ()))


def _given(step: Step) -> Triple | None:
    match Act(step.act):
        case Act.SET:
            return "value", step.on, step.value
        case Act.ALLOW:
            return "right", step.on, step.value
        case Act.GRANT:
            return "grant", step.on, ""
        case _:
            return None


def _ends(step: Step, triple: Triple) -> bool:
    kind, on, _ = triple
    match Act(step.act):
        case Act.SET | Act.DELETE:
            return (kind, on) == ("value", step.on)
        case Act.FORBID:
            return triple == ("right", step.on, step.value)
        case Act.REVOKE:
            return (kind, on) == ("grant", step.on)
        case _:
            return False
