"""The report of a server that does not know a stream's leader is not taken for the stream's state."""

from __future__ import annotations

import copy
from typing import Any, cast

import pytest
from nats.js.api import StreamInfo
from nats.js.client import JetStreamContext

from trellis.bus.errors import BusUnavailable
from trellis.bus.streams.streams import ensure_streams
from trellis.events.subjects import STREAM_SUBJECTS

REPLICAS = [{"name": name, "current": True, "active": 1} for name in ("nats-0", "nats-1")]


class JetStream:
    """Answers for every stream alike."""

    def __init__(self, cluster: dict[str, Any] | None) -> None:
        self.cluster = cluster

    async def stream_info(self, name: str) -> StreamInfo:
        return StreamInfo.from_response(
            {
                "config": {"name": name, "subjects": [STREAM_SUBJECTS[name]], "num_replicas": 3},
                "created": "2026-01-01T00:00:00Z",
                "state": {"messages": 0, "bytes": 0, "first_seq": 0, "last_seq": 7, "consumer_count": 0},
                "cluster": copy.deepcopy(self.cluster),
            }
        )


@pytest.mark.parametrize("cluster", [None, {"leader": "nats-2", "replicas": REPLICAS}], ids=["alone", "leader"])
async def test_the_last_sequence_is_taken_from_a_server_alone_and_from_a_leader(cluster: dict[str, Any] | None) -> None:
    assert (await ensure_streams(cast("JetStreamContext", JetStream(cluster)))).last == 7


async def test_nothing_is_taken_from_a_server_that_knows_no_leader() -> None:
    with pytest.raises(BusUnavailable, match="TRELLIS_EVENTS"):
        await ensure_streams(cast("JetStreamContext", JetStream({"name": "nats", "replicas": REPLICAS})))
