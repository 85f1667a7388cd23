"""Computes the common conditions of the custom resources, Ready, Reconciling and Stalled, and limits all messages.

Pure. In: the health of an object, derived from the conditions of its kind. Out: conditions with times. Called by the
services that write a status. Invariants: at most one of the three is True; all three have the reason that explains the
object; the message of Reconciling and Stalled is empty unless they are True; no message is longer than 200 characters.
Source: kstatus (sigs.k8s.io/cli-utils): the first of Reconciling=True (InProgress) and Stalled=True (Failed) decides;
without them Ready does. Both are abnormal-true. Kubernetes API conventions for lastTransitionTime.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Any, Final, NamedTuple

READY: Final = "Ready"
RECONCILING: Final = "Reconciling"
STALLED: Final = "Stalled"
MESSAGE_MAX: Final = 200
"""Maximum length of the message of a condition in characters; the Event of a problem has up to 1024."""


_REFUSED: Final = (" is forbidden: ", " is invalid: ")
"""Words between the object and the cause, in messages of kube-apiserver."""
_POLICY: Final = re.compile(
    r"(?P<policy>ValidatingAdmissionPolicy '[^']*') with binding '[^']*' denied request: (?P<text>.+)", re.DOTALL
)
_LEFT_OUT: Final = re.compile(r' \(groups=\[[^\]]*\]\)| in API group "[^"]*"')
_ACCOUNT: Final = re.compile(r'[Uu]ser "system:serviceaccount:(?P<namespace>[^:"]+):(?P<name>[^:"]+)"')
_WORD: Final = re.compile(r"`[^`]*`\S*|\S+")


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
    return (
        Verdict(READY, ready, health.reason, health.message),
        Verdict(RECONCILING, reconciling, health.reason, health.message if reconciling == "True" else ""),
        Verdict(STALLED, stalled, health.reason, health.message if stalled == "True" else ""),
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


def cause_of_refusal(text: str) -> str:
    """Return the cause of a refusal by the API server in one line, without the object before it; or another text.

    ``pods "web-x7k2p" is forbidden: exceeded quota: small`` becomes ``exceeded quota: small``. The text of a
    ValidatingAdmissionPolicy comes before the policy's name; the groups of a user and of a resource are left out.
    Source: messages of kube-apiserver.
    """
    cause = next(filter(None, (text.partition(words)[2] for words in _REFUSED)), text)
    account = _ACCOUNT.sub(r"ServiceAccount \g<namespace>/\g<name>", _LEFT_OUT.sub("", cause))
    return " ".join(_POLICY.sub(r"\g<text> (\g<policy>)", account).split())


def with_context(cause: str, *contexts: str) -> str:
    """Return a message of a cause and the objects concerned, in the first of several wordings with the whole cause.

    Without one, the message has the first wording, and only the cause is shortened.
    """
    context = next((text for text in contexts if len(cause) + len(text) <= MESSAGE_MAX), contexts[0])
    return f"{shortened(cause, MESSAGE_MAX - len(context))}{context}"


def shortened(message: str, most: int = MESSAGE_MAX) -> str:
    """Return the message with at most ``most`` characters; an ellipsis replaces words in its middle.

    The first words name the cause, and the last ones often the cause of an error of another program, or the resolution.
    A command in backticks is one word: a part of it cannot be run. Only a word of half the length and more is cut.
    """
    if len(message) <= most:
        return message
    words = _WORD.findall(message)
    tail = ""
    while words and len(words[-1]) + len(tail) < most * (3 if words[-1].startswith("`") else 2) // 5:
        tail = f" {words.pop()}{tail}"
    room = most - len(tail) - len(" …")
    head = ""
    for word in words:
        if len(head) + 1 + len(word) > room:
            break
        head = f"{head} {word}".lstrip()
    return f"{head} …{tail}" if len(head) >= room // 2 else f"{message[: room + 1]}…{tail}"


def make_condition(
    verdict: tuple[str, str, str, str], former: Iterable[Mapping[str, Any]], generation: int, now: str
) -> dict[str, Any]:
    """Return a condition for the status; ``former``: the current conditions of the object, ``now``: in RFC 3339.

    The time of the last transition changes only with the status. A long message is :func:`shortened`.
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
        "message": shortened(message),
    }
