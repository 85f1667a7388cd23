"""Requests to a guest and its results."""

from __future__ import annotations

import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st

from controller_host.domain.results import (
    WAIT_MAX,
    Result,
    init_request,
    migrate_request,
    read_result,
    reconcile_request,
)

KEY = {"apiVersion": "v1", "kind": "ConfigMap", "namespace": "a", "name": "x"}


def test_a_request_has_key_object_attempt_and_trace() -> None:
    found = orjson.loads(reconcile_request(KEY, b'{"a":1}', 2, "00-1-2-01"))
    assert found == {"key": KEY, "object": {"a": 1}, "attempt": 2, "traceparent": "00-1-2-01"}
    assert orjson.loads(reconcile_request(KEY, None, 0, None)) == {"key": KEY, "object": None, "attempt": 0}


def test_init_has_config_and_data_and_migrate_what_was_saved_besides() -> None:
    init = init_request(("a", "c"), b'{"next":"x"}', ({"m": {"k": "v"}}, {"s": {"p": "cA=="}}))
    found = orjson.loads(init)
    assert found == {
        "controller": {"namespace": "a", "name": "c"},
        "config": {"next": "x"},
        "configMaps": {"m": {"k": "v"}},
        "secrets": {"s": {"p": "cA=="}},
    }
    assert orjson.loads(migrate_request(init, "sha", b'{"n":1}')) == found | {
        "from": {"sha256": "sha", "state": {"n": 1}}
    }


@pytest.mark.parametrize(
    ("answer", "requeue_ms", "result"),
    [
        (b"", None, Result()),
        (b"{}", None, Result()),
        (b'{"more":1}', None, Result()),
        (b'{"requeueAfter":30}', None, Result(again=30)),
        (b'{"requeueAfter":0}', None, Result(again=0)),
        (b'{"requeueAfter":30}', 1500, Result(again=1.5)),
        (b'{"requeueAfter":1}', 1500, Result(again=1)),
        (b"{}", 1500, Result(again=1.5)),
        (b"{}", -5, Result(again=0)),
        (b'{"requeueAfter":1e300}', None, Result(again=WAIT_MAX)),
        (b'{"error":"no such host"}', 10, Result("no such host")),
        (b'{"error":"two\\nlines\\u001b[0m"}', None, Result("two lines [0m")),
        (b'{"error":{"code":7}}', None, Result('{"code":7}')),
    ],
)
def test_results(answer: bytes, requeue_ms: int | None, result: Result) -> None:
    assert read_result(answer, requeue_ms) == result


@pytest.mark.parametrize(
    "answer",
    [
        b'{"error":""}',
        b"{",
        b"[]",
        b"7",
        b"null",
        b"\xff",
        b'{"requeueAfter":-1}',
        b'{"requeueAfter":"1s"}',
        b'{"requeueAfter":true}',
    ],
)
def test_an_invalid_result_is_a_failure(answer: bytes) -> None:
    assert read_result(answer).error


@given(st.binary(max_size=40))
def test_any_result_of_a_guest_has_a_meaning(answer: bytes) -> None:
    assert len(read_result(answer).error) <= 1024


def test_an_error_has_a_bounded_length() -> None:
    assert len(read_result(orjson.dumps({"error": "x" * 100_000})).error) == 1024
