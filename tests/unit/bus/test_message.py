from __future__ import annotations

import json
from datetime import UTC, datetime
from typing import Any, ClassVar

import pytest

from support.nats.buses import opted_out
from support.suite.naming import lacking
from trellis.bus.consume.message import NewerVersion, Origin, Reason, UnreadableMessage, compose, read
from trellis.events.node import NodeOptedOut
from trellis.events.subjects import _BY_MODEL, NODE_WATCHER, EventSpec

TYPE = "dev.trellis.node.opted_out"
ORIGIN = Origin("c1", "node_watcher")
NOW = datetime(2026, 1, 1, tzinfo=UTC)


class OptedOutV3(NodeOptedOut):
    version: ClassVar[int] = 3


def body(ce_type: str, **changes: Any) -> bytes:
    event = {"specversion": "1.0", "id": "1", "source": "/x", "type": ce_type, "time": "2026-01-01T00:00:00Z"}
    event |= {"data": {"name": "n", "uid": "u", "resource_version": "1"}} | changes
    return json.dumps(event).encode()


@pytest.mark.parametrize(
    ("ce_type", "read_here", "newer"),
    [
        pytest.param(f"{TYPE}.v2", (1,), True, id="the next version"),
        pytest.param(f"{TYPE}.v10", (1, 3), True, id="versions are numbers"),
        pytest.param(f"{TYPE}.v2", (1, 3), False, id="one that was left out"),
        pytest.param(f"{TYPE}.v1", (3,), False, id="an earlier one"),
        pytest.param(f"{TYPE}.v0", (1,), False, id="no version at all"),
        pytest.param(f"{TYPE}.v2x", (1,), False, id="something like a version"),
        pytest.param(TYPE, (1,), False, id="without a version"),
        pytest.param("dev.trellis.node.exploded.v2", (1,), False, id="another fact"),
        pytest.param("x.v2", (1,), False, id="anything"),
    ],
)
def test_only_a_later_version_of_a_type_that_is_read_is_newer(
    ce_type: str, read_here: tuple[int, ...], newer: bool
) -> None:
    models = {f"{TYPE}.v{version}": NodeOptedOut for version in read_here}
    with pytest.raises(UnreadableMessage) as caught:
        read(body(ce_type), models)
    assert isinstance(caught.value, NewerVersion) == newer
    assert caught.value.reason is Reason.UNKNOWN_TYPE
    if newer:
        assert lacking(caught.value, ce_type, f"{TYPE}.v{max(read_here)}") == []


def test_a_writer_that_knows_more_is_read() -> None:
    newer = body(
        f"{TYPE}.v1",
        data={"name": "n", "uid": "u", "resource_version": "1", "reason": "Drained", "nested": {"a": [1]}},
        partitionkey="n",
        sampledrate=3,
        dataschema="https://example.test/schema",
    )
    event, event_data = read(newer, {f"{TYPE}.v1": NodeOptedOut})
    assert event_data == NodeOptedOut(name="n", uid="u", resource_version="1")
    assert event.id == "1"


def test_two_versions_of_one_event_are_two_messages(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(_BY_MODEL, OptedOutV3, EventSpec(OptedOutV3, NODE_WATCHER))
    first, third = opted_out("n"), OptedOutV3(name="n", uid="uid-1", resource_version="1")
    ids = []
    for event in (first, third):
        content, headers = compose(event, origin=ORIGIN, dedup="uid-1.1.opted_out", time=NOW, trace=None)
        assert headers["Nats-Msg-Id"] == json.loads(content)["id"]
        ids.append(headers["Nats-Msg-Id"])
    assert ids == ["uid-1.1.opted_out", "uid-1.1.opted_out.v3"]
