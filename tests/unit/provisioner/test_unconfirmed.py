"""A slot whose Job was deleted: what may be on the node, and that it is not given up before that is known."""

from __future__ import annotations

from dataclasses import replace

import pytest

from provisioner.domain.unconfirmed import NOTHING, unconfirmed_shims, with_unconfirmed
from trellis.provisioning.ledger import Entry
from trellis.provisioning.views import KWASM, JobView, NodeView
from trellis_dev.testing.builders import DIGEST, a_job, a_node, opted_in

TRY = Entry(DIGEST, 1, 5, ("slight", "spin"))
NODE = opted_in(a_node())


def marked(node: NodeView, shims: str, digest: str = "0123456789abcdef") -> NodeView:
    return replace(node, shims=shims, digest=digest, verified="handler", marked_uid=node.uid)


def its_job() -> JobView:
    return a_job(NODE, digest=TRY.digest, attempt=TRY.attempt)


@pytest.mark.parametrize(
    ("node", "entry", "jobs", "names"),
    [
        (NODE, TRY, (), {"slight", "spin"}),
        (marked(NODE, "spin=ab"), TRY, (), {"slight"}),
        (NODE, TRY, (its_job(),), set()),
        (NODE, TRY, (replace(its_job(), attempt=2),), {"slight", "spin"}),
        (marked(NODE, "other=ab", DIGEST), TRY, (), set()),
        (replace(NODE, failed_attempt=f"{DIGEST}/1/7", marked_uid=NODE.uid), TRY, (), set()),
        (replace(NODE, failed_attempt=f"{DIGEST}/1/7", marked_uid="former"), TRY, (), {"slight", "spin"}),
        (NODE, Entry(DIGEST, 1, 5, (KWASM,)), (), set()),
        (NODE, Entry(NOTHING, 1, 5, ("spin",)), (), set()),
        (NODE, Entry(NOTHING, 1, 5, ("spin",), unconfirmed=True), (), {"spin"}),
    ],
    ids=[
        "nothing tells",
        "the marks name one",
        "its Job tells",
        "another try's Job does not",
        "it is recorded as done",
        "it is recorded as failed",
        "that is the record of a former node",
        "a legacy image cannot be removed",
        "a removal of what the marks named is done",
        "a removal of what they did not name may not be",
    ],
)
def test_leftovers_of_an_attempt_with_a_deleted_job(
    node: NodeView, entry: Entry, jobs: tuple[JobView, ...], names: set[str]
) -> None:
    assert unconfirmed_shims(node, entry, jobs) == names


def test_a_node_seen_as_if_its_marks_named_what_may_be_there() -> None:
    seen = with_unconfirmed(marked(NODE, "spin=ab"), {"slight", "spin"})
    assert seen.installed == {"spin": "ab", "slight": "?"}
    assert seen.verified == "handler"


def test_the_record_of_a_former_node_is_not_that_of_the_one_with_its_name() -> None:
    former = replace(marked(NODE, "other=ab"), marked_uid="former", failed_attempt=f"{DIGEST}/3/7", failed_shims="x=y")
    seen = with_unconfirmed(former, {"spin"})
    assert seen.installed == {"spin": "?"}
    assert seen.failed is None
    assert seen.blamed == {}
