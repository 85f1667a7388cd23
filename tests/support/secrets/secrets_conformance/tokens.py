"""Cases of tokens: of the entity that asks, and of its host. Each is made for both."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Mapping
from typing import Final

from support.secrets.secrets_conformance.cases import Case, granted, granted_or_refused, refused
from support.secrets.secrets_conformance.world import Ask, Forge, nkey

_WASCAP: Final = "wascap, which hosts make and check tokens with, does not take it; the peer does"
_KIND: Final = "who signs for whom is part of what a token says; the peer takes any"
_SLACK: Final = "what stands for no byte is no part of it; the peer passes it over"
_HOUR: Final = 3600
_ACCOUNT: Final = 0
Make = Callable[[Forge], str]


def _now() -> int:
    return int(time.time())


def _part(number: int, change: Callable[[str], str]) -> Make:
    """Return what changes header, claims or signature of a signed token."""

    def make(forge: Forge) -> str:
        parts = forge.signed().split(".")
        parts[number] = change(parts[number])
        return ".".join(parts)

    return make


def _other_character(text: str) -> str:
    """Change a letter in the middle: the last one may stand for bits that are not read."""
    at = len(text) // 2
    return text[:at] + ("A" if text[at] != "A" else "B") + text[at + 1 :]


def _foreign_claims(forge: Forge) -> str:
    """Claims of one token under the signature of another."""
    other = forge.signed(jti="another")
    head, _, signature = forge.signed().split(".")
    return ".".join((head, other.split(".")[1], signature))


REFUSED: Final[Mapping[str, Make]] = {
    "is a word": lambda _: "abc",
    "is dots": lambda _: "..",
    "has no signature": lambda forge: ".".join(forge.signed().split(".")[:2]),
    "has an empty signature": lambda forge: forge.signed().rsplit(".", 1)[0] + ".",
    "has four parts": lambda forge: forge.signed() + ".x",
    "has a header that is no base64": _part(0, lambda _: "!!!"),
    "has claims that are no base64": _part(1, lambda _: "!!!"),
    "has a signature that is no base64": _part(2, lambda _: "!!!"),
    "has a header that is no JSON": lambda forge: forge.headed("x"),
    "has a header that is null": lambda forge: forge.headed("null"),
    "has a header that is a list": lambda forge: forge.headed("[]"),
    "has claims that are no JSON": lambda forge: forge.signed_text("x"),
    "has claims that are null": lambda forge: forge.signed_text("null"),
    "has claims that are a list": lambda forge: forge.signed_text("[]"),
    "has claims that are empty": lambda forge: forge.signed_text("{}"),
    "has claims that are nested without end": lambda forge: forge.signed_text("[" * 50_000 + "]" * 50_000),
    "says EdDSA": lambda forge: forge.headed('{"typ":"jwt","alg":"EdDSA"}'),
    "says none": lambda forge: forge.headed('{"typ":"jwt","alg":"none"}').rsplit(".", 1)[0] + ".",
    "says HS256": lambda forge: forge.headed('{"typ":"jwt","alg":"HS256"}'),
    "says ed25519 in small letters": lambda forge: forge.headed('{"typ":"jwt","alg":"ed25519"}'),
    "says no algorithm": lambda forge: forge.headed('{"typ":"jwt"}'),
    "says an algorithm that is a number": lambda forge: forge.headed('{"typ":"jwt","alg":7}'),
    "is signed by another": lambda forge: forge.signed(forge.world.client.make_key("account")),
    "has another signature": _part(2, _other_character),
    "has half a signature": _part(2, lambda text: text[: len(text) // 2]),
    "has a longer signature": _part(2, lambda text: text + "AAAA"),
    "was changed": _foreign_claims,
    "has no issuer": lambda forge: forge.signed(iss=...),
    "has an empty issuer": lambda forge: forge.signed(iss=""),
    "has a null issuer": lambda forge: forge.signed(iss=None),
    "has an issuer that is a word": lambda forge: forge.signed(iss="me"),
    "has an issuer that is a number": lambda forge: forge.signed(iss=7),
    "has an issuer with a wrong checksum": lambda forge: forge.signed(iss=_other_character(str(forge.claims["iss"]))),
    "has an issuer in small letters": lambda forge: forge.signed(iss=str(forge.claims["iss"]).lower()),
    "has a seed as issuer": lambda forge: forge.signed(iss=forge.world.client.make_key("account").seed),
    "has an issuer of 31 bytes": lambda forge: forge.signed(iss=nkey(_ACCOUNT, bytes(31))),
    "has an issuer of 33 bytes": lambda forge: forge.signed(iss=nkey(_ACCOUNT, bytes(33))),
    "has an issuer of no bytes": lambda forge: forge.signed(iss=nkey(_ACCOUNT, b"")),
    "has an issuer that is zero": lambda forge: forge.signed(iss=nkey(_ACCOUNT, bytes(32))),
    "has a curve key as issuer": lambda forge: forge.signed(iss=forge.world.client.make_key("curve").public),
    "expired an hour ago": lambda forge: forge.signed(exp=_now() - _HOUR),
    "expired just now": lambda forge: forge.signed(exp=_now() - 1),
    "expired in 1970": lambda forge: forge.signed(exp=1),
    "expired, as wascap makes it": lambda forge: forge.world.client.make_token(
        forge.kind, forge.world.issuer(forge.kind), forge.claims["sub"], expires=_now() - _HOUR
    ),
    "is for later": lambda forge: forge.signed(nbf=_now() + _HOUR),
    "is for soon": lambda forge: forge.signed(nbf=_now() + 30),
    "is for later, as wascap makes it": lambda forge: forge.world.client.make_token(
        forge.kind, forge.world.issuer(forge.kind), forge.claims["sub"], not_before=_now() + _HOUR
    ),
    "expires at a word": lambda forge: forge.signed(exp="never"),
    "expires at a truth": lambda forge: forge.signed(exp=True),
    "expires at a list": lambda forge: forge.signed(exp=[_now() + _HOUR]),
    "has padding": lambda forge: _padded(forge.signed()),
    "has a space in front": lambda forge: " " + forge.signed(),
    "is in quotes": lambda forge: f'"{forge.signed()}"',
    "has letters that are none of its own": lambda forge: "密码" + forge.signed(),
}
"""What a token must not be."""

STRICT: Final[Mapping[str, tuple[str, Make]]] = {
    "says no type": (_WASCAP, lambda forge: forge.headed('{"alg":"Ed25519"}')),
    "says another type": (_WASCAP, lambda forge: forge.headed('{"typ":"JWS","alg":"Ed25519"}')),
    "has no subject": (_WASCAP, lambda forge: forge.signed(sub=...)),
    "has an empty subject": (_WASCAP, lambda forge: forge.signed(sub="")),
    "has no id": (_WASCAP, lambda forge: forge.signed(jti=...)),
    "has no time of issue": (_WASCAP, lambda forge: forge.signed(iat=...)),
    "expires at part of a second": (_WASCAP, lambda forge: forge.signed(exp=_now() + _HOUR + 0.5)),
    "expires before all time": (_WASCAP, lambda forge: forge.signed(exp=-1)),
    "has a line break at its end": (_SLACK, lambda forge: forge.signed() + "\n"),
    "has a subject that is a word": (_KIND, lambda forge: forge.signed(sub="me")),
    "has an account as subject": (_KIND, lambda forge: forge.signed(sub=forge.world.account.public)),
    "has a user as subject": (_KIND, lambda forge: forge.signed(sub=forge.world.client.make_key("user").public)),
    "has a curve key as subject": (_KIND, lambda forge: forge.signed(sub=forge.world.client.make_key("curve").public)),
    "is issued by a user": (_KIND, lambda forge: forge.issued_by("user")),
    "is issued by a host": (_KIND, lambda forge: forge.issued_by("host")),
}
"""What a token must not be for us: the reason, and the token."""

TAKEN: Final[Mapping[str, Make]] = {
    "is made by wascap": lambda forge: forge.world.token(forge.kind),
    "is made to the letter": lambda forge: forge.signed(),
    "expires later": lambda forge: forge.signed(exp=_now() + _HOUR),
    "expires later, as wascap makes it": lambda forge: forge.world.client.make_token(
        forge.kind, forge.world.issuer(forge.kind), forge.claims["sub"], expires=_now() + _HOUR
    ),
    "began": lambda forge: forge.signed(nbf=_now() - _HOUR),
    "began and ends, as wascap makes it": lambda forge: forge.world.client.make_token(
        forge.kind,
        forge.world.issuer(forge.kind),
        forge.claims["sub"],
        not_before=_now() - _HOUR,
        expires=_now() + _HOUR,
    ),
    "expires at null": lambda forge: forge.signed(exp=None),
    "begins at null": lambda forge: forge.signed(nbf=None),
    "was issued long ago": lambda forge: forge.signed(iat=1),
    "says more": lambda forge: forge.signed(more={"a": [1]}),
    "has an issuer nobody saw before": lambda forge: forge.issued_by("account"),
}
"""What a token may be."""


def _padded(token: str) -> str:
    """Put the padding of base64 after the signature: 64 bytes are 86 letters."""
    return token + "=="


def _open() -> Mapping[str, Make]:
    spaces = '{ "typ": "jwt", "alg": "Ed25519" }'
    return {
        "has a header with spaces": lambda forge: forge.headed(spaces),
        "has a header that says more": lambda forge: forge.headed('{"typ":"jwt","alg":"Ed25519","kid":"x"}'),
        "says nothing of wascap": lambda forge: forge.signed(wascap=...),
        "says a word of wascap": lambda forge: forge.signed(wascap="x"),
        "expires when no clock will show it": lambda forge: forge.signed(exp=2**63),
        "has an id of many letters": lambda forge: forge.signed(jti="x" * 100_000),
        "is written with spaces": lambda forge: forge.signed_text(json.dumps(forge.claims, indent=4)),
    }


def _both() -> list[Case]:
    found = []
    for who, error in (("entity", "InvalidEntityJWT"), ("host", "InvalidHostJWT")):

        def ask(make: Make, who: str = who) -> Ask:
            return Ask(entity=make) if who == "entity" else Ask(host=make)

        found += [Case(f"the {who}'s token {what}", ask(make), refused(error)) for what, make in REFUSED.items()]
        found += [
            Case(f"the {who}'s token {what}", ask(make), refused(error), reason)
            for what, (reason, make) in STRICT.items()
        ]
        found += [Case(f"the {who}'s token {what}", ask(make), granted()) for what, make in TAKEN.items()]
        found += [
            Case(f"the {who}'s token {what}", ask(make), granted_or_refused(error)) for what, make in _open().items()
        ]
    return found


def _exchanged() -> list[Case]:
    component, provider = (lambda forge, kind=kind: forge.world.token(kind) for kind in ("component", "provider"))
    host: Make = lambda forge: forge.world.token("host")  # noqa: E731
    return [
        Case("a provider asks", Ask(entity=provider), granted()),
        Case("a host asks for itself", Ask(entity=host), refused("InvalidEntityJWT"), _KIND),
        Case("a component is the host", Ask(host=component), refused("InvalidHostJWT"), _KIND),
        Case("a provider is the host", Ask(host=provider), refused("InvalidHostJWT"), _KIND),
        Case("both are exchanged", Ask(entity=host, host=component), refused("InvalidEntityJWT"), _KIND),
    ]


TOKENS: Final = (*_both(), *_exchanged())
