"""The remains of an obsolete Job on its node, and the time of its deletion."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from trellis.provisioning.leftovers import fulfilled, left_by, marks_after, overtaken, unwanted_left
from trellis.provisioning.views import UNDO, JobState, JobView, NodeView, Target, encode_digests
from trellis_dev.testing.builders import a_job, a_node, verified_node

NODE = a_node()


def having(**digests: str) -> NodeView:
    return replace(verified_node(NODE, Target(tuple(digests.items())).digest, "handler"), shims=encode_digests(digests))


def job(state: JobState = JobState.COMPLETE, operation: str = "provision", **digests: str) -> JobView:
    return a_job(NODE, state, installs=encode_digests(digests), operation=operation)


def undo(state: JobState = JobState.COMPLETE, **after: str) -> JobView:
    """Return a Job that was to take spin back from the node."""
    return replace(job(state, UNDO, **after), blamed="spin=1")


def target(**digests: str) -> Target:
    return Target(tuple(sorted(digests.items())))


@pytest.mark.parametrize(
    ("of", "left"),
    [
        pytest.param(job(spin="1"), {"spin": "?"}, id="it ended well"),
        pytest.param(
            replace(job(JobState.FAILED, spin="1"), succeeded=True), {"spin": "?"}, id="ended as it succeeded"
        ),
        pytest.param(job(JobState.FAILED, spin="1"), {}, id="it failed, so it took its changes back"),
        pytest.param(job(JobState.ACTIVE, spin="1"), {}, id="it runs"),
        pytest.param(job(operation="remove"), {}, id="a removal"),
        pytest.param(a_job(NODE, JobState.COMPLETE), {}, id="a legacy image, which has no uninstall"),
        pytest.param(replace(job(spin="1"), node_uid="former"), {}, id="of a former node"),
        pytest.param(None, {}, id="no Job"),
        pytest.param(undo(JobState.ACTIVE), {}, id="what takes it back runs"),
        pytest.param(undo(), {}, id="it was taken back"),
        pytest.param(undo(slight="?"), {"slight": "?"}, id="another was taken back"),
        pytest.param(undo(JobState.FAILED), {"spin": "?"}, id="it could not be taken back"),
        pytest.param(
            replace(undo(JobState.ACTIVE), failure="NodeNotReady: x"),
            {"spin": "?"},
            id="nobody knows whether it was",
        ),
    ],
)
def test_remains_of_a_job_are_the_shims_that_no_mark_names(of: JobView | None, left: dict[str, str]) -> None:
    assert left_by(of, NODE) == left


@pytest.mark.parametrize(
    ("node", "of", "named"),
    [
        pytest.param(NODE, job(JobState.FAILED, spin="1"), {}, id="a failed installer leaves nothing"),
        pytest.param(NODE, job(spin="1"), {"spin": "?"}, id="it ended well and is not taken back"),
        pytest.param(having(spin="1"), job(spin="2"), {"spin": "1"}, id="nor is another version, if it is away"),
        pytest.param(NODE, undo(), {}, id="taken back"),
        pytest.param(NODE, undo(JobState.FAILED), {"spin": "?"}, id="not taken back"),
        pytest.param(having(spin="?"), undo(), {}, id="taken back at last"),
        pytest.param(having(spin="1"), undo(spin="1"), {"spin": "1"}, id="the version before is back"),
        pytest.param(having(spin="1"), undo(spin="?1"), {"spin": "?1"}, id="the version before is not kept"),
        pytest.param(having(spin="1"), undo(JobState.FAILED, spin="1"), {"spin": "?1"}, id="it does not come back"),
        pytest.param(having(spin="?1"), undo(JobState.FAILED, spin="1"), {"spin": "?1"}, id="nor the second time"),
        pytest.param(
            having(fog="3"), undo(fog="3", slight="?"), {"fog": "3", "slight": "?"}, id="another one was added as well"
        ),
    ],
)
def test_the_marks_after_a_failure_name_the_remaining_shims(node: NodeView, of: JobView, named: dict[str, str]) -> None:
    assert marks_after(of, node) == named


def test_a_failed_legacy_image_changes_no_mark() -> None:
    assert marks_after(a_job(NODE, JobState.FAILED), having(spin="1")) == {"spin": "1"}


def test_shims_named_by_the_labels_are_no_leftovers_in_any_version() -> None:
    assert left_by(job(spin="2", slight="1"), having(spin="1")) == {"slight": "?"}


def test_a_wanted_shim_waits_for_its_verification() -> None:
    assert unwanted_left(job(spin="1", slight="1"), NODE, {"spin"}) == {"slight": "?"}


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
def test_a_job_is_complete_once_the_labels_show_it(node: NodeView, changes: dict[str, Any], *, is_so: bool) -> None:
    assert fulfilled(replace(job(spin="1"), **changes), node) is is_so


def test_a_removal_is_fulfilled_once_no_mark_is_left() -> None:
    removal = job(operation="remove")
    assert fulfilled(removal, NODE)
    assert not fulfilled(removal, having(spin="1"))
