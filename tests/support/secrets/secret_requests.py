"""Requests for secrets as a host makes them, or as nobody should: made with PyNaCl and the standard library alone.

Nothing of ``secrets_backend`` is used here, so that a test compares two readings of the protocol.
"""

from __future__ import annotations

import base64
import binascii
import copy
import hashlib
import json
from dataclasses import dataclass
from typing import Any, Final

from nacl.public import Box, PrivateKey, PublicKey
from nacl.signing import SigningKey

NOW: Final = 1_800_000_000.0
HOST_HEADER: Final = "WasmCloud-Host-Xkey"
RESPONSE_HEADER: Final = "Server-Response-Xkey"
A, C, M, N, U, V, X = 0, 16, 96, 104, 160, 168, 184
OPERATOR: Final = 112
HEADER: Final = {"typ": "jwt", "alg": "Ed25519"}


class Absent:
    """A member that is left out."""


def nkey(prefix: int, raw: bytes) -> str:
    """The text of a public key; any prefix and length."""
    return _text(bytes([prefix]) + raw)


def nkey_seed(prefix: int, raw: bytes) -> str:
    """The text of a seed; any prefix and length."""
    return _text(bytes([0x90 | prefix >> 5, (prefix & 31) << 3]) + raw)


def _text(prefixed: bytes) -> str:
    whole = prefixed + binascii.crc_hqx(prefixed, 0).to_bytes(2, "little")
    return base64.b32encode(whole).decode().rstrip("=")


def b64(raw: bytes) -> str:
    """Base64url without padding."""
    return base64.urlsafe_b64encode(raw).decode().rstrip("=")


@dataclass(frozen=True)
class Signer:
    """An Ed25519 pair of a fixed seed."""

    name: str
    prefix: int

    @property
    def raw_seed(self) -> bytes:
        return hashlib.sha256(self.name.encode()).digest()

    @property
    def raw_public(self) -> bytes:
        return bytes(SigningKey(self.raw_seed).verify_key)

    @property
    def public(self) -> str:
        return nkey(self.prefix, self.raw_public)

    @property
    def seed(self) -> str:
        return nkey_seed(self.prefix, self.raw_seed)

    def sign(self, text: bytes) -> bytes:
        return SigningKey(self.raw_seed).sign(text).signature


ACCOUNT: Final = Signer("account", A)
COMPONENT: Final = Signer("component", M)
PROVIDER: Final = Signer("provider", V)
HOST: Final = Signer("host", N)
HOST_ISSUER: Final = Signer("host issuer", A)
SERVER: Final = PrivateKey(hashlib.sha256(b"server").digest())
SERVER_SEED: Final = nkey_seed(X, bytes(SERVER))
SENDER: Final = PrivateKey(hashlib.sha256(b"sender").digest())
SENDER_PUBLIC: Final = nkey(X, bytes(SENDER.public_key))


def changed(document: dict[str, Any], changes: dict[str, Any]) -> dict[str, Any]:
    """A copy with members changed: ``{"context.entity_jwt": value}``; ``Absent`` leaves one out."""
    result = copy.deepcopy(document)
    for path, value in changes.items():
        *parents, last = path.split(".")
        place = result
        for parent in parents:
            place = place[parent]
        if value is Absent:
            place.pop(last, None)
        else:
            place[last] = value
    return result


def entity_claims(**changes: Any) -> dict[str, Any]:
    """Claims of a component."""
    about = {
        "name": "shop",
        "hash": "AB" * 32,
        "tags": ["wasmcloud.com/experimental"],
        "rev": 0,
        "ver": "0.1.0",
        "prov": False,
    }
    claims = {"jti": "entity", "iat": 1_700_000_000, "iss": ACCOUNT.public, "sub": COMPONENT.public, "wascap": about}
    return changed(claims | {"wascap_revision": 3}, changes)


def host_claims(**changes: Any) -> dict[str, Any]:
    """Claims of a host."""
    about = {"name": "blue-sky-1", "labels": {"self_signed": "true"}}
    claims = {"jti": "host", "iat": 1_700_000_000, "iss": HOST_ISSUER.public, "sub": HOST.public, "wascap": about}
    return changed(claims | {"wascap_revision": 3}, changes)


def jwt(claims: dict[str, Any] | bytes, signer: Signer, header: Any = HEADER) -> str:
    """A token; ``bytes`` are taken for claims (or a header) as they are."""
    parts = [
        item if isinstance(item, bytes) else json.dumps(item, separators=(",", ":")).encode()
        for item in (header, claims)
    ]
    signed = ".".join(map(b64, parts))
    return f"{signed}.{b64(signer.sign(signed.encode()))}"


def _json(value: Any) -> bytes:
    return value if isinstance(value, bytes) else json.dumps(value, separators=(",", ":")).encode()


def policy(**properties: Any) -> str:
    """A policy with these properties."""
    return json.dumps({"type": "properties.secret.wasmcloud.dev/v1alpha1", "properties": properties})


ENTITY_JWT: Final = jwt(entity_claims(), ACCOUNT)
HOST_JWT: Final = jwt(host_claims(), HOST_ISSUER)
GOOD: Final[dict[str, Any]] = {
    "key": "app-secrets",
    "field": "password",
    "version": None,
    "context": {
        "entity_jwt": ENTITY_JWT,
        "host_jwt": HOST_JWT,
        "application": {"name": "shop", "policy": policy(namespace="team-a", impersonate="reader")},
    },
}


def asking(**changes: Any) -> bytes:
    """A good request, with members changed."""
    return json.dumps(changed(GOOD, changes)).encode()


def asking_with(changes: dict[str, Any]) -> bytes:
    """A good request, with members changed that have a path."""
    return json.dumps(changed(GOOD, changes)).encode()


NONCE_BYTES: Final = 24


def sealed(
    text: bytes, *, sender: PrivateKey = SENDER, server: PrivateKey = SERVER, nonce: bytes | None = None
) -> bytes:
    """An xkv1 box."""
    return b"xkv1" + bytes(Box(sender, server.public_key).encrypt(text, nonce))


def headers(sender: PrivateKey = SENDER) -> dict[str, str]:
    """The header of a request."""
    return {HOST_HEADER: nkey(X, bytes(sender.public_key))}


def opened(payload: bytes, answer_headers: dict[str, str], receiver: PrivateKey = SENDER) -> bytes:
    """Return the content of an answer; raise if the host could not open it."""
    assert payload[:4] == b"xkv1"
    raw = base64.b32decode(answer_headers[RESPONSE_HEADER])
    assert len(raw) == 35
    assert raw[0] == X
    return bytes(Box(receiver, PublicKey(raw[1:33])).decrypt(payload[4:]))
