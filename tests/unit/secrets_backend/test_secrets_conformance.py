"""The judge of secrets backends: what a host cannot read is no answer, and no case is there twice."""

from __future__ import annotations

import json
from types import SimpleNamespace
from typing import Any

import pytest

from support.secrets.secrets_client import Key, Reply
from support.secrets.secrets_conformance.cases import (
    Expected,
    Line,
    Refusal,
    UnreadableError,
    Value,
    granted,
    granted_bytes,
    read,
    read_key,
    refused,
)
from support.secrets.secrets_conformance.table import CASES
from support.secrets.secrets_conformance.world import RESPONSE_XKEY

FRESH, SERVERS = "XFRESH", "XSERVER"
WORLD: Any = SimpleNamespace(client=SimpleNamespace(open=lambda data, *_: data), server_xkey=SERVERS)
HOST = Key("XHOST", "SXHOST")


def sealed(body: object, key: str = FRESH) -> Reply:
    return Reply(json.dumps(body).encode(), ((RESPONSE_XKEY, key),))


def bare(body: object) -> Reply:
    return Reply(json.dumps(body).encode(), ())


def secret(**about: object) -> dict[str, Any]:
    return {"secret": {"version": "7", **about}}


def test_no_case_is_there_twice() -> None:
    ids = [case.id for case in CASES]
    assert len(ids) == len(set(ids)) >= 169


@pytest.mark.parametrize(
    ("reply", "outcome"),
    [
        (sealed(secret(string_secret="")), Value(text="")),
        (sealed(secret(string_secret="a", binary_secret=None)), Value(text="a")),
        (sealed(secret(binary_secret=[0, 255])), Value(binary=b"\x00\xff")),
        (bare({"error": "SecretNotFound"}), Refusal("SecretNotFound")),
        (bare({"error": {"PolicyError": "why"}}), Refusal("PolicyError", "why")),
    ],
)
def test_a_reply_that_a_host_reads_is_read(reply: Reply, outcome: Value | Refusal) -> None:
    assert read(WORLD, reply, HOST) == outcome


@pytest.mark.parametrize(
    "reply",
    [
        sealed(secret(string_secret="a"), SERVERS),
        sealed(secret()),
        sealed(secret(string_secret="a", binary_secret=[1])),
        sealed(secret(binary_secret="AAE=")),
        sealed(secret(binary_secret=[256])),
        sealed(secret(binary_secret=[True])),
        sealed({"secret": {"string_secret": "a"}}),
        sealed({"secret": {"version": 7, "string_secret": "a"}}),
        sealed({"error": "SecretNotFound"}),
        bare(secret(string_secret="a")),
        bare({"error": {"SecretNotFound": "why"}}),
        bare({"error": "PolicyError"}),
        bare({"error": "Broken"}),
        bare({"error": {"PolicyError": None}}),
        bare([]),
        Reply(b"", ()),
    ],
)
def test_a_reply_that_a_host_cannot_read_is_no_answer(reply: Reply) -> None:
    with pytest.raises(UnreadableError):
        read(WORLD, reply, HOST)


def test_a_key_comes_alone() -> None:
    assert read_key(Reply(SERVERS.encode(), ())) == Line(SERVERS)
    with pytest.raises(UnreadableError):
        read_key(Reply(SERVERS.encode(), (("X-Other", "1"),)))


def test_only_the_expected_value_is_accepted() -> None:
    assert granted("a").allows(Value(text="a"), SERVERS)
    assert not granted("a").allows(Value(text="b"), SERVERS)
    assert not granted("a").allows(Value(binary=b"a"), SERVERS)
    assert not granted_bytes(b"a").allows(Value(text="a"), SERVERS)
    assert refused("Other", says="no").allows(Refusal("Other", "it is no"), SERVERS)
    assert not refused("Other", says="no").allows(Refusal("Other", "it is"), SERVERS)
    assert not refused("Other").allows(Refusal("PolicyError", ""), SERVERS)
    assert not refused().allows(None, SERVERS)
    assert Expected(key=True).allows(Line(SERVERS), SERVERS)
    assert not Expected(key=True).allows(Line(SERVERS + "\n"), SERVERS)
