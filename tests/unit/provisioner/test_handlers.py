"""An event of which the watch has shown what it says starts no run."""

from __future__ import annotations

import pytest

from provisioner.handlers import is_shown
from trellis.events.node import NodeEventData, NodeGone, NodeOptedOut
from trellis.provisioning.views import NodeView
from trellis_dev.testing.builders import a_node


def seen(version: str, uid: str = "uid-1") -> NodeView:
    return a_node("node-1", uid=uid, resource_version=version)


def opted_out(version: str) -> NodeEventData:
    return NodeOptedOut(name="node-1", uid="uid-1", resource_version=version)


DELETED = NodeGone(name="node-1", uid="uid-1", resource_version="")


@pytest.mark.parametrize(
    ("event", "node", "shown"),
    [
        pytest.param(opted_out("9"), seen("9"), True, id="the same version"),
        pytest.param(opted_out("9"), seen("10"), True, id="a later version"),
        pytest.param(opted_out("10"), seen("9"), False, id="the watch is behind"),
        pytest.param(opted_out("9"), seen("10", uid="uid-2"), False, id="another Node of the name"),
        pytest.param(opted_out("9"), None, False, id="a Node that the watch does not show"),
        pytest.param(opted_out("x"), seen("x"), False, id="versions that are no numbers"),
        pytest.param(DELETED, None, True, id="it is gone"),
        pytest.param(DELETED, seen("9", uid="uid-2"), True, id="it was replaced"),
        pytest.param(DELETED, seen("9"), False, id="it is still shown"),
    ],
)
def test_an_event_is_shown_with_its_content(event: NodeEventData, node: NodeView | None, *, shown: bool) -> None:
    assert is_shown(event, node) is shown
