"""States of nodes in named situations."""

from __future__ import annotations

from dataclasses import replace

import pytest

from support.console.seen_objects import shim
from support.situations.objects import filled
from trellis import names
from trellis.crds.conditions import MESSAGE_MAX
from trellis.provisioning.ledger import Entry, Ledger
from trellis.provisioning.shims import ShimView, view_shim
from trellis.provisioning.views import KWASM, JobState, JobView, NodeView, OptIn
from trellis.read_model.health import Health
from trellis.read_model.tables.nodes import NodeRow, NodeState, row_of, rows_of, summary, tally
from trellis_dev.testing.builders import DIGEST, OTHER_DIGEST, a_job, a_node, failed, opted_in, verified_node

IN = opted_in(a_node())
DEFAULT = view_shim(filled(shim() | {"metadata": {"name": "wasi", "labels": {names.LABEL_KWASM_DEFAULT: "true"}}}))
SELECTING = replace(DEFAULT, default=False, selector=None)
SLOT = Entry(DIGEST, 1, 1000)
SECOND_SLOT = Entry(DIGEST, 2, 1020)
COMPLETE = a_job(IN, JobState.COMPLETE)
BROKEN = a_job(IN, JobState.FAILED)

World = tuple[NodeView, tuple[JobView, ...], Entry | None]

STATES: dict[str, tuple[World, NodeState]] = {
    "nobody opted it in": ((a_node(), (), None), NodeState.NOT_OPTED_IN),
    "opted out by annotation": ((a_node(opt_in="false"), (), None), NodeState.NOT_OPTED_IN),
    "opted out, marks still there": ((verified_node(a_node(opt_in="false")), (), None), NodeState.NOT_OPTED_IN),
    "an annotation of another value": ((a_node(opt_in="yes"), (), None), NodeState.INVALID_ANNOTATION),
    "opted in, no slot": ((IN, (), None), NodeState.WAITING),
    "a slot, no Job yet": ((IN, (), SLOT), NodeState.PROVISIONING),
    "its Job runs": ((IN, (a_job(IN),), SLOT), NodeState.PROVISIONING),
    "its Job runs without a ledger": ((IN, (a_job(IN),), None), NodeState.PROVISIONING),
    "its Job is complete, nothing marked": ((IN, (COMPLETE,), SLOT), NodeState.VERIFYING),
    "its Job is complete, the handler never came": (
        (IN, (replace(COMPLETE, failure="HandlerMissing: not listed"),), SLOT),
        NodeState.FAILED,
    ),
    "its Job failed, no verdict yet": ((IN, (BROKEN,), SLOT), NodeState.FAILED),
    "failed, the slot is not freed yet": ((failed(IN), (BROKEN,), SLOT), NodeState.FAILED),
    "failed, waits for its retry": ((failed(IN), (BROKEN,), None), NodeState.FAILED),
    "failed, the Job is gone": ((failed(IN), (), None), NodeState.FAILED),
    "failed, the retry has a slot": ((failed(IN), (BROKEN,), SECOND_SLOT), NodeState.PROVISIONING),
    "failed, the retry runs": (
        (failed(IN), (BROKEN, a_job(IN, attempt=2, created_at=1020)), SECOND_SLOT),
        NodeState.PROVISIONING,
    ),
    "failed, another digest has a slot": ((failed(IN), (BROKEN,), Entry(OTHER_DIGEST, 1, 9)), NodeState.PROVISIONING),
    "verified": ((verified_node(IN), (), None), NodeState.READY),
    "verified, the slot is not freed yet": ((verified_node(IN), (COMPLETE,), SLOT), NodeState.READY),
    "verified, another digest has a slot": ((verified_node(IN), (), Entry(OTHER_DIGEST, 1, 9)), NodeState.PROVISIONING),
    "verified, another digest failed": ((failed(verified_node(IN), OTHER_DIGEST), (), None), NodeState.FAILED),
    "verified after a failure of the same digest": ((failed(verified_node(IN)), (), None), NodeState.READY),
    "marks of a former node of that name": (
        (replace(verified_node(IN), marked_uid="former"), (), None),
        NodeState.WAITING,
    ),
    "an installed shim is not verified": (
        (replace(verified_node(IN), shims="spin=?"), (), None),
        NodeState.WAITING,
    ),
    "an installed shim is not verified, beside what is": (
        (replace(verified_node(IN), shims="slight=1 spin=?"), (), None),
        NodeState.READY,
    ),
    "verified without an annotation": ((verified_node(a_node()), (), None), NodeState.READY),
    "in work without an annotation": ((a_node(), (a_job(a_node()),), SLOT), NodeState.PROVISIONING),
    "a node of another operating system": ((replace(IN, operating_system="windows"), (), None), NodeState.WAITING),
}


@pytest.mark.parametrize(("world", "state"), STATES.values(), ids=STATES.keys())
def test_each_world_has_its_state(world: World, state: NodeState) -> None:
    assert row_of(*world).state is state


def test_a_ready_row_states_the_verification() -> None:
    row = row_of(verified_node(IN, verified="handler"), (), None)
    assert (row.verified, row.digest, row.attempt, row.message) == ("handler", DIGEST, None, "")


def test_the_verification_of_a_former_node_is_not_shown() -> None:
    row = row_of(replace(verified_node(IN), marked_uid="former"), (), None)
    assert (row.verified, row.digest) == (None, None)


def test_a_row_in_progress_shows_the_digest_and_attempt_under_way() -> None:
    row = row_of(failed(verified_node(IN, OTHER_DIGEST)), (BROKEN,), SECOND_SLOT)
    assert (row.digest, row.attempt) == (DIGEST, 2)


