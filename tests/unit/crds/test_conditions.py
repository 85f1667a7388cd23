"""Ready, Reconciling and Stalled: what kstatus makes of each state, and times that stay while a status stays."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from trellis.crds.api import Condition
from trellis.crds.conditions import (
    MESSAGE_MAX,
    Health,
    State,
    Verdict,
    cause_of_refusal,
    make_condition,
    state_of,
    summary,
)

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


def written(message: str) -> str:
    """Return the message of a condition as it is written."""
    return str(make_condition(("Ready", "False", "Because", message), (), 1, NOW)["message"])


def test_a_long_message_is_cut_visibly() -> None:
    assert written("x" * MESSAGE_MAX) == "x" * MESSAGE_MAX
    cut = written("x" * (MESSAGE_MAX + 1))
    assert (len(cut), cut[-1]) == (MESSAGE_MAX, "…")


@given(st.lists(st.text("ab`:,", min_size=1, max_size=MESSAGE_MAX // 4), min_size=1).map(lambda words: words * 9))
def test_a_message_keeps_its_first_and_its_last_words(words: list[str]) -> None:
    message = " ".join(words)
    cut = written(message)
    assert len(cut) <= MESSAGE_MAX
    assert written(cut) == cut
    if len(message) <= MESSAGE_MAX:
        assert cut == message
        return
    head, _, tail = cut.partition("…")
    assert message.startswith(head.rstrip())
    assert message.endswith(tail)
    assert len(head) >= MESSAGE_MAX // 6
    assert not tail or message[: -len(tail)].endswith(words[-1]) or tail.startswith(" ")


@pytest.mark.parametrize(
    ("text", "cause"),
    [
        ('pods "web-x" is forbidden: exceeded quota: small, used: pods=1', "exceeded quota: small, used: pods=1"),
        ('Service "web" is invalid: spec.ports: Required value', "spec.ports: Required value"),
        (
            "jobs.batch \"x\" is forbidden: ValidatingAdmissionPolicy 'p' with binding 'b' denied request: no owner",
            "no owner (ValidatingAdmissionPolicy 'p')",
        ),
        (
            'nodes "n" is forbidden: User "system:serviceaccount:a:b" cannot get "nodes" in API group ""',
            'ServiceAccount a/b cannot get "nodes"',
        ),
        ("no\nanswer", "no answer"),
    ],
)
def test_the_cause_of_a_refusal_comes_without_the_refused_object(text: str, cause: str) -> None:
    assert cause_of_refusal(text) == cause


@pytest.mark.parametrize("length", range(120, 200))
def test_a_command_is_kept_whole_or_left_out(length: int) -> None:
    command = "`trellis circuit-breaker close node-watcher`"
    message = "x" * 60 + " " + "y" * (length - 62) + f" {command}, or the other way, " + "z" * 90
    cut = written(message)
    assert (command in cut) is (length + len(command) <= MESSAGE_MAX - len(" …,")), cut
    assert cut.count("`") in {0, 2}
    assert "trellis" not in cut.replace(command, "")


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
