"""A second reading of the secrets protocol, to judge the first: the standard library and OpenSSL, none of the service.

In: what was in a box. Out: the error a backend must answer with, or what is asked for. Slower, and as plain as can be.
"""

from __future__ import annotations

import base64
import functools
import json
import math
import re
import string
from dataclasses import dataclass
from typing import Any

from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey, Ed25519PublicKey

BASE32 = string.ascii_uppercase + "234567"
BASE64URL = string.ascii_uppercase + string.ascii_lowercase + string.digits + "-_"
FIELD = set(string.ascii_letters + string.digits + "-._")
DEPTH_MAX = 1024
P = 2**255 - 19
# The y of every point of low order on Edwards25519 (RFC 7748's curve in its other form): orders 1, 2, 4 and 8.
_ORDER_8 = 0x7A03AC9277FDC74EC6CC392CFA53202A0F67100D760B3CBA4FD83D3D706A17C7
LOW_ORDER = {0, 1, P - 1, _ORDER_8, P - _ORDER_8}


@dataclass(frozen=True)
class RequestedSecret:
    """The content of a request: ``who`` is a tuple of issuer, subject and name."""

    secret: str
    field: str
    application: str | None
    entity: tuple[str, str, str | None]
    host: tuple[str, str, str | None]
    namespace: str
    impersonate: str | None


class UnreadableError(Exception):
    """No JSON that everybody reads alike."""


def judge(text: bytes, now: float) -> str | RequestedSecret:
    """Return the expected result of a text out of a box: the name of an error, or the request."""
    try:
        document = read(text)
        texts = _shape(document)
    except UnreadableError:
        return "InvalidPayload"
    entity = token(texts["entity_jwt"], "MV", now)
    if entity is None:
        return "InvalidEntityJWT"
    host = token(texts["host_jwt"], "N", now)
    if host is None:
        return "InvalidHostJWT"
    wanted = policy(texts["policy"])
    if wanted is None:
        return "PolicyError"
    if not texts["key"]:
        return "Other"
    if not secret_name(texts["key"]):
        return "UpstreamError"
    if not texts["field"]:
        return "Other"
    if len(texts["field"]) > 253 or not set(texts["field"]) <= FIELD:
        return "SecretNotFound"
    return RequestedSecret(texts["key"], texts["field"], printable(texts["name"]) or None, entity, host, *wanted)


def printable(name: str) -> str:
    """The name of an application as logs have it: 253 characters, and escapes for what is not printable."""
    cut = name[:252] + "…" if len(name) > 253 else name
    return "".join(char if char.isprintable() else f"\\u{ord(char):04x}" for char in cut)


def read(text: bytes | str) -> Any:
    """The value of a JSON text; raises where parsers differ."""
    try:
        plain = text if isinstance(text, str) else text.decode()
        value = json.loads(plain, parse_constant=_never, parse_float=_finite, parse_int=_whole)
        json.dumps(value, ensure_ascii=False).encode()  # half of a surrogate pair cannot be
        _nested(value)
    except (ValueError, RecursionError) as error:
        raise UnreadableError from error
    return value


def _nested(value: Any) -> None:
    level = [value]
    for _ in range(DEPTH_MAX):
        inner = [item.values() if isinstance(item, dict) else item for item in level if isinstance(item, dict | list)]
        if not inner:
            return
        level = [item for values in inner for item in values]
    raise UnreadableError


def _never(_: str) -> Any:
    raise UnreadableError


def _finite(text: str) -> float:
    value = float(text)
    if math.isinf(value):
        raise UnreadableError
    return value


def _whole(text: str) -> int | float:
    value = _finite(text)
    return int(text) if -(2**63) <= value <= 2**64 and -(2**63) <= int(text) < 2**64 else value


def _shape(document: Any) -> dict[str, str]:
    if not isinstance(document, dict):
        raise UnreadableError
    context = _part(document, "context")
    application = _part(context, "application")
    places = {
        "key": document,
        "field": document,
        "version": document,
        "entity_jwt": context,
        "host_jwt": context,
        "name": application,
        "policy": application,
    }
    found = {name: "" if place.get(name) is None else place[name] for name, place in places.items()}
    if not all(isinstance(value, str) for value in found.values()):
        raise UnreadableError
    return found


def _part(parent: dict[str, Any], name: str) -> dict[str, Any]:
    value = parent.get(name)
    if value is None:
        return {}
    if not isinstance(value, dict):
        raise UnreadableError
    return value


def secret_name(name: str) -> bool:
    """Return whether a Secret can have the name: RFC 1123 as Kubernetes has it."""
    labels = name.split(".")
    allowed = set(string.ascii_lowercase + string.digits + "-")
    return len(name) <= 253 and all(
        label and set(label) <= allowed and not label.startswith("-") and not label.endswith("-") for label in labels
    )