def test_a_failure_is_one_line_with_the_reason() -> None:
    node = replace(failed(IN), failure="attempt 1: BackoffLimitExceeded;\n last log lines: no space\n left")
    recorded = (node.failure or "").removeprefix("attempt 1: ")  # the attempt has its own field
    assert row_of(node, (), None).message == " ".join(recorded.split())


def test_a_long_failure_is_cut() -> None:
    message = row_of(replace(failed(IN), failure="x" * 999), (), None).message
    assert len(message) == MESSAGE_MAX
    assert message.endswith("…")


def test_a_failure_not_yet_on_the_node_is_reported_in_the_words_of_its_job() -> None:
    assert row_of(IN, (BROKEN,), SLOT).message == BROKEN.condition
    judged = replace(BROKEN, failure="InstallerFailed: no space left")
    assert row_of(IN, (judged,), SLOT).message == "InstallerFailed: no space left"


def test_an_invalid_annotation_is_quoted_with_what_is_allowed() -> None:
    row = row_of(a_node(opt_in="yes"), (), None)
    assert row.opt_in_state is OptIn.INVALID
    assert "'yes'" in row.message
    assert "'true'" in row.message


def test_a_node_of_another_operating_system_states_why_it_waits() -> None:
    assert "windows" in row_of(replace(IN, operating_system="windows"), (), None).message


@pytest.mark.parametrize(
    ("node", "opt_in", "by"),
    [
        (IN, OptIn.IN, "Annotation"),
        (a_node(opt_in="false"), OptIn.OUT, "Annotation"),
        (a_node(), OptIn.OUT, ""),
        (verified_node(a_node()), OptIn.IN, ""),
    ],
    ids=["annotated", "annotated out", "untouched", "marked without an annotation"],
)
def test_the_opt_in_and_its_source(node: NodeView, opt_in: OptIn, by: str) -> None:
    row = row_of(node, (), None)
    assert (row.opt_in_state, row.by) == (opt_in, by)


@pytest.mark.parametrize(
    ("node", "concern"),
    [
        (a_node(), False),
        (a_node(opt_in="false"), False),
        (IN, True),
        (a_node(opt_in="yes"), True),
        (verified_node(a_node(opt_in="false")), True),
        (failed(a_node()), True),
    ],
    ids=["untouched", "opted out", "opted in", "invalid", "marks left", "failed"],
)
def test_only_nodes_that_have_to_do_with_wasm_are_of_concern(node: NodeView, concern: bool) -> None:
    assert row_of(node, (), None).concern is concern


def test_rows_are_by_name_and_meet_their_own_jobs_and_slots() -> None:
    item, two = opted_in(a_node("b")), opted_in(a_node("a"))
    rows = rows_of([item, two], {item.uid: (a_job(item),)}, Ledger({two.uid: SLOT}), [])
    assert [(row.name, row.state, row.attempt) for row in rows] == [
        ("a", NodeState.PROVISIONING, 1),
        ("b", NodeState.PROVISIONING, 1),
    ]


@pytest.mark.parametrize(
    ("node", "shims", "ledger", "reported"),
    [
        (IN, [], Ledger({}), True),
        (IN, None, Ledger({}), False),
        (IN, [DEFAULT], Ledger({}), False),
        (IN, [SELECTING], Ledger({}), False),
        (IN, [], Ledger({"uid-other": SLOT}), False),
        (IN, [], Ledger({}, halted=(KWASM,)), False),
        (IN, [], Ledger({"uid-other": replace(SLOT, shims=("spin",))}), True),
        (a_node(opt_in="false"), [], Ledger({}), False),
        (a_node(), [], Ledger({}), False),
        (verified_node(IN), [], Ledger({}), False),
    ],
    ids=[
        *("no Shim", "Shims are unknown", "a default Shim", "a Shim selects it", "an image of KWasm is installed"),
        *("an image of KWasm is halted", "a Shim on another node", "opted out", "not opted in", "ready"),
    ],
)
def test_a_node_with_nothing_to_install_says_so(
    node: NodeView, shims: list[ShimView] | None, ledger: Ledger, reported: bool
) -> None:
    [row] = rows_of([node], {}, ledger, shims)
    assert (row.verdict.reason == "NothingToInstall") is reported
    assert not reported or (row.verdict.health, row.state) == (Health.DEGRADED, NodeState.WAITING)


def test_a_node_waits_if_another_one_has_an_image_of_kwasm() -> None:
    waiting, _ = rows_of([IN, verified_node(opted_in(a_node("z")))], {}, Ledger({}), [])
    assert (waiting.verdict.health, waiting.verdict.reason) == (Health.PROGRESSING, NodeState.WAITING)


def test_the_tally_has_every_state_and_the_summary_only_what_there_is() -> None:
    rows = [row_of(verified_node(opted_in(a_node(name))), (), None) for name in ("a", "b")]
    rows.append(row_of(failed(IN), (), None))
    assert tally(rows)[NodeState.WAITING] == 0
    assert summary(rows) == "2 ready, 1 failed"
    assert summary([]) == "no nodes"


def test_the_document_has_stable_names_and_null_for_what_is_absent() -> None:
    assert NodeRow("a", OptIn.OUT, "", NodeState.NOT_OPTED_IN).document() == {
        "name": "a",
        "opt_in": "false",
        "opted_in_by": None,
        "state": "NotOptedIn",
        "health": "Unknown",
        "reason": None,
        "verified": None,
        "digest": None,
        "attempt": None,
        "message": None,
    }
