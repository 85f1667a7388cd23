"""What a Job nobody wants any more has left on its node, and when it may go."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from trellis.provisioning import JobState, JobView, NodeView, Target, encode_digests
from trellis.testing.builders import a_job, a_node, proved
from trellis.unfinished import fulfilled, left_by, overtaken, unwanted_left

NODE = a_node()


def having(**digests: str) -> NodeView:
    return replace(proved(NODE, Target(tuple(digests.items())).digest, "handler"), shims=encode_digests(digests))


def job(state: JobState = JobState.COMPLETE, operation: str = "provision", **digests: str) -> JobView:
    return a_job(NODE, state, installs=encode_digests(digests), operation=operation)


def target(**digests: str) -> Target:
    return Target(tuple(sorted(digests.items())))


@pytest.mark.parametrize(
    ("of", "left"),
    [
        pytest.param(job(spin="1"), {"spin": "1"}, id="it ended well"),
        pytest.param(
            replace(job(JobState.FAILED, spin="1"), succeeded=True), {"spin": "1"}, id="ended as it succeeded"
        ),
        pytest.param(job(JobState.FAILED, spin="1"), {}, id="it failed, so it took its changes back"),
        pytest.param(job(JobState.ACTIVE, spin="1"), {}, id="it runs"),
        pytest.param(job(operation="remove"), {}, id="a removal"),
        pytest.param(a_job(NODE, JobState.COMPLETE), {}, id="a legacy image, which has no uninstall"),
        pytest.param(replace(job(spin="1"), node_uid="former"), {}, id="of a former node"),
        pytest.param(None, {}, id="no Job"),
    ],
)
def test_what_a_job_left_that_no_mark_names(of: JobView | None, left: dict[str, str]) -> None:
    assert left_by(of, NODE) == left


def test_what_the_marks_name_is_not_left_in_whatever_version() -> None:
    assert left_by(job(spin="2", slight="1"), having(spin="1")) == {"slight": "1"}


def test_what_is_wanted_waits_for_its_proof() -> None:
    assert unwanted_left(job(spin="1", slight="1"), NODE, {"spin"}) == {"slight": "1"}


@pytest.mark.parametrize(
    ("node", "of", "wanted", "is_so"),
    [
        pytest.param(having(spin="1"), job(JobState.ACTIVE, spin="2"), target(), True, id="the next version runs"),
        pytest.param(having(spin="1"), job(spin="2"), target(), True, id="the next version is there"),
        pytest.param(having(spin="1"), job(JobState.FAILED, spin="2"), target(), True, id="the next version failed"),
        pytest.param(NODE, job(JobState.ACTIVE, spin="1"), None, True, id="the first runs, nothing is wanted"),
        pytest.param(NODE, job(spin="1"), None, False, id="the first is there and no mark names it"),
        pytest.param(NODE, job(JobState.ACTIVE, spin="1"), target(spin="2"), False, id="another version is wanted"),
        pytest.param(
            NODE, job(JobState.ACTIVE, spin="1", slight="1"), target(slight="1"), False, id="a part is wanted"
        ),
        pytest.param(having(spin="1"), job(spin="1"), target(spin="1"), False, id="it changed nothing that is not so"),
        pytest.param(having(spin="1"), job(JobState.ACTIVE, operation="remove"), target(), False, id="a removal"),
        pytest.param(NODE, a_job(NODE), None, False, id="a legacy image"),
    ],
)
def test_a_job_is_overtaken_if_all_it_changes_is_unwanted(
    node: NodeView, of: JobView, wanted: Target | None, *, is_so: bool
) -> None:
    assert overtaken(of, node, wanted) is is_so


@pytest.mark.parametrize(
    ("node", "changes", "is_so"),
    [
        pytest.param(having(spin="1"), {}, True, id="the marks say what it did"),
        pytest.param(NODE, {}, False, id="they do not yet"),
        pytest.param(having(spin="1"), {"state": JobState.ACTIVE}, False, id="it runs"),
    ],
)
def test_a_job_is_fulfilled_once_the_marks_say_so(node: NodeView, changes: dict[str, Any], *, is_so: bool) -> None:
    assert fulfilled(replace(job(spin="1"), **changes), node) is is_so


def test_a_removal_is_fulfilled_once_no_mark_is_left() -> None:
    removal = job(operation="remove")
    assert fulfilled(removal, NODE)
    assert not fulfilled(removal, having(spin="1"))
