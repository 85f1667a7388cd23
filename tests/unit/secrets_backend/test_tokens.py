"""The shape and header of tokens: each case for the entity's and the host's, within a whole request."""

import base64
import json
from collections.abc import Callable

import pytest

from secrets_backend.domain.tokens import Token
from support.secrets.opened_requests import accepted, message, refusal
from support.secrets.secret_requests import (
    ACCOUNT,
    COMPONENT,
    ENTITY_JWT,
    HEADER,
    HOST,
    HOST_ISSUER,
    HOST_JWT,
    PROVIDER,
    Absent,
    asking_with,
    entity_claims,
    jwt,
)
from support.secrets.token_sides import ENTITY, OF_HOST, SECOND, SIDES, Side, cut, header, resigned, stopped

both = pytest.mark.parametrize("side", SIDES.values(), ids=SIDES)
_ALL = {"exp": SECOND + 1, "nbf": SECOND, "aud": "x", "other": [1, {}], "wascap_revision": Absent}

TAKEN: dict[str, Callable[[Side], str]] = {
    "as wasmCloud makes it": lambda side: side.signed(),
    "valid for another second": lambda side: side.signed(exp=SECOND + 1),
    "valid for ever and longer": lambda side: side.signed(exp=2**64 - 1),
    "valid from now": lambda side: side.signed(nbf=SECOND),
    "valid since 1970": lambda side: side.signed(nbf=0),
    "no times but the one it was issued at": lambda side: side.signed(exp=None, nbf=None),
    "issued in the future": lambda side: side.signed(iat=SECOND + 1000),
    "issued in 1970": lambda side: side.signed(iat=0),
    "all that is optional": lambda side: side.signed(**_ALL),
    "no revision": lambda side: side.signed(wascap_revision=None),
    "the largest revision": lambda side: side.signed(wascap_revision=2**31 - 1),
    "an empty wascap claim": lambda side: side.signed(wascap={}),
    "no name": lambda side: side.signed(**{"wascap.name": None}),
    "an empty name": lambda side: side.signed(**{"wascap.name": ""}),
    "unknown members in the wascap claim": lambda side: side.signed(**{"wascap.x": [5]}),
    "a header in another order": lambda side: side.signed(header=b'{"alg":"Ed25519", "typ":"jwt"}'),
    "a header with a member more": lambda side: side.signed(header=HEADER | {"kid": "1"}),
    "a header with blanks": lambda side: side.signed(header=b' {"typ": "jwt", "alg": "Ed25519"}\n'),
    "claims with blanks": lambda side: side.signed(json.dumps(side.claims(), indent=4).encode()),
    "a claim twice, the last counts": lambda side: side.signed(b'{"sub":5,' + json.dumps(side.claims()).encode()[1:]),
    "another number": lambda side: side.signed(jti="0"),
    "an empty number": lambda side: side.signed(jti=""),
}


@both
@pytest.mark.parametrize("case", TAKEN)
def test_a_token_is_taken(case: str, side: Side) -> None:
    request = accepted(message(side.asks(TAKEN[case](side))))
    assert request.entity.subject == COMPONENT.public
    assert request.host.subject == HOST.public


def _stray(text: str) -> str:
    """The same bytes in another text: other last bits, which are not read."""
    alphabet = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_"
    assert len(text) % 4 in (2, 3)
    return text[:-1] + alphabet[alphabet.index(text[-1]) + 1]


