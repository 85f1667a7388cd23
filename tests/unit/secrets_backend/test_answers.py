"""Answers: a secret sealed for the requester, or a refusal in the protocol's words."""

import base64
import json
import os
import pickle
from typing import Any

import pytest
from nacl.exceptions import CryptoError
from nacl.public import PrivateKey

from secrets_backend.domain.keys import CurveKey, KeyRing
from secrets_backend.domain.protocol import Request, seal_reply, success
from secrets_backend.domain.refusals import WITH_MESSAGE, ErrorName, Refusal
from support.secrets.opened_requests import accepted, message
from support.secrets.secret_requests import RESPONSE_HEADER, SERVER_SEED, asking, opened

VALUES: dict[str, bytes] = {
    "text": b"hunter2",
    "nothing": b"",
    "a line break": b"a\r\nb\n",
    "quotes and backslashes": b'"\\"',
    "letters outside of ASCII": "pässword✓".encode(),
    "beyond the first plane": "\U0001f600".encode(),
    "control characters": bytes(range(32)),
    "a zero byte": b"a\0b",
    "a byte order mark": b"\xef\xbb\xbfa",
    "what looks like JSON": b'{"secret": null}',
    "U+FFFD itself": "\ufffd".encode(),
    "a mebibyte of text": b"x" * 2**20,
    "bytes": b"\xff\xfe\x00\x01",
    "one byte": b"\x80",
    "all bytes": bytes(range(256)),
    "text with one wrong byte": b"password\xff",
    "an overlong form": b"\xc0\x80",
    "half of a surrogate pair": b"\xed\xa0\x80",
    "beyond Unicode": b"\xf4\x90\x80\x80",
    "a letter cut off": "é".encode()[:1],
    "random bytes": os.urandom(1000) + b"\xff",
}


def secret(**data: bytes) -> dict[str, Any]:
    entries = {name: base64.b64encode(value).decode() for name, value in data.items()}
    return {"metadata": {"name": "app-secrets", "resourceVersion": "4711"}, "data": entries, "type": "Opaque"}


@pytest.fixture
def request_() -> Request:
    return accepted(message(asking()))


@pytest.mark.parametrize("case", VALUES)
def test_a_value_arrives_as_it_is(case: str, request_: Request) -> None:
    """As a host reads it: a version that is a text, and exactly one value."""
    value = VALUES[case]
    payload, headers = seal_reply(request_, success(secret(field=value, other=b"other"), "field"))
    answered = json.loads(opened(payload, headers))
    assert list(answered) == ["secret"]
    found = answered["secret"]
    assert found.pop("version") == "4711"
    try:
        assert found == {"string_secret": value.decode()}
    except UnicodeDecodeError:
        assert found == {"binary_secret": list(value)}


def test_the_header_of_an_answer_is_the_one_a_host_looks_for(request_: Request) -> None:
    _, headers = seal_reply(request_, b"{}")
    assert list(headers) == [RESPONSE_HEADER]
    assert len(headers[RESPONSE_HEADER]) == 56


def test_each_answer_is_sealed_with_a_key_of_its_own(request_: Request) -> None:
    answers = [seal_reply(request_, b"{}") for _ in range(50)]
    assert len({headers[RESPONSE_HEADER] for _, headers in answers}) == 50
    assert len({payload[:28] for payload, _ in answers}) == 50


def test_only_the_requester_can_decrypt_an_answer(request_: Request) -> None:
    payload, headers = seal_reply(request_, b"{}")
    with pytest.raises(CryptoError):
        opened(payload, headers, PrivateKey.generate())
    with pytest.raises(CryptoError):
        opened(payload, headers, PrivateKey(b"s" * 32))


def test_an_answer_to_no_key_is_an_encryption_error(request_: Request) -> None:
    broken = Request(**{name: getattr(request_, name) for name in Request.__slots__} | {"reply_to": "X"})
    with pytest.raises(Refusal) as caught:
        seal_reply(broken, b"hunter2")
    assert caught.value.body() == b'{"error":"EncryptionError"}'
    assert caught.value.__context__ is None


NO_ENTRY: dict[str, dict[str, Any]] = {
    "no entry of that name": secret(other=b"x"),
    "no entries": secret(),
    "entries that are null": secret() | {"data": None},
    "no data at all": {"metadata": {"resourceVersion": "1"}},
    "the entry in another case": secret(FIELD=b"x"),
}


@pytest.mark.parametrize("case", NO_ENTRY)
def test_a_secret_without_the_entry_is_not_found(case: str) -> None:
    with pytest.raises(Refusal) as caught:
        success(NO_ENTRY[case], "field")
    assert caught.value.body() == b'{"error":"SecretNotFound"}'


@pytest.mark.parametrize("name", ErrorName)
def test_a_refusal_is_what_serde_writes(name: ErrorName) -> None:
    body = json.loads(Refusal(name, 'why "so"\n✓').body())
    assert body == {"error": {name.value: 'why "so"\n✓'} if name in WITH_MESSAGE else name.value}


def test_a_refusal_with_any_text_can_be_sent() -> None:
    """A message from elsewhere may hold half of a surrogate pair, which is no JSON."""
    assert json.loads(Refusal(ErrorName.UPSTREAM, "a\ud800b").body()) == {"error": {"UpstreamError": "a?b"}}
    assert json.loads(Refusal(ErrorName.OTHER, "").body()) == {"error": {"Other": ""}}


def test_a_key_shows_its_public_half_only() -> None:
    key = CurveKey.from_seed(SERVER_SEED)
    shown = f"{key} {key!r} {KeyRing(key, (key,))!r} {[key]} {{'k': key}}"
    assert SERVER_SEED not in shown
    assert repr(key) == f"CurveKey({key.public})"
    assert not hasattr(key, "__dict__")


def test_a_key_does_not_leave_the_process_by_pickle() -> None:
    with pytest.raises(TypeError, match="not pickled"):
        pickle.dumps(KeyRing(CurveKey.make()))


def test_keys_are_equal_if_their_seeds_are() -> None:
    item, same, other = CurveKey.from_seed(SERVER_SEED), CurveKey.from_seed(SERVER_SEED), CurveKey.make()
    assert item == same
    assert len({item, same, other}) == 2
    assert item != other
    assert item != SERVER_SEED
    assert CurveKey.from_seed(other.seed()) == other
