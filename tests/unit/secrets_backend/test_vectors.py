"""Keys, boxes and tokens that the Rust crates nkeys and wascap made, as recorded in tests/data/secrets."""

import json
from pathlib import Path
from typing import Any

import pytest
from nacl.signing import SigningKey

from secrets_backend.domain.box import BoxError, unseal
from secrets_backend.domain.keys import CurveKey, KeyRing
from secrets_backend.domain.protocol import HOST_KEY_HEADER, open_request
from secrets_backend.domain.tokens import TokenError, TokenKind, read_token
from trellis.config.nkey import KeyFormatError, Prefix, decode_public, decode_seed, encode_public

RECORDED: dict[str, Any] = json.loads((Path(__file__).parents[2] / "data" / "secrets" / "vectors.json").read_text())
NOW = 1_795_240_000.0
KEYS: dict[str, dict[str, str]] = RECORDED["keys"]
CURVE_KEYS = [name for name, pair in KEYS.items() if pair["seed"].startswith("SX")]
KINDS = {"account": Prefix.ACCOUNT, "component": Prefix.COMPONENT, "host": Prefix.HOST, "provider": Prefix.PROVIDER}


@pytest.mark.parametrize("name", CURVE_KEYS)
def test_a_seed_of_rust_gives_the_same_key(name: str) -> None:
    key = CurveKey.from_seed(KEYS[name]["seed"])
    assert key.public == KEYS[name]["public"]
    assert key.seed() == KEYS[name]["seed"]
    assert decode_public(key.public, Prefix.CURVE).hex() == KEYS[name]["x25519_public_hex"]


@pytest.mark.parametrize("name", KINDS)
def test_a_signing_seed_of_rust_gives_the_same_public_key(name: str) -> None:
    key = SigningKey(decode_seed(KEYS[name]["seed"], KINDS[name]))
    assert encode_public(KINDS[name], key.verify_key.encode()) == KEYS[name]["public"]


@pytest.mark.parametrize("name", KINDS)
def test_a_public_key_of_rust_is_of_its_kind_and_of_no_other(name: str) -> None:
    decode_public(KEYS[name]["public"], KINDS[name])
    others = [kind for kind in Prefix if kind is not KINDS[name]]
    with pytest.raises(KeyFormatError) as refused:
        decode_public(KEYS[name]["public"], *others)
    assert [kind for kind in others if f"{kind.letter}…" not in str(refused.value)] == []


@pytest.mark.parametrize("box", RECORDED["boxes"], ids=lambda box: box["name"])
def test_a_box_that_rust_sealed_opens(box: dict[str, Any]) -> None:
    keys = KeyRing(CurveKey.make(), (CurveKey.from_seed(box["to"]["seed"]),))
    assert unseal(bytes.fromhex(box["sealed_hex"]), keys, box["from"]["public"]) == bytes.fromhex(box["plaintext_hex"])


@pytest.mark.parametrize("box", RECORDED["bad_boxes"], ids=lambda box: box["name"])
def test_a_box_that_rust_refuses_is_refused(box: dict[str, Any]) -> None:
    with pytest.raises(BoxError):
        unseal(bytes.fromhex(box["sealed_hex"]), KeyRing(CurveKey.from_seed(box["to_seed"])), box["from"])


@pytest.mark.parametrize("token", RECORDED["jwts"], ids=lambda token: f"{token['kind']}: {token['what']}")
def test_a_token_of_wascap_is_taken_while_it_is_valid(token: dict[str, Any]) -> None:
    kind = TokenKind.HOST if token["kind"] == "host" else TokenKind.ENTITY
    if token["expect"] == "accept":
        assert read_token(token["jwt"], kind, NOW).subject == KEYS[token["kind"]]["public"]
    else:
        with pytest.raises(TokenError, match="expired"):
            read_token(token["jwt"], kind, NOW)
        assert read_token(token["jwt"], kind, 1_599_999_999.0).name == "vector"


def test_a_whole_request_of_rust_is_understood() -> None:
    box = RECORDED["boxes"][0]
    keys = KeyRing(CurveKey.from_seed(KEYS["server_xkey"]["seed"]))
    request = open_request(
        {HOST_KEY_HEADER: box["from"]["public"]}, bytes.fromhex(box["sealed_hex"]), keys, NOW
    ).request()
    assert (request.secret, request.field, request.application) == ("app-secrets", "some-password", "shop")
    assert (request.policy.namespace, request.policy.impersonate) == ("team-a", "reader")
    assert (request.entity.subject, request.host.subject) == (KEYS["component"]["public"], KEYS["host"]["public"])
