"""Readiness names what is refused on nodes by the reason that the Node and its Shims have."""

from __future__ import annotations

from provisioner.refusals import RefusedNodes
from trellis.provisioning.reasons import Reason
from trellis_dev.testing.builders import a_node

ONE, TWO = a_node("one"), a_node("two")


class Readiness:
    """Records the readiness messages by reason."""

    def __init__(self) -> None:
        self.reported: dict[Reason, str] = {}

    def __call__(self, reason: Reason, message: str) -> None:
        if message:
            self.reported[reason] = message
        else:
            self.reported.pop(reason, None)


def test_each_refusal_is_not_ready_by_its_own_reason() -> None:
    readiness = Readiness()
    refused = RefusedNodes(readiness)
    assert refused.take(ONE, Reason.UPDATE_REFUSED, "no team label")
    assert [*readiness.reported] == [Reason.UPDATE_REFUSED]
    assert refused.take(TWO, Reason.INSTALLER_REFUSED, "no room")
    assert {*readiness.reported} == {Reason.UPDATE_REFUSED, Reason.INSTALLER_REFUSED}
    refused.end(ONE.uid)
    assert [*readiness.reported] == [Reason.INSTALLER_REFUSED]


def test_a_node_that_is_refused_something_else_by_now_has_the_new_reason_alone() -> None:
    readiness = Readiness()
    refused = RefusedNodes(readiness)
    refused.take(ONE, Reason.INSTALLER_REFUSED, "no room")
    assert refused.take(ONE, Reason.UPDATE_REFUSED, "no team label")
    assert not refused.take(ONE, Reason.UPDATE_REFUSED, "no team label")
    assert [*readiness.reported] == [Reason.UPDATE_REFUSED]


def test_nothing_is_reported_after_the_term() -> None:
    readiness = Readiness()
    refused = RefusedNodes(readiness)
    refused.take(ONE, Reason.UPDATE_REFUSED, "no team label")
    refused.take(TWO, Reason.INSTALLER_REFUSED, "no room")
    refused.forget()
    assert not readiness.reported
