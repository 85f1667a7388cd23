"""Requests to the API server of a local cluster while the server is busy."""

from __future__ import annotations

import ssl

import pytest

from trellis_dev.localcluster import api
from trellis_dev.localcluster.api import Api

Answer = tuple[int, bytes, int | None]


class Busy(Api):
    """Answers in this order, without a connection."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, *answers: Answer) -> None:
        monkeypatch.setattr(ssl, "create_default_context", lambda **_: ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT))
        super().__init__(1, "token", "")
        self.answers = list(answers)
        self.waits: list[float] = []
        monkeypatch.setattr(api.time, "sleep", self.waits.append)

    def _exchange(self, *_: object) -> Answer:
        return self.answers.pop(0)


def test_a_request_of_a_busy_server_is_sent_again_when_it_requests(monkeypatch: pytest.MonkeyPatch) -> None:
    busy = Busy(monkeypatch, (429, b"{}", 1), (429, b"{}", 2), (200, b'{"items": []}', None))
    assert busy.call("GET", "/api/v1/nodes") == (200, {"items": []})
    assert busy.waits == [1, 2]


def test_a_refusal_without_a_time_is_an_answer(monkeypatch: pytest.MonkeyPatch) -> None:
    busy = Busy(monkeypatch, (429, b'{"reason": "TooManyRequests"}', None))
    assert busy.call("POST", "/eviction", {}) == (429, {"reason": "TooManyRequests"})


def test_a_server_that_stays_busy_is_an_answer(monkeypatch: pytest.MonkeyPatch) -> None:
    busy = Busy(monkeypatch, *[(429, b"{}", 1)] * 20)
    assert busy.call("GET", "/api/v1/nodes") == (429, {})
    assert len(busy.waits) == 10
