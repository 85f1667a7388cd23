"""Wrong requests without end: each from one seed, so that a finding can be had again.

In: a seed. Out: a message, and what was sealed in it, None if the box itself was touched.
"""

from __future__ import annotations

import json
import random
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from support.secrets.secret_requests import (
    ACCOUNT,
    GOOD,
    HEADER,
    HOST,
    HOST_HEADER,
    HOST_ISSUER,
    NONCE_BYTES,
    NOW,
    PROVIDER,
    SENDER,
    SENDER_PUBLIC,
    A,
    N,
    Signer,
    X,
    asking,
    b64,
    changed,
    entity_claims,
    headers,
    host_claims,
    jwt,
    nkey,
    policy,
    sealed,
)
from support.suite import mutations

SECOND = int(NOW)
SCALARS: list[Any] = [
    None, True, False, 0, 1, -1, SECOND, SECOND - 1, SECOND + 1, 2**31, 2**63, 2**64 - 1, 2**64, -(2**63), 2**70, 0.5,
    -0.0, 1e300, float(SECOND), "", "a", "default", "..", "a/b", "system:masters", " a", "a\n", "\0", "\u2028", "é",
    "\U0001f600", "0", "null", "{}", "jwt", "Ed25519", "x" * 300,
    ACCOUNT.public, PROVIDER.public, HOST.public, SENDER_PUBLIC, ACCOUNT.seed,
]  # fmt: skip
FRAGMENTS = [
    *mutations.FRAGMENTS, b'"key":"other",', b'"context":null,', b'"field":5,', b'"policy":"{}",',
]  # fmt: skip
NAMES = ["..", "/", "%2f", "a", "-", ".", "0", "A", "_", "\\", "\0", "\r\n", "é", " ", "?", "#", "secret", "x" * 80]


@dataclass(frozen=True)
class Case:
    """One message; ``text``: what is in its box, None if the box or its sender is not the one it was sealed with."""

    kind: str
    headers: dict[str, str] | None
    payload: bytes
    text: bytes | None


def case(seed: int) -> Case:
    """The case of a seed."""
    return drawn(random.Random(seed))


def drawn(rng: random.Random) -> Case:
    """The next case of a generator."""
    kind = rng.choice([*KINDS, "box", "header"])
    if kind == "box":
        return _box(rng)
    if kind == "header":
        return _header(rng)
    text = KINDS[kind](rng)
    if kind != "text" and rng.random() < 0.1:
        text = _bytes(rng, text)
    return Case(kind, headers(), sealed(text), text)


def _box(rng: random.Random) -> Case:
    text = asking(field="f" * rng.randrange(40))
    good = sealed(text, nonce=rng.randbytes(NONCE_BYTES))  # whether the box is another must not be chance's
    wrong = rng.choice([_bytes, _cut, _noise])(rng, good)
    return Case("box", headers(), wrong, text if wrong == good else None)


def _header(rng: random.Random) -> Case:
    good = SENDER_PUBLIC
    raw = bytearray(bytes(SENDER.public_key))
    raw[rng.randrange(32)] ^= 1 << rng.randrange(7)
    wrong = rng.choice([
        _characters(rng, good), nkey(X, bytes(raw)), nkey(rng.choice([A, N, X | 1]), bytes(SENDER.public_key)),
        nkey(X, rng.randbytes(rng.choice([31, 32, 33]))), nkey(X, rng.randrange(9).to_bytes(32, "little")),
        "", " ", f" {good}\t",
    ])  # fmt: skip
    text = asking()
    same = wrong.strip(" \t") == good
    return Case("header", {HOST_HEADER: wrong}, sealed(text), text if same else None)


def _text(rng: random.Random) -> bytes:
    return _bytes(rng, asking())


def _structure(rng: random.Random) -> bytes:
    document = _mutated(rng, GOOD)
    if rng.random() < 0.3:
        document = _mutated(rng, document) if isinstance(document, dict) else document
    text = json.dumps(document, ensure_ascii=rng.random() < 0.5, indent=rng.choice([None, 1]))
    return text.encode(errors="surrogatepass")


