"""Ready, Reconciling and Stalled: what kstatus makes of each state, and times that stay while a status stays."""

from __future__ import annotations

from typing import Any

import pytest

from trellis.crds.api import Condition
from trellis.crds.conditions import MESSAGE_MAX, Health, State, Verdict, make_condition, state_of, summary

THEN, NOW = "2026-01-01T00:00:00Z", "2026-02-01T00:00:00Z"


def kstatus(verdicts: tuple[Verdict, ...]) -> str:
    """Return the status that kstatus computes: Reconciling and Stalled in their order, then Ready."""
    for verdict in verdicts:
        if verdict.status == "True" and verdict.type in {"Reconciling", "Stalled"}:
            return {"Reconciling": "InProgress", "Stalled": "Failed"}[verdict.type]
    ready = next(verdict for verdict in verdicts if verdict.type == "Ready")
    return "Current" if ready.status == "True" else "InProgress"


@pytest.mark.parametrize(
    ("state", "ready", "judged"),
    [
        (State.READY, "True", "Current"),
        (State.RECONCILING, "False", "InProgress"),
        (State.STALLED, "False", "Failed"),
        (State.SUSPENDED, "False", "InProgress"),
        (State.UNKNOWN, "Unknown", "InProgress"),
    ],
)
def test_kstatus_judges_each_state(state: State, ready: str, judged: str) -> None:
    found = summary(Health(state, "Because", "the cause"))
    assert (found[0].type, found[0].status, found[0].message) == ("Ready", ready, "the cause")
    assert {item.reason for item in found} == {"Because"}
    assert [item.status for item in found].count("True") <= 1
    assert kstatus(found) == kstatus(found[::-1]) == judged
    assert state_of([make_condition(verdict, (), 1, NOW) for verdict in reversed(found)]) is state


@pytest.mark.parametrize(
    ("conditions", "state"),
    [
        pytest.param([], State.RECONCILING, id="none yet"),
        pytest.param([{"type": "Available", "status": "True"}], State.RECONCILING, id="of a former version"),
        pytest.param([{"type": "Ready", "status": "True"}], State.READY, id="Ready alone"),
        pytest.param([{"type": "Ready"}], State.UNKNOWN, id="without a status"),
    ],
)
def test_other_conditions_have_a_state_too(conditions: list[dict[str, Any]], state: State) -> None:
    assert state_of(conditions) is state


def test_a_long_message_is_cut_visibly() -> None:
    assert summary(Health(State.STALLED, "Because", "x" * MESSAGE_MAX))[2].message == "x" * MESSAGE_MAX
    cut = summary(Health(State.STALLED, "Because", "x" * (MESSAGE_MAX + 1)))[2].message
    assert (len(cut), cut[-1]) == (MESSAGE_MAX, "…")


@pytest.mark.parametrize(
    ("former", "since"),
    [
        pytest.param([], NOW, id="new"),
        pytest.param([{"type": "Ready", "status": "True", "lastTransitionTime": THEN}], THEN, id="the same status"),
        pytest.param([{"type": "Ready", "status": "False", "lastTransitionTime": THEN}], NOW, id="another status"),
        pytest.param([{"type": "Other", "status": "True", "lastTransitionTime": THEN}], NOW, id="of another type"),
        pytest.param([{"type": "Ready", "status": "True"}], NOW, id="without a time"),
    ],
)
def test_a_condition_keeps_the_time_of_its_last_change_of_status(former: list[dict[str, Any]], since: str) -> None:
    found = make_condition(("Ready", "True", "Because", ""), former, 7, NOW)
    assert (found["lastTransitionTime"], found["observedGeneration"]) == (since, 7)
    Condition.model_validate(found)
