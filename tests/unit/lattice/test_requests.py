"""The receiver of an answer: its requester, and nobody to whom the responder could not publish itself."""

from __future__ import annotations

from typing import cast

import pytest

from trellis.bus.connection.user_client import UserClient
from trellis.lattice.connection.requests import AnswerLost, IncomingRequest


class Client:
    max_payload = 1024

    def __init__(self) -> None:
        self.published: list[str] = []

    async def publish(self, subject: str, _: bytes, **__: object) -> None:
        self.published.append(subject)


def incoming(reply: str, client: Client) -> IncomingRequest:
    return IncomingRequest("asked", b"", None, 0.0, reply, cast("UserClient", client))


@pytest.mark.parametrize("reply", ["$JS.API.STREAM.PURGE.orders", "$SYS.REQ.SERVER.PING", "$KV.bucket.key"])
async def test_no_answer_goes_to_a_subject_of_nats_own(reply: str) -> None:
    client = Client()
    with pytest.raises(AnswerLost, match="reserved"):
        await incoming(reply, client).answer(b"{}")
    assert client.published == []


@pytest.mark.parametrize("reply", ["_INBOX.x", "_R_.x", "any.other"])
async def test_an_answer_reaches_its_request(reply: str) -> None:
    client = Client()
    await incoming(reply, client).answer(b"{}")
    assert client.published == [reply]


async def test_a_question_without_a_place_for_its_answer_has_none() -> None:
    client = Client()
    await incoming("", client).answer(b"{}")
    assert client.published == []
