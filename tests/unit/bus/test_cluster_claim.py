"""A cluster's claim to its name, beside a stream that holds one."""

from __future__ import annotations

from typing import Any, cast

import pytest
from nats.js.api import RawStreamMsg, StreamConfig, StreamInfo, StreamState

from trellis.bus.accounts.claim import Claim
from trellis.bus.accounts.naming import CLAIM_STREAM
from trellis.bus.errors import ClusterNameInUse


class Stream:
    """JetStream with one claim; ``written`` are the bodies that were published."""

    def __init__(self, claim: bytes) -> None:
        self.written: list[bytes] = []
        self._claim = claim

    async def get_last_msg(self, _stream: str, subject: str) -> RawStreamMsg:
        return RawStreamMsg(subject=subject, seq=7, data=self._claim)

    async def stream_info(self, _stream: str) -> StreamInfo:
        state = StreamState(messages=1, bytes=1, first_seq=7, last_seq=7, consumer_count=0)
        return StreamInfo(config=StreamConfig(name=CLAIM_STREAM, max_age=60.0), state=state)

    async def publish(self, _subject: str, body: bytes, **_: Any) -> None:
        self.written.append(body)


@pytest.mark.parametrize("held", [b'{"uid":"other","service":"provisioner"}', b"kept by hand"])
async def test_the_name_that_another_cluster_holds_is_left_alone(held: bytes) -> None:
    stream = Stream(held)
    with pytest.raises(ClusterNameInUse):
        await Claim("east", "ours", "provisioner").hold(cast("Any", stream))
    assert stream.written == []


async def test_an_own_claim_is_refreshed_when_it_is_time() -> None:
    stream = Stream(b'{"uid":"ours","service":"node_watcher"}')
    claim = Claim("east", "ours", "provisioner")
    await claim.hold(cast("Any", stream))
    await claim.hold(cast("Any", stream))
    assert len(stream.written) == 1
