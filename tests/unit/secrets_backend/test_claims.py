"""The claims of tokens and their validity: each case for the entity's and the host's, within a whole request."""

import json
from collections.abc import Callable
from typing import Any

import pytest

from support.secrets.opened_requests import accepted, message, refusal
from support.secrets.secret_requests import (
    COMPONENT,
    OPERATOR,
    PROVIDER,
    SENDER_PUBLIC,
    A,
    Absent,
    C,
    M,
    N,
    Signer,
    U,
    X,
    nkey,
    nkey_seed,
)
from support.secrets.token_sides import ENTITY, SECOND, SIDES, Side, claim, stopped

both = pytest.mark.parametrize("side", SIDES.values(), ids=SIDES)
TEXTS_OF_CLAIMS: dict[str, Callable[[Side], str]] = {
    **{
        f"{name} {kind}": claim(**{name: value})
        for name in ("iss", "sub", "jti")
        for kind, value in {
            "left out": Absent,
            "null": None,
            "5": 5,
            "true": True,
            "a list": ["A"],
            "an object": {},
        }.items()
    },
    "iss empty": claim(iss=""),
    "sub empty": claim(sub=""),
    "iss outside of ASCII": claim(iss="Ä" * 56),
    "iss in lower case": lambda side: side.signed(iss=side.issuer.public.lower()),
    "iss with the last letter off": lambda side: side.signed(iss=side.issuer.public[:-1]),
    "iss with a letter more": lambda side: side.signed(iss=side.issuer.public + "A"),
    "iss with a blank": lambda side: side.signed(iss=side.issuer.public + " "),
    "iss with padding": lambda side: side.signed(iss=side.issuer.public + "===="),
    "iss with a wrong checksum": lambda side: side.signed(iss=side.issuer.public[:-4] + "AAAA"),
    "iss of 31 bytes": lambda side: side.signed(iss=nkey(A, side.issuer.raw_public[:31])),
    "iss of 33 bytes": lambda side: side.signed(iss=nkey(A, side.issuer.raw_public + b"\0")),
    "iss a seed": lambda side: side.signed(iss=side.issuer.seed),
    "iss a seed without its second letter": lambda side: side.signed(iss=nkey_seed(A, bytes(30))),
    "iss with a bit too many": lambda side: side.signed(iss=nkey(1, side.issuer.raw_public)),
    **{
        f"iss of the kind {letter}": lambda side, prefix=prefix: side.signed(iss=nkey(prefix, side.issuer.raw_public))
        for letter, prefix in {"C": C, "M": M, "N": N, "O": OPERATOR, "U": U, "X": X, "V": 168}.items()
    },
    "iss somebody else": claim(iss=PROVIDER.public.replace("V", "A", 1)),
    "iss another account": lambda side: side.signed(iss=Signer("another", A).public),
    **{
        f"sub of the kind {letter}": claim(sub=nkey(prefix, bytes(32)))
        for letter, prefix in {"A": A, "C": C, "O": OPERATOR, "U": U, "X": X}.items()
    },
    "sub a seed": claim(sub=nkey_seed(M, bytes(32))),
    "sub in lower case": claim(sub=COMPONENT.public.lower()),
    "sub with a wrong checksum": lambda side: side.signed(sub=side.claims()["sub"][:-4] + "AAAA"),
    "sub a name": claim(sub="echo"),
    "sub a curve key": claim(sub=SENDER_PUBLIC),
}
NO_TIME: dict[str, Any] = {
    "a text": "1800000001",
    "a fraction": SECOND + 1.5,
    "a whole number with a point": float(SECOND + 1),
    "true": True,
    "false": False,
    "-1": -1,
    "-0.0": -0.0,
    "beyond 64 bits": 2**64,
    "a list": [SECOND + 1],
    "an object": {},
    "a date": "2030-01-01T00:00:00Z",
}
TIMES: dict[str, Callable[[Side], str]] = {
    **{f"{name} {kind}": claim(**{name: value}) for name in ("exp", "nbf", "iat") for kind, value in NO_TIME.items()},
    "iat left out": claim(iat=Absent),
    "iat null": claim(iat=None),
    "expired this second": claim(exp=SECOND),
    "expired a second ago": claim(exp=SECOND - 1),
    "expired in 1970": claim(exp=0),
    "expired at -0": lambda side: side.signed(json.dumps(side.claims()).encode()[:-1] + b',"exp":-0}'),
    "exp with an exponent": lambda side: side.signed(json.dumps(side.claims()).encode()[:-1] + b',"exp":2e9}'),
    "exp beyond all numbers": lambda side: side.signed(json.dumps(side.claims()).encode()[:-1] + b',"exp":1e999}'),
    "valid from the next second": claim(nbf=SECOND + 1),
    "valid from the end of time": claim(nbf=2**64 - 1),
    "expired before it is valid": claim(exp=SECOND, nbf=SECOND + 1),
}
OTHER_CLAIMS: dict[str, Callable[[Side], str]] = {
    **{
        f"wascap {kind}": claim(wascap=value)
        for kind, value in {
            "left out": Absent,
            "null": None,
            "a text": "{}",
            "a list": [],
            "5": 5,
            "true": True,
        }.items()
    },
    **{
        f"a name that is {kind}": claim(**{"wascap.name": value})
        for kind, value in {"5": 5, "true": True, "a list": [], "an object": {}}.items()
    },
    **{
        f"a revision that is {kind}": claim(wascap_revision=value)
        for kind, value in {"a text": "3", "3.0": 3.0, "-1": -1, "2^31": 2**31, "true": True, "a list": []}.items()
    },
}

REFUSED = TEXTS_OF_CLAIMS | TIMES | OTHER_CLAIMS


@both
@pytest.mark.parametrize("case", REFUSED)
def test_a_token_is_refused_in_the_protocols_words_without_a_word_of_it(case: str, side: Side) -> None:
    stopped(side, REFUSED[case](side))


@pytest.mark.parametrize(("now", "taken"), [(SECOND - 0.001, True), (float(SECOND), False), (SECOND + 0.001, False)])
def test_a_token_ends_at_the_second_it_names(now: float, taken: bool) -> None:
    opening = message(ENTITY.asks(ENTITY.signed(exp=SECOND)), now=now)
    if taken:
        accepted(opening)
    else:
        assert f"(exp {SECOND}, now {int(now)})" in refusal(opening).message


@pytest.mark.parametrize(("now", "taken"), [(SECOND - 0.001, False), (float(SECOND), True)])
def test_a_token_begins_at_the_second_it_names(now: float, taken: bool) -> None:
    opening = message(ENTITY.asks(ENTITY.signed(nbf=SECOND)), now=now)
    if taken:
        accepted(opening)
    else:
        assert f"(nbf {SECOND}, now {int(now)})" in refusal(opening).message
