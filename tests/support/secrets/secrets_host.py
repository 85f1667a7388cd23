"""A wasmCloud host that requests a secret: keys, tokens, sealed requests, opened answers.

Made from the wire contract with PyNaCl alone; of the service only nothing is used. ``Host`` asks over a NATS of the
test's.
"""

from __future__ import annotations

import base64
import json
import secrets
import time
from dataclasses import dataclass, field
from typing import Any, Self

from nacl.public import Box, PrivateKey, PublicKey
from nacl.signing import SigningKey

from support.nats.reconnecting import left, reconnecting

ACCOUNT, MODULE, SERVER, CURVE = 0, 12 << 3, 13 << 3, 23 << 3
_VERSION = b"xkv1"
_NONCE = 24


def nkey(prefix: int, raw: bytes) -> str:
    """Return a public key as text."""
    body = bytes([prefix]) + raw
    crc = 0
    for byte in body:
        crc ^= byte << 8
        for _ in range(8):
            crc = ((crc << 1) ^ 0x1021 if crc & 0x8000 else crc << 1) & 0xFFFF
    return base64.b32encode(body + crc.to_bytes(2, "little")).decode().rstrip("=")


def raw_of(text: str) -> bytes:
    """Return the 32 bytes of a public key."""
    return base64.b32decode(text + "=" * (-len(text) % 8))[1:-2]


@dataclass
class Signer:
    """An Ed25519 key with its text."""

    prefix: int
    key: SigningKey = field(default_factory=SigningKey.generate)

    @property
    def public(self) -> str:
        """The public key as text."""
        return nkey(self.prefix, bytes(self.key.verify_key))

    def token(self, subject: str, **claims: Any) -> str:
        """Return a token about a subject."""
        payload = {
            "jti": secrets.token_hex(8),
            "iat": int(time.time()),
            "iss": self.public,
            "sub": subject,
            "wascap": {"name": "test"},
            "wascap_revision": 3,
        } | claims
        head, body = (_encode(json.dumps(item).encode()) for item in ({"typ": "jwt", "alg": "Ed25519"}, payload))
        return f"{head}.{body}.{_encode(self.key.sign(f'{head}.{body}'.encode()).signature)}"


@dataclass
class Host:
    """A host with one component. ``server``: the backend's key once it was asked for."""

    url: str
    backend: str = "kube"
    options: dict[str, Any] = field(default_factory=dict)
    issuer: Signer = field(default_factory=lambda: Signer(ACCOUNT))
    entity: Signer = field(default_factory=lambda: Signer(MODULE))
    host: Signer = field(default_factory=lambda: Signer(SERVER))
    server: str = ""

    async def __aenter__(self) -> Self:
        self.client = await reconnecting(self.url, **self.options)
        self.tokens = (self.issuer.token(self.entity.public), self.issuer.token(self.host.public))
        return self

    async def __aexit__(self, *_: object) -> None:
        await left(self.client)

    def subject(self, operation: str) -> str:
        """Return the subject of an operation."""
        return f"wasmcloud.secrets.v1alpha1.{self.backend}.{operation}"

    async def ask_key(self, seconds: float = 30) -> str:
        """Ask for the backend's key, and keep it as hosts do."""
        answer = await self.client.request(self.subject("server_xkey"), b"", timeout=seconds)
        self.server = answer.data.decode()
        return self.server

    def request(self, name: str, entry: str, **policy: str) -> dict[str, Any]:
        """Return a request as it is before it is sealed."""
        properties = {"type": "properties.secret.wasmcloud.dev/v1alpha1", "properties": policy}
        return {
            "key": name,
            "field": entry,
            "version": None,
            "context": {
                "entity_jwt": self.tokens[0],
                "host_jwt": self.tokens[1],
                "application": {"name": "app", "policy": json.dumps(properties)},
            },
        }

    async def get(self, name: str, entry: str, *, seconds: float = 30, **policy: str) -> dict[str, Any]:
        """Ask for a secret; return the answer, opened if it is sealed."""
        if not self.server:
            await self.ask_key()
        return await self.send(json.dumps(self.request(name, entry, **policy)).encode(), seconds=seconds)

    async def send(self, text: bytes, *, seconds: float = 30) -> dict[str, Any]:
        """Seal a text, ask with it, and return the answer."""
        ours = PrivateKey.generate()
        nonce = secrets.token_bytes(_NONCE)
        box = Box(ours, PublicKey(raw_of(self.server))).encrypt(text, nonce).ciphertext
        # NaCl's box has its tag first, as the contract wants it.
        headers = {"WasmCloud-Host-Xkey": nkey(CURVE, bytes(ours.public_key))}
        answer = await self.client.request(
            self.subject("get"), _VERSION + nonce + box, timeout=seconds, headers=headers
        )
        key = (answer.headers or {}).get("Server-Response-Xkey")
        if key is None:
            found: dict[str, Any] = json.loads(answer.data)
            return found
        assert answer.data.startswith(_VERSION)
        sealed = answer.data[len(_VERSION) :]
        opened: dict[str, Any] = json.loads(Box(ours, PublicKey(raw_of(key))).decrypt(sealed[_NONCE:], sealed[:_NONCE]))
        return opened


def value(answer: dict[str, Any]) -> Any:
    """Return the value of an answer, or its error."""
    if "secret" not in answer:
        return answer["error"]
    secret = answer["secret"]
    return secret.get("string_secret", secret.get("binary_secret"))


def _encode(raw: bytes) -> str:
    return base64.urlsafe_b64encode(raw).decode().rstrip("=")