def _token(rng: random.Random) -> bytes:
    sides = [("entity_jwt", entity_claims(), ACCOUNT), ("host_jwt", host_claims(), HOST_ISSUER)]
    member, claims, issuer = rng.choice(sides)
    made = rng.choice([_claims, _claims, _claims_text, _header_of_token, _token_text, _forged])(rng, claims, issuer)
    return json.dumps(changed(GOOD, {f"context.{member}": made})).encode()


def _claims(rng: random.Random, claims: dict[str, Any], issuer: Signer) -> str:
    if rng.random() < 0.5:
        name = rng.choice(["exp", "nbf", "iat", "jti", "iss", "sub", "wascap", "wascap_revision", "aud"])
        return jwt(claims | {name: mutations.value(rng, SCALARS)}, issuer)
    return jwt(_mutated(rng, claims), issuer)


def _claims_text(rng: random.Random, claims: dict[str, Any], issuer: Signer) -> str:
    return jwt(_bytes(rng, json.dumps(claims).encode()), issuer)


def _header_of_token(rng: random.Random, claims: dict[str, Any], issuer: Signer) -> str:
    text = json.dumps(_mutated(rng, {**HEADER, "kid": "1"})).encode()
    return jwt(claims, issuer, text if rng.random() < 0.7 else _bytes(rng, text))


def _token_text(rng: random.Random, claims: dict[str, Any], issuer: Signer) -> str:
    return _characters(rng, jwt(claims, issuer))


def _forged(rng: random.Random, claims: dict[str, Any], issuer: Signer) -> str:
    """Signed by another key, or by a key of low order, for which one signature may fit every text."""
    if rng.random() < 0.5:
        return jwt(claims, Signer(str(rng.random()), A))
    point = rng.choice([bytes(32), b"\x01" + bytes(31), (2**255 - 20).to_bytes(32, "little"), rng.randbytes(32)])
    good = jwt(claims | {"iss": nkey(A, point)}, issuer)
    signature = rng.choice([b"\x01" + bytes(63), bytes(64), point + bytes(32)])
    return f"{good.rpartition('.')[0]}.{b64(signature)}"


def _policy(rng: random.Random) -> bytes:
    good = json.loads(policy(namespace="team-a", impersonate="reader"))
    kind = rng.randrange(4)
    if kind == 0:
        text = json.dumps(_mutated(rng, good))
    elif kind == 1:
        text = _characters(rng, json.dumps(good))
    elif kind == 2:
        name = rng.choice(["namespace", "impersonate"])
        text = json.dumps(changed(good, {f"properties.{name}": "".join(rng.choices(NAMES, k=rng.randrange(4)))}))
    else:
        text = rng.choice(["", "null", "[]", "{}", "5", '"x"', " " + json.dumps(good), json.dumps(good) * 2])
    return json.dumps(changed(GOOD, {"context.application.policy": text}), ensure_ascii=rng.random() < 0.9).encode(
        errors="surrogatepass"
    )


def _names(rng: random.Random) -> bytes:
    places = ("key", "field", "context.application.name")
    made = {name: "".join(rng.choices(NAMES, k=rng.randrange(5))) for name in places}
    return json.dumps(changed(GOOD, dict(rng.sample(sorted(made.items()), rng.randrange(1, 4))))).encode()


KINDS: dict[str, Callable[[random.Random], bytes]] = {
    "text": _text,
    "structure": _structure,
    "token": _token,
    "policy": _policy,
    "names": _names,
}


def _mutated(rng: random.Random, document: Any) -> Any:
    return mutations.mutated(rng, document, SCALARS)


def _bytes(rng: random.Random, raw: bytes) -> bytes:
    return mutations.spoilt(rng, raw, FRAGMENTS)


def _noise(rng: random.Random, _: bytes) -> bytes:
    return rng.randbytes(rng.randrange(200))


def _cut(rng: random.Random, raw: bytes) -> bytes:
    return raw[: rng.randrange(len(raw))]


def _characters(rng: random.Random, text: str) -> str:
    place = rng.randrange(len(text) + 1)
    letter = chr(rng.randrange(128))
    rare = "\ud800" if rng.random() < 0.1 else "-"
    new = rng.choice([letter, "=", ".", "A", "\n", " ", "é", "", rare])
    return text[:place] + new + text[place + rng.choice([0, 1, 1]) :]
