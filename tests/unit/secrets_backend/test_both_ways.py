"""Messages between the crates of a wasmCloud host and Trellis, recorded by tests/data/secrets/record.py."""

import base64
import json
from pathlib import Path
from typing import Any

import pytest
from nacl.public import Box, PrivateKey, PublicKey

from secrets_backend.domain.protocol import HOST_KEY_HEADER, Request, open_request, seal_reply, success
from secrets_backend.domain.tokens import TokenError, TokenKind, read_token
from support.secrets.opened_requests import KEYS
from support.secrets.secret_requests import ENTITY_JWT, HOST_JWT, NOW, SERVER_SEED, X, nkey_seed

RECORDED: dict[str, Any] = json.loads((Path(__file__).parents[2] / "data" / "secrets" / "both_ways.json").read_text())
REQUESTS: list[dict[str, Any]] = RECORDED["requests"]
ANSWERS: list[dict[str, Any]] = RECORDED["answers"]
TOKENS: list[dict[str, Any]] = RECORDED["tokens"]
# Recorded in 2026, judged as of January 2027.
BY_THE_CLOCK = {
    "valid from now",
    "valid for another second",
    "all that is optional",
    "expired this second",
    "expired a second ago",
}
# RFC 7515: who does not know an extension refuses. RFC 8032: a key of low order signs for everybody.
STRICTER = {
    "a header that is a list",
    "an extension that must be understood",
    "an empty list of extensions",
    *(f"iss of the kind {kind}" for kind in "CMNOUXV"),
    *(f"sub of the kind {kind}" for kind in "ACOUX"),
    "sub a seed",
    "sub in lower case",
    "sub with a wrong checksum",
    "sub a name",
    "sub a curve key",
    "wascap left out",
    "wascap null",
    "a revision that is 2^31",
    "the identity as key",
    "the identity, not canonical",
    "zero as key",
}
# A name twice: the Go server's reading. No hash: it proves nothing, and the Go server asks for none.
LAXER = {"a claim twice, the last counts", "an empty wascap claim"}


def opened(made: dict[str, Any]) -> Request:
    return open_request({HOST_KEY_HEADER: made["header"]}, bytes.fromhex(made["payload"]), KEYS, NOW).request()


def test_the_recorded_requests_use_the_keys_and_tokens_of_these_tests() -> None:
    assert RECORDED["server_seed"] == SERVER_SEED
    assert {ENTITY_JWT, HOST_JWT} <= {token["token"] for token in TOKENS if token["case"] == "good"}


@pytest.mark.parametrize("made", REQUESTS, ids=lambda made: json.dumps(made["asked"]["properties"]))
def test_a_request_of_the_crates_is_understood(made: dict[str, Any]) -> None:
    request, requested = opened(made), made["asked"]
    assert (request.secret, request.field, request.application) == (
        requested["key"],
        requested["field"],
        requested["application"],
    )
    assert request.policy.namespace == requested["properties"].get("namespace", "default")
    assert request.policy.impersonate == requested["properties"].get("impersonate")
    assert (request.entity.issuer, request.entity.subject) == (made["issuer"], made["entity"])
    assert (request.host.issuer, request.host.subject) == (made["host_issuer"], made["host"])
    assert request.reply_to == made["header"]


@pytest.mark.parametrize("sent", ANSWERS, ids=lambda sent: sent.get("error", f"{sent.get('value', '')[:16]}…"))
def test_an_answer_of_trellis_is_decoded_by_the_rust_crates(sent: dict[str, Any]) -> None:
    if "error" in sent:
        assert "error" in sent["read"]
        assert list(sent["read"]) == ["error"]
        return
    value = bytes.fromhex(sent["value"])
    try:
        wanted = {"version": "4711", "string": value.decode(), "bytes": None}
    except UnicodeDecodeError:
        wanted = {"version": "4711", "string": None, "bytes": list(value)}
    assert sent["read"] == wanted


@pytest.mark.parametrize(
    "sent", [answer for answer in ANSWERS if "value" in answer], ids=lambda sent: f"{sent['value'][:16]}…"
)
def test_a_sealed_answer_equals_the_answer_that_the_crates_have_read(sent: dict[str, Any]) -> None:
    """The recorded box holds byte for byte what ``success`` writes today."""
    value = base64.b64encode(bytes.fromhex(sent["value"])).decode()
    secret = {"metadata": {"resourceVersion": "4711"}, "data": {"f": value}}
    request = opened(REQUESTS[0])
    payload, headers = seal_reply(request, success(secret, "f"))
    host = _secret_of(sent["seed"])
    now = _open(host, next(iter(headers.values())), payload)
    assert now == _open(host, sent["header"], bytes.fromhex(sent["payload"]))


def test_every_token_of_the_tables_is_judged_as_wascap_judges_it_but_for_the_differences_that_are_named() -> None:
    stricter, laxer = set(), set()
    for token in TOKENS:
        taken = _taken(token)
        if taken and token["refused"]:
            laxer.add(token["case"])
        if not taken and not token["refused"]:
            stricter.add(token["case"])
    assert stricter - BY_THE_CLOCK == STRICTER
    assert laxer - BY_THE_CLOCK == LAXER


def _taken(one: dict[str, Any]) -> bool:
    try:
        read_token(one["token"], TokenKind.HOST if one["side"] == "host" else TokenKind.ENTITY, NOW)
    except TokenError:
        return False
    return True


def _secret_of(seed: str) -> PrivateKey:
    raw = base64.b32decode(seed + "======")[2:34]
    assert nkey_seed(X, raw) == seed
    return PrivateKey(raw)


def _open(receiver: PrivateKey, sender: str, payload: bytes) -> bytes:
    return bytes(Box(receiver, PublicKey(base64.b32decode(sender)[1:33])).decrypt(payload[4:]))
