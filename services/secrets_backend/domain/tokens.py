"""Tokens of an entity (a component, a provider) and of its host.

Pure. In: the text of a JWT, its required kind, the time. Out: issuer, subject and name. Called by ``protocol`` and by
``trellis secrets check``. A token proves only that its issuer's key signed it: any client can create an issuer, so
``decide`` decides on reads by the lattice connection.
Source: wascap 0.16 (``validate_token``) and RFC 7519; where the protocol's Go server is laxer, wascap counts. Stricter
than both: a subject and an issuer of the kind wasmCloud makes, one text for each token (no stray bits), no ``crit``,
and signatures as in libsodium (canonical S, no key of low order: RFC 8032, 5.1.7, without the cofactor).
"""

from __future__ import annotations

import base64
import binascii
from dataclasses import dataclass
from enum import Enum
from typing import Any, Final

from nacl import bindings
from nacl.exceptions import BadSignatureError

from secrets_backend.domain.reading import UNREADABLE, read_object
from trellis.config.nkey import KeyFormatError, Prefix, decode_public

_SEGMENTS: Final = 3
_SIGNATURE_BYTES: Final = 64
_REVISION_MAX: Final = 2**31 - 1


class TokenError(ValueError):
    """The token is invalid; the message has the reason, and nothing of the token."""


class TokenKind(Enum):
    """Kind of a token, by the permitted kinds of its subject's key."""

    ENTITY = (Prefix.COMPONENT, Prefix.PROVIDER)
    HOST = (Prefix.HOST,)


@dataclass(frozen=True, slots=True)
class Token:
    """A valid token. ``issuer`` and ``subject``: nkeys; ``name``: given by the issuer."""

    issuer: str
    subject: str
    name: str | None


def read_token(text: str, kind: TokenKind, now: float) -> Token:
    """Return the token in ``text`` if it is complete, signed by its issuer, of this kind, and valid at ``now``.

    ``now``: seconds since 1970. No leeway, as in hosts: a token is valid from ``nbf`` to ``exp``.

    Raises:
        TokenError: the token is invalid.
    """
    segments = text.split(".", _SEGMENTS) if text.isascii() else []
    if len(segments) != _SEGMENTS:
        raise TokenError("it is not a JWT: a JWT has three parts separated by dots")
    header, claims, signature = (_part(name, item) for name, item in zip(_PARTS, segments, strict=True))
    _check_header(header)
    token, key = _read_claims(claims, kind, now)
    if not _verifies(f"{segments[0]}.{segments[1]}".encode(), signature, key):
        raise TokenError("its signature is not its issuer's")
    return token


_PARTS: Final = ("header", "claims", "signature")


def _part(name: str, text: str) -> bytes:
    raw = _decoded(text)
    if raw is None:
        raise TokenError(f"its {name} is not base64url without padding")
    return raw


def _decoded(text: str) -> bytes | None:
    try:
        raw = base64.urlsafe_b64decode(text + "=" * (-len(text) % 4))
    except binascii.Error:
        return None
    # The decoder skips unknown characters; a second text of a token would be another token in a comparison.
    return raw if base64.urlsafe_b64encode(raw).rstrip(b"=") == text.encode() else None


def _check_header(raw: bytes) -> None:
    header = read_object(raw)
    if header is UNREADABLE:
        raise TokenError("its header is not a JSON object")
    if header.get("typ") != "jwt" or header.get("alg") != "Ed25519":
        raise TokenError('its header is not that of wascap: needs typ "jwt" and alg "Ed25519"')
    if "crit" in header:
        raise TokenError("its header asks for an extension (crit)")


def _read_claims(raw: bytes, kind: TokenKind, now: float) -> tuple[Token, bytes]:
    """Return the token and the 32 bytes of the issuer's key."""
    claims = read_object(raw)
    if claims is UNREADABLE:
        raise TokenError("its claims are not a JSON object")
    issuer, subject = _text(claims, "iss"), _text(claims, "sub")
    key = _key("iss", issuer, (Prefix.ACCOUNT,))
    _key("sub", subject, kind.value)
    if not isinstance(claims.get("jti"), str):
        raise TokenError("its jti is missing, or not text")
    if _time(claims, "iat") is None:
        raise TokenError("its time of issue (iat) is missing")
    _check_times(_time(claims, "exp"), _time(claims, "nbf"), now)
    revision = claims.get("wascap_revision")
    if revision is not None and not (_whole(revision) and revision <= _REVISION_MAX):
        raise TokenError("its wascap_revision is not an integer")
    return Token(issuer, subject, _name(claims)), key


def _text(claims: dict[str, Any], name: str) -> str:
    value = claims.get(name)
    if not isinstance(value, str) or not value:
        raise TokenError(f"its {name} is missing, or not text")
    return value


def _key(what: str, text: str, allowed: tuple[Prefix, ...]) -> bytes:
    try:
        return decode_public(text, *allowed)
    except KeyFormatError as error:
        reason = str(error)
    raise TokenError(f"its {what} is not accepted: {reason}")


def _time(claims: dict[str, Any], name: str) -> int | None:
    value = claims.get(name)
    if value is None:
        return None
    if not _whole(value):
        raise TokenError(f"its {name} is not an integer of seconds")
    seconds: int = value
    return seconds


def _whole(value: Any) -> bool:  # noqa: ANN401 (a value of JSON)
    return type(value) is int and value >= 0


def _check_times(expires: int | None, begins: int | None, now: float) -> None:
    if expires is not None and now >= expires:
        raise TokenError(f"it is expired (exp {expires}, now {int(now)})")
    if begins is not None and now < begins:
        raise TokenError(f"it is not valid yet (nbf {begins}, now {int(now)})")


def _name(claims: dict[str, Any]) -> str | None:
    about = claims.get("wascap")
    if not isinstance(about, dict):
        raise TokenError("its wascap claim is missing, or not an object")
    name = about.get("name")
    if name is not None and not isinstance(name, str):
        raise TokenError("the name in its wascap claim is not text")
    return name


def _verifies(signed: bytes, signature: bytes, key: bytes) -> bool:
    if len(signature) != _SIGNATURE_BYTES:
        return False
    try:
        bindings.crypto_sign_open(signature + signed, key)
    except BadSignatureError:
        return False
    return True
