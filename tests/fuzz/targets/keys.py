"""Keys, tokens and sealed messages: the secrets protocol, nkeys, credentials of the bus."""

from __future__ import annotations

import base64
import random
from typing import Any

from fuzz.target import Target, tried
from secrets_backend.domain.key_secret import KeySecretError, data_of, read_ring
from support.secrets.secret_cases import judged
from support.secrets.secret_mutations import KINDS, drawn
from support.secrets.secret_oracle import nkey, nkey_seed, user_of
from support.suite.mutations import spoilt_text, text
from trellis import names
from trellis.config.nats_credentials import CredentialsError, Kind, identity_of
from trellis.config.nkey import KeyFormatError, Prefix, decode_public, decode_seed, encode_public, encode_seed

SECRETS = Target(
    "secret-requests",
    "sealed requests for secrets: the box, JWTs of entity and host, policies",
    "equal to a second implementation of the protocol, with another cryptography library",
    drawn,
    judged,
    frozenset({f"{kind}: accepted" for kind in [*KINDS, "header"]}),
    share=40,
)

_SEED = bytes(range(32))
_KINDS = (Prefix.ACCOUNT, Prefix.USER, Prefix.CURVE, Prefix.HOST, Prefix.COMPONENT, Prefix.CLUSTER)


def _key(rng: random.Random) -> tuple[str, Prefix, bytes | None]:
    prefix, raw = rng.choice(_KINDS), rng.randbytes(32)
    good = encode_seed(prefix, raw) if rng.random() < 0.5 else encode_public(prefix, raw)
    if rng.random() < 0.3:
        return good, prefix, raw
    wrong = rng.choice([spoilt_text(rng, good), good.lower(), good + "=", " " + good, good[:-1], good[:-1] + "2"])
    return wrong, rng.choice(_KINDS), None


def _judge_key(case: tuple[str, Prefix, bytes | None]) -> str:
    key, prefix, raw = case
    outcomes = []
    for decode, encode in ((decode_public, encode_public), (decode_seed, encode_seed)):
        outcome, found = tried(lambda decode=decode: decode(key, prefix), KeyFormatError)
        if outcome == "accepted":
            assert encode(prefix, found) == key
            assert raw is None or found == raw
            assert (nkey_seed(key) if decode is decode_seed else nkey(key)) == found
        else:
            assert key not in str(found) or len(key) < 6
        outcomes.append(outcome)
    assert raw is None or "accepted" in outcomes
    return "accepted" if "accepted" in outcomes else outcomes[0]


NKEY = Target(
    "nkeys",
    "public keys and seeds of NATS",
    "one key has one text; the bytes are equal to a second implementation; no error contains the text",
    _key,
    _judge_key,
    frozenset({"accepted", "KeyFormatError"}),
)

_USER = encode_seed(Prefix.USER, _SEED)
_JWT = "eyJ0eXAiOiJKV1QifQ.eyJzdWIiOiJVQSJ9.c2ln"
_FILE = f"""-----BEGIN NATS USER JWT-----
{_JWT}
------END NATS USER JWT------

************************* IMPORTANT *************************
-----BEGIN USER NKEY SEED-----
{_USER}
------END USER NKEY SEED------
"""


def _credentials(rng: random.Random) -> tuple[Kind, str, bool]:
    kind = rng.choice([Kind.NKEY, Kind.CREDENTIALS])
    good = f"\n{_USER}\n" if kind is Kind.NKEY else _FILE
    if rng.random() < 0.2:
        return kind, good, True
    other = encode_seed(Prefix.ACCOUNT, _SEED)
    return kind, rng.choice([spoilt_text(rng, good), good.replace(_USER, other), good.replace("-", "")]), False


def _judge_credentials(case: tuple[Kind, str, bool]) -> str:
    kind, content, good = case
    outcome, found = tried(lambda: identity_of(content, kind), CredentialsError)
    if outcome != "accepted":
        assert not good
        assert _USER[4:30] not in str(found)
        return outcome
    assert found.public_key.startswith("U")
    assert len(found.sign("nonce")) == 88
    if good:
        public, signature = user_of(_SEED, b"nonce")
        assert nkey(found.public_key) == public
        assert base64.b64decode(found.sign("nonce")) == signature
        assert found.jwt == (None if kind is Kind.NKEY else _JWT)
    return outcome


CREDENTIALS = Target(
    "bus-credentials",
    "NATS credentials files, and files with a seed",
    "user and signature of OpenSSL; a seed with a typo is invalid; no error contains any part of it",
    _credentials,
    _judge_credentials,
    frozenset({"accepted", "CredentialsError"}),
    share=3,
)


def _ring(rng: random.Random) -> dict[str, Any]:
    seeds = [encode_seed(Prefix.CURVE, bytes([number]) * 32) for number in range(3)]
    data = {names.SECRETS_SEED: text(rng, seeds), names.SECRETS_PREVIOUS: "\n".join(text(rng, seeds) for _ in range(2))}
    packed = {key: base64.b64encode(item.encode(errors="replace")).decode() for key, item in data.items()}
    kept = {
        key: spoilt_text(rng, item) if rng.random() < 0.15 else item
        for key, item in packed.items()
        if rng.random() < 0.9
    }
    return {"data": kept}


def _judge_ring(manifest: dict[str, Any]) -> str:
    outcome, found = tried(lambda: read_ring(manifest), KeySecretError)
    if outcome == "accepted":
        assert read_ring({"data": data_of(found)}) == found
    return outcome


RING = Target(
    "curve-keys",
    "the Secret with the keys of secrets_backend",
    "equal after a round trip; else one error",
    _ring,
    _judge_ring,
    frozenset({"accepted", "KeySecretError"}),
    share=3,
)

TARGETS = (SECRETS, NKEY, CREDENTIALS, RING)
