"""The secrets protocol of wasmCloud: from a sealed request to who asks for what, from a Secret to a sealed answer.

Pure but for fresh keys and nonces. In: headers and payload of a message on ``….get``, a Secret. Out: who asks
(``Opened``) for what (``Request``), the body and headers of the answer, or a ``Refusal`` in the protocol's words.
Called by ``answering``.
Order of the checks: header, box, JSON, entity's token, host's token; then policy, name of the Secret, its field.
Invariant: no refusal, and no frame of its traceback but the caller's own, holds what was sealed.
Source: secrets-kubernetes (order, words), wasmcloud-secrets-types (shapes; what a host can read).
"""

from __future__ import annotations

import base64
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Final, TypeVar

import orjson

from secrets_backend.domain.box import BoxError, seal, unseal
from secrets_backend.domain.keys import CurveKey, KeyFormatError, KeyRing
from secrets_backend.domain.policy import Policy, read_policy
from secrets_backend.domain.reading import UNREADABLE, quoted, read_object, shown
from secrets_backend.domain.refusals import ErrorName, Refusal
from secrets_backend.domain.tokens import Token, TokenError, TokenKind, read_token

HOST_KEY_HEADER: Final = "WasmCloud-Host-Xkey"
"""Names the public key, fresh for each request, that the request was sealed with. The case of its letters counts."""
RESPONSE_KEY_HEADER: Final = "Server-Response-Xkey"
"""Names the public key that an answer was sealed with; without it a host takes the answer for an error."""
T = TypeVar("T")
_NAME_MAX: Final = 253
_FIELD: Final = re.compile(r"[-._a-zA-Z0-9]{1,253}")
_NAME: Final = re.compile(r"[a-z0-9](?:[-a-z0-9]*[a-z0-9])?(?:\.[a-z0-9](?:[-a-z0-9]*[a-z0-9])?)*")


@dataclass(frozen=True, slots=True)
class Request:
    """Who asks for what. ``reply_to``: the host's public curve key; ``secret``, ``field``: an entry of a Secret.

    Every text in it is short, and but for ``application`` and the tokens' names of a known form: strangers wrote them,
    and they go into logs and events.
    """

    reply_to: str
    secret: str
    field: str
    application: str | None
    entity: Token
    host: Token
    policy: Policy


@dataclass(frozen=True, slots=True)
class Opened:
    """Who asks, by valid tokens; of what they ask for each part, or why it cannot be: a refusal of somebody known.

    Every text in it is as short and of such a form as those of a ``Request``.
    """

    reply_to: str
    application: str | None
    entity: Token
    host: Token
    policy: Policy | Refusal
    secret: str | Refusal
    field: str | Refusal

    def request(self) -> Request:
        """Return what is asked for.

        Raises:
            Refusal: the first part, in the protocol's order, that cannot be.
        """
        return Request(
            reply_to=self.reply_to,
            application=self.application,
            entity=self.entity,
            host=self.host,
            policy=_possible(self.policy),
            secret=_possible(self.secret),
            field=_possible(self.field),
        )


def open_request(headers: Mapping[str, str] | None, payload: bytes, keys: KeyRing, now: float) -> Opened:
    """Return who asks, and for what; ``now``: seconds since 1970.

    Raises:
        Refusal: the first check, in the protocol's order, that does not hold of those before the policy's.
    """
    try:
        return _opened(headers or {}, payload, keys, now)
    except Refusal as refusal:
        # The frames below hold what was sealed: they end here, not when the log is written.
        raise refusal.with_traceback(None) from None


def success(secret: Mapping[str, Any], field: str) -> bytes:
    """Return the answer with one entry of a Secret, not sealed yet.

    ``secret``: the object as the API server gives it. Text is sent as ``string_secret``, also if it is empty; bytes
    that are no UTF-8 as ``binary_secret``, a list of numbers, which is the only form a host reads and up to four times
    as long as the bytes: who sends it minds the server's limit for messages.

    Raises:
        Refusal: ``SecretNotFound``, the Secret has no such entry.
    """
    data = secret.get("data") or {}
    if field not in data:
        raise Refusal(ErrorName.SECRET_NOT_FOUND, f"the Secret has no entry {quoted(field)}")
    value = base64.b64decode(data[field])
    entry = {"version": str(secret["metadata"]["resourceVersion"])}
    try:
        return orjson.dumps({"secret": entry | {"string_secret": value.decode()}})
    except UnicodeDecodeError:
        return orjson.dumps({"secret": entry | {"binary_secret": list(value)}})


