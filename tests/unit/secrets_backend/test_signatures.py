"""The signer of a token: each case for the entity's and the host's, within a whole request."""

import base64
import json
from collections.abc import Callable
from typing import Final

import pytest

from support.secrets.secret_requests import (
    COMPONENT,
    ENTITY_JWT,
    HEADER,
    HOST,
    HOST_JWT,
    A,
    Signer,
    b64,
    jwt,
    nkey,
)
from support.secrets.token_sides import ENTITY, SIDES, Side, cut, stopped

both = pytest.mark.parametrize("side", SIDES.values(), ids=SIDES)
L: Final = 2**252 + 27742317777372353535851937790883648493


def _larger_s(token: str) -> str:
    """The signature with S + L, which a check that is not strict takes for the same."""
    signed, _, signature = token.rpartition(".")
    raw = bytearray(base64.urlsafe_b64decode(signature + "=="))
    raw[32:] = (int.from_bytes(raw[32:], "little") + L).to_bytes(32, "little")
    return f"{signed}.{b64(bytes(raw))}"


def _of_low_order(side: Side, point: bytes) -> str:
    """Unsigned: with such a key, R = the key (or the identity) and S = 0 fit about any text."""
    claims = json.dumps(side.claims(iss=nkey(A, point))).encode()
    signed = f"{b64(json.dumps(HEADER).encode())}.{b64(claims)}"
    return f"{signed}.{b64(bytes([1]) + bytes(31) + bytes(32))}"


IDENTITY = bytes([1]) + bytes(31)
SIGNATURES: dict[str, Callable[[Side], str]] = {
    "signed by somebody else": lambda side: jwt(side.claims(), Signer("somebody else", A)),
    "signed by the subject": lambda side: jwt(side.claims(), COMPONENT if side is ENTITY else HOST),
    "the signature of the other token": lambda side: (
        side.signed().rpartition(".")[0] + "." + (HOST_JWT if side is ENTITY else ENTITY_JWT).rpartition(".")[2]
    ),
    "the claims changed after it": lambda side: cut(
        side.signed(), 1, lambda _: b64(json.dumps(side.claims(jti="2")).encode())
    ),
    "the header changed after it": lambda side: cut(
        side.signed(), 0, lambda _: b64(json.dumps(HEADER | {"kid": "2"}).encode())
    ),
    "zeros": lambda side: cut(side.signed(), 2, lambda _: b64(bytes(64))),
    "63 bytes": lambda side: cut(side.signed(), 2, lambda _: b64(bytes(63))),
    "65 bytes": lambda side: cut(side.signed(), 2, lambda text: b64(base64.urlsafe_b64decode(text + "==") + b"\0")),
    "in base16": lambda side: cut(side.signed(), 2, lambda _: side.issuer.sign(b"").hex()),
    "S larger than it may be": lambda side: _larger_s(side.signed()),
    "the identity as key": lambda side: _of_low_order(side, IDENTITY),
    "zero as key": lambda side: _of_low_order(side, bytes(32)),
    "a key of order 2": lambda side: _of_low_order(side, (2**255 - 20).to_bytes(32, "little")),
    "the identity, not canonical": lambda side: _of_low_order(side, (2**255 - 18).to_bytes(32, "little")),
    "a key that is no point": lambda side: _of_low_order(side, bytes([2]) + bytes(31)),
}


@both
@pytest.mark.parametrize("case", SIGNATURES)
def test_a_signature_that_is_not_the_issuers_is_what_stops_a_token(case: str, side: Side) -> None:
    assert stopped(side, SIGNATURES[case](side)) == stopped(side, SIGNATURES["signed by somebody else"](side))