def policy(text: str) -> tuple[str, str | None] | None:
    """Namespace and account that a policy asks for."""
    try:
        document = read(text)
    except UnreadableError:
        return None
    if not isinstance(document, dict) or not isinstance(document.get("type", ""), str | None):
        return None
    if "properties" not in document:
        return None
    properties = document["properties"] if document["properties"] is not None else {}
    if not isinstance(properties, dict):
        return None
    namespace, account = (properties.get(name) for name in ("namespace", "impersonate"))
    if not isinstance(namespace, str | None) or not isinstance(account, str | None):
        return None
    namespace = "default" if namespace is None else namespace
    if "." in namespace or len(namespace) > 63 or not secret_name(namespace):
        return None
    if account and (len(account) > 1024 or not account.isprintable() or account != account.strip()):
        return None
    return namespace, account or None


@functools.lru_cache(maxsize=4096)
def token(text: str, kinds: str, now: float) -> tuple[str, str, str | None] | None:
    """Issuer, subject and name of a token, if it is to be taken."""
    parts = [_b64(part) for part in text.split(".", 5)]
    if len(parts) != 3 or None in parts:
        return None
    try:
        header, claims = read(parts[0] or b""), read(parts[1] or b"")
    except UnreadableError:
        return None
    if not isinstance(header, dict) or not isinstance(claims, dict) or "crit" in header:
        return None
    if (header.get("typ"), header.get("alg")) != ("jwt", "Ed25519"):
        return None
    key, about = _claims(claims, kinds, now), claims.get("wascap")
    if key is None or not isinstance(about, dict) or not isinstance(about.get("name"), str | None):
        return None
    if not _signed(text.rpartition(".")[0].encode(), parts[2] or b"", key):
        return None
    return claims["iss"], claims["sub"], about.get("name")


def _claims(claims: dict[str, Any], kinds: str, now: float) -> bytes | None:
    if not all(isinstance(claims.get(name), str) for name in ("iss", "sub", "jti")):
        return None
    for name in ("iat", "exp", "nbf", "wascap_revision"):
        value = claims.get(name)
        if value is not None and (not isinstance(value, int) or isinstance(value, bool) or value < 0):
            return None
    if claims.get("iat") is None or (claims.get("wascap_revision") or 0) >= 2**31:
        return None
    if claims.get("exp") is not None and now >= claims["exp"]:
        return None
    if claims.get("nbf") is not None and now < claims["nbf"]:
        return None
    key, subject = nkey(claims["iss"]), nkey(claims["sub"])
    if key is None or subject is None or claims["iss"][0] != "A" or claims["sub"][0] not in kinds:
        return None
    return key


def nkey(text: str) -> bytes | None:
    """The 32 bytes of a public key of any kind."""
    if len(text) != 56 or not set(text) <= set(BASE32):
        return None
    number = 0
    for char in text:
        number = number << 5 | BASE32.index(char)
    raw = number.to_bytes(35, "big")
    if _crc(raw[:33]) != int.from_bytes(raw[33:], "little") or raw[0] & 7:
        return None
    return raw[1:33]


def nkey_seed(text: str) -> bytes | None:
    """The 32 bytes of a seed of any kind."""
    if len(text) != 58 or not set(text) <= set(BASE32):
        return None
    number = 0
    for char in text:
        number = number << 5 | BASE32.index(char)
    raw = (number >> 2).to_bytes(36, "big")
    if _crc(raw[:34]) != int.from_bytes(raw[34:], "little") or raw[0] >> 3 != 18 or raw[1] & 7 or number & 3:
        return None
    return raw[2:34]


def user_of(seed: bytes, nonce: bytes) -> tuple[bytes, bytes]:
    """The public key of a seed, and what it signs."""
    key = Ed25519PrivateKey.from_private_bytes(seed)
    return key.public_key().public_bytes_raw(), key.sign(nonce)


def _crc(data: bytes) -> int:
    crc = 0
    for byte in data:
        crc ^= byte << 8
        for _ in range(8):
            crc = (crc << 1 ^ 0x1021 if crc & 0x8000 else crc << 1) & 0xFFFF
    return crc


def _b64(text: str) -> bytes | None:
    if not re.fullmatch("[A-Za-z0-9_-]*", text) or len(text) % 4 == 1:
        return None
    unused = {0: 0, 2: 4, 3: 2}[len(text) % 4]
    if unused and BASE64URL.index(text[-1]) % (1 << unused):
        return None
    return base64.urlsafe_b64decode(text + "==")


def _signed(text: bytes, signature: bytes, key: bytes) -> bool:
    y = int.from_bytes(key, "little") % 2**255
    if y >= P or y in LOW_ORDER:
        return False
    try:
        Ed25519PublicKey.from_public_bytes(key).verify(signature, text)
    except (InvalidSignature, ValueError):
        return False
    return True