def seal_reply(request: Request, body: bytes) -> tuple[bytes, dict[str, str]]:
    """Return the payload and headers of an answer that only who sent ``request`` can open.

    Raises:
        Refusal: ``EncryptionError``.
    """
    key = CurveKey.make()
    try:
        return seal(body, key, request.reply_to), {RESPONSE_KEY_HEADER: key.public}
    except KeyFormatError:
        pass
    raise Refusal(ErrorName.ENCRYPTION, "the answer could not be sealed to the host's key")


def _opened(headers: Mapping[str, str], payload: bytes, keys: KeyRing, now: float) -> Opened:
    sender = headers.get(HOST_KEY_HEADER, "").strip(" \t")
    if not sender:
        raise Refusal(ErrorName.INVALID_HEADERS, f"the header {HOST_KEY_HEADER} is missing")
    body = read_object(_unsealed(payload, keys, sender))
    if body is UNREADABLE:
        raise _ill_formed("it is not a JSON object")
    context = _object(body, "context")
    application = _object(context, "application")
    secret, field, _ = (_text(body, name) for name in ("key", "field", "version"))  # always the newest version
    entity, host = _text(context, "entity_jwt"), _text(context, "host_jwt")
    name, policy = _text(application, "name"), _text(application, "policy")
    return Opened(  # its arguments are the checks that are left, in their order
        reply_to=sender,
        entity=_token(ErrorName.INVALID_ENTITY_JWT, entity, TokenKind.ENTITY, now),
        host=_token(ErrorName.INVALID_HOST_JWT, host, TokenKind.HOST, now),
        policy=_or_why(read_policy, policy),
        secret=_or_why(_secret_name, secret),
        field=_or_why(_field, field),
        application=shown(name) if name else None,
    )


def _or_why(read: Callable[[str], T], text: str) -> T | Refusal:
    try:
        return read(text)
    except Refusal as refusal:
        return refusal.with_traceback(None)


def _possible(part: T | Refusal) -> T:
    if isinstance(part, Refusal):
        raise part
    return part


def _unsealed(payload: bytes, keys: KeyRing, sender: str) -> bytes:
    try:
        return unseal(payload, keys, sender)
    except KeyFormatError as error:
        why = f"the header {HOST_KEY_HEADER} names no curve key: {error}"
    except BoxError as error:
        why = f"the request does not open: {error}"
    raise Refusal(ErrorName.DECRYPTION, why)


def _token(error: ErrorName, text: str, kind: TokenKind, now: float) -> Token:
    try:
        return read_token(text, kind, now)
    except TokenError as refused:
        why = str(refused)
    raise Refusal(error, why)


def _object(parent: dict[str, Any], name: str) -> dict[str, Any]:
    value = parent.get(name)
    if value is None:
        return {}
    if not isinstance(value, dict):
        raise _ill_formed(f"its {name} is not an object")
    return value


def _text(parent: dict[str, Any], name: str) -> str:
    value = parent.get(name)
    if value is None:
        return ""
    if not isinstance(value, str):
        raise _ill_formed(f"its {name} is no text")
    return value


def _ill_formed(why: str) -> Refusal:
    return Refusal(ErrorName.INVALID_PAYLOAD, f"the request is not understood: {why}")


def _secret_name(name: str) -> str:
    """Return a name that can stand in a path of the API server as it is: never "..", never with a slash."""
    _given(name, "missing secret name")
    if len(name) > _NAME_MAX or not _NAME.fullmatch(name):
        raise Refusal(ErrorName.UPSTREAM, f"no Secret can have the name {quoted(name)}")
    return name


def _field(field: str) -> str:
    """Return a field that a Secret can have: what none can have is not asked for."""
    _given(field, "missing secret key/field")
    if not _FIELD.fullmatch(field):
        raise Refusal(ErrorName.SECRET_NOT_FOUND, f"no Secret can have the entry {quoted(field)}")
    return field


def _given(value: str, otherwise: str) -> str:
    if not value:
        raise Refusal(ErrorName.OTHER, otherwise)
    return value
