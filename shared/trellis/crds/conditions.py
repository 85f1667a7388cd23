"""Computes the common conditions of the custom resources: Ready, Reconciling and Stalled.

Pure. In: the health of an object, derived from the conditions of its kind. Out: conditions with times. Called by the
services that write a status. Invariants: at most one of the three is True; all three have the reason that explains the
object; the message of Reconciling and Stalled is empty unless they are True.
Source: kstatus (sigs.k8s.io/cli-utils): the first of Reconciling=True (InProgress) and Stalled=True (Failed) decides;
without them Ready does. Both are abnormal-true. Kubernetes API conventions for lastTransitionTime.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Any, Final, NamedTuple

READY: Final = "Ready"
RECONCILING: Final = "Reconciling"
STALLED: Final = "Stalled"
MESSAGE_MAX: Final = 200
"""Maximum length of their messages in characters; the condition that a message comes from has the complete text."""


class State(StrEnum):
    """The summarized state of an object.

    ``RECONCILING``: the controller works on it or retries. ``STALLED``: no progress until a user makes a change.
    ``SUSPENDED``: a user paused it. ``UNKNOWN``: its state cannot be observed; the controller retries.
    """

    READY = "Ready"
    RECONCILING = "Reconciling"
    STALLED = "Stalled"
    SUSPENDED = "Suspended"
    UNKNOWN = "Unknown"


class Verdict(NamedTuple):
    """A condition without its times."""

    type: str
    status: str
    reason: str
    message: str


@dataclass(frozen=True, slots=True)
class Health:
    """The state of an object, with reason and message of the condition that explains it."""

    state: State
    reason: str
    message: str


_STATUSES: Final = {
    State.READY: ("True", "False", "False"),
    State.RECONCILING: ("False", "True", "False"),
    State.STALLED: ("False", "False", "True"),
    State.SUSPENDED: ("False", "False", "False"),
    State.UNKNOWN: ("Unknown", "True", "False"),
}


def summary(health: Health) -> tuple[Verdict, Verdict, Verdict]:
    """Return Ready, Reconciling and Stalled of an object."""
    ready, reconciling, stalled = _STATUSES[health.state]
    message = shortened(health.message)
    return (
        Verdict(READY, ready, health.reason, message),
        Verdict(RECONCILING, reconciling, health.reason, message if reconciling == "True" else ""),
        Verdict(STALLED, stalled, health.reason, message if stalled == "True" else ""),
    )


def state_of(conditions: Iterable[Mapping[str, Any]]) -> State:
    """Return the state that Ready, Reconciling and Stalled of a status have: the inverse of :func:`summary`.

    Without Ready, as before the first write of a status, an object is ``RECONCILING``.
    """
    found = {item.get("type"): item.get("status") for item in conditions}
    statuses = tuple(found.get(kind, "False") for kind in (READY, RECONCILING, STALLED))
    if READY not in found:
        return State.RECONCILING
    return next((state for state, ours in _STATUSES.items() if ours == statuses), State.UNKNOWN)


def shortened(message: str, most: int = MESSAGE_MAX) -> str:
    """Return the message with at most ``most`` characters; a cut message ends with an ellipsis."""
    return message if len(message) <= most else f"{message[: most - 1]}…"


def make_condition(
    verdict: tuple[str, str, str, str], former: Iterable[Mapping[str, Any]], generation: int, now: str
) -> dict[str, Any]:
    """Return a condition for the status; ``former``: the current conditions of the object, ``now``: in RFC 3339.

    The time of the last transition changes only with the status.
    """
    kind, status, reason, message = verdict
    before = next((item for item in former if item.get("type") == kind), {})
    since = before.get("lastTransitionTime") if before.get("status") == status else None
    return {
        "type": kind,
        "status": status,
        "observedGeneration": generation,
        "lastTransitionTime": since or now,
        "reason": reason,
        "message": message,
    }