SHAPE: dict[str, Callable[[Side], str]] = {
    "empty": lambda _: "",
    "one part": lambda _: "abc",
    "two parts": lambda side: side.signed().rpartition(".")[0],
    "no signature": lambda side: side.signed().rpartition(".")[0] + ".",
    "four parts": lambda side: side.signed() + ".e30",
    "five parts, as of an encrypted one": lambda _: "e30.e30.e30.e30.e30",
    "a dot in front": lambda side: "." + side.signed(),
    "dots alone": lambda _: "..",
    "a hundred thousand dots": lambda _: "." * 100_000,
    "a blank in front": lambda side: " " + side.signed(),
    "a line break at the end": lambda side: side.signed() + "\n",
    "as in a header of HTTP": lambda side: "Bearer " + side.signed(),
    "letters outside of ASCII": lambda side: side.signed()[:-1] + "é",
    "a line break within": lambda side: cut(side.signed(), 1, lambda text: text[:8] + "\n" + text[8:]),
    "a letter nobody knows": lambda side: resigned(side, 1, lambda text: text + "!"),
    "a star within": lambda side: resigned(side, 0, lambda text: text[:4] + "*" + text[4:]),
    "padding after the header": lambda side: resigned(side, 0, lambda text: text + "="),
    "padding after the claims": lambda side: resigned(side, 1, lambda text: text + "=" * (-len(text) % 4 or 4)),
    "padding after the signature": lambda side: side.signed() + "==",
    "stray last bits of the signature": lambda side: cut(side.signed(), 2, _stray),
    "base64 of the other alphabet": lambda side: resigned(
        side, 1, lambda _: base64.b64encode(b'{"a":"' + b"\xc3\xbf" * 9 + b'"}').decode().rstrip("=")
    ),
    "one letter, which is no byte": lambda side: resigned(side, 1, lambda _: "A"),
    "JSON without base64": lambda side: resigned(side, 1, lambda _: json.dumps(side.claims())),
    "the token as JSON": lambda side: json.dumps(side.signed()),
    "a seed": lambda side: side.issuer.seed,
    "half a megabyte": lambda _: "A" * 500_000,
    "half a megabyte of claims": lambda _: "e30." + "A" * 500_000 + ".AA",
    "no header": lambda side: resigned(side, 0, lambda _: ""),
    "no claims": lambda side: resigned(side, 1, lambda _: ""),
    "a header that is no JSON": lambda side: side.signed(header=b"jwt"),
    "a header that is a list": lambda side: side.signed(header=["jwt", "Ed25519"]),
    "a header that is null": lambda side: side.signed(header=b"null"),
    "a header that is no UTF-8": lambda side: side.signed(header=b'{"typ":"jwt","alg":"Ed25519","x":"\xff"}'),
    "a header nested beyond measure": lambda side: side.signed(header=b"[" * 5000 + b"]" * 5000),
    "claims that are no JSON": lambda side: side.signed(b"claims"),
    "claims that are null": lambda side: side.signed(b"null"),
    "claims that are a list": lambda side: side.signed(b"[]"),
    "claims that are a text": lambda side: side.signed(b'"claims"'),
    "empty claims": lambda side: side.signed(b"{}"),
    "claims that are no UTF-8": lambda side: side.signed(json.dumps(side.claims()).encode()[:-1] + b',"x":"\xff"}'),
    "claims nested beyond measure": lambda side: side.signed(b'{"a":' * 5000 + b"1" + b"}" * 5000),
    "claims with NaN": lambda side: side.signed(json.dumps(side.claims()).encode()[:-1] + b',"x":NaN}'),
}
HEADERS: dict[str, Callable[[Side], str]] = {
    "typ in upper case": header(typ="JWT"),
    "no typ": header(typ=Absent),
    "typ null": header(typ=None),
    "typ a list": header(typ=["jwt"]),
    "alg EdDSA": header(alg="EdDSA"),
    "alg none": header(alg="none"),
    "alg in lower case": header(alg="ed25519"),
    "alg HS256": header(alg="HS256"),
    "no alg": header(alg=Absent),
    "alg null": header(alg=None),
    "alg a number": header(alg=25519),
    "alg a list": header(alg=["Ed25519"]),
    "alg twice": lambda side: side.signed(header=b'{"typ":"jwt","alg":"Ed25519","alg":"none"}'),
    "an extension that must be understood": header(crit=["exp"], exp=1),
    "an empty list of extensions": header(crit=[]),
    "a zero byte after alg": header(alg="Ed25519\0"),
}

REFUSED = SHAPE | HEADERS


@both
@pytest.mark.parametrize("case", REFUSED)
def test_a_token_is_refused_in_the_protocols_words_without_a_word_of_it(case: str, side: Side) -> None:
    stopped(side, REFUSED[case](side))


WHOSE: dict[str, tuple[Side, str]] = {
    "the host's token for the entity's": (ENTITY, HOST_JWT),
    "the entity's token for the host's": (OF_HOST, ENTITY_JWT),
    "a provider's token for the host's": (OF_HOST, jwt(entity_claims(sub=PROVIDER.public), ACCOUNT)),
    "an account's own token": (ENTITY, jwt(entity_claims(sub=ACCOUNT.public), ACCOUNT)),
}


@pytest.mark.parametrize("case", WHOSE)
def test_a_token_is_not_taken_for_another_kind(case: str) -> None:
    side, token = WHOSE[case]
    refused = refusal(message(side.asks(token)))
    assert refused.error is side.error
    assert {"sub", "M…" if side is ENTITY else "N…"} <= set(refused.message.split())


def test_a_provider_is_an_entity_too() -> None:
    request = accepted(message(ENTITY.asks(jwt(entity_claims(sub=PROVIDER.public), ACCOUNT))))
    assert request.entity == Token(ACCOUNT.public, PROVIDER.public, "shop")


def test_a_token_is_known_by_issuer_subject_and_name() -> None:
    request = accepted(message(asking_with({})))
    assert request.entity == Token(ACCOUNT.public, COMPONENT.public, "shop")
    assert request.host == Token(HOST_ISSUER.public, HOST.public, "blue-sky-1")
