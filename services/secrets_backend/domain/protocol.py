"""The secrets protocol of wasmCloud: parses sealed requests, and seals answers with an entry of a Secret.

Pure except for new keys and nonces. In: headers and payload of a message on ``….get``, a Secret. Out: the sender
(``Opened``) and the requested entry (``Request``), body and headers of the answer, or a ``Refusal`` of the protocol.
Called by ``answering``.
Order of the checks: header, box, JSON, entity's token, host's token; then policy, name of the Secret, its field.
Invariant: no refusal, and no frame of its traceback except the caller's own, contains sealed content.
Source: secrets-kubernetes (order, messages), wasmcloud-secrets-types (shapes; formats that a host can read).
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
"""Header with the public key of the host, new for each request, that sealed the request. It is case-sensitive."""
RESPONSE_KEY_HEADER: Final = "Server-Response-Xkey"
"""Header with the public key that sealed the answer; without it a host treats the answer as an error."""
T = TypeVar("T")
_NAME_MAX: Final = 253
_FIELD: Final = re.compile(r"[-._a-zA-Z0-9]{1,253}")
_NAME: Final = re.compile(r"[a-z0-9](?:[-a-z0-9]*[a-z0-9])?(?:\.[a-z0-9](?:[-a-z0-9]*[a-z0-9])?)*")


@dataclass(frozen=True, slots=True)
class Request:
    """A valid request. ``reply_to``: the host's public curve key; ``secret``, ``field``: an entry of a Secret.

    All texts are short and, except for ``application`` and the names in the tokens, of a known format: they are
    untrusted, and appear in logs and events.
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
    """A request with valid tokens; each further part is parsed, or is a refusal that can be attributed to the sender.

    All texts are as short and of the same formats as those of a ``Request``.
    """

    reply_to: str
    application: str | None
    entity: Token
    host: Token
    policy: Policy | Refusal
    secret: str | Refusal
    field: str | Refusal

    def request(self) -> Request:
        """Return the request.

        Raises:
            Refusal: of the first invalid part, in the protocol's order.
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
    """Return the opened request; ``now``: seconds since 1970.

    Raises:
        Refusal: of the first failed check, in the protocol's order, up to the host's token.
    """
    try:
        return _opened(headers or {}, payload, keys, now)
    except Refusal as refusal:
        # The frames below refer to the opened content: drop them here, before the refusal is logged.
        raise refusal.with_traceback(None) from None


def success(secret: Mapping[str, Any], field: str) -> bytes:
    """Return the answer with one entry of a Secret, before it is sealed.

    ``secret``: the object from the API server. Text is sent as ``string_secret``, even if it is empty; bytes that are
    not UTF-8 as ``binary_secret``, a list of numbers, which is the only format that a host reads and up to four times
    as long as the bytes: the caller has to check the server's limit for messages.

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
    """Return the payload and headers of an answer that only the sender of ``request`` can open.

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
    return Opened(  # the order of the arguments is that of the remaining checks
        reply_to=sender,
        entity=_token(ErrorName.INVALID_ENTITY_JWT, entity, TokenKind.ENTITY, now),
        host=_token(ErrorName.INVALID_HOST_JWT, host, TokenKind.HOST, now),
        policy=_or_refusal(read_policy, policy),
        secret=_or_refusal(_secret_name, secret),
        field=_or_refusal(_field, field),
        application=shown(name) if name else None,
    )


def _or_refusal(read: Callable[[str], T], text: str) -> T | Refusal:
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
        reason = f"the header {HOST_KEY_HEADER} is not a curve key: {error}"
    except BoxError as error:
        reason = f"the request does not open: {error}"
    raise Refusal(ErrorName.DECRYPTION, reason)


def _token(error: ErrorName, text: str, kind: TokenKind, now: float) -> Token:
    try:
        return read_token(text, kind, now)
    except TokenError as refused:
        reason = str(refused)
    raise Refusal(error, reason)


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
        raise _ill_formed(f"its {name} is not text")
    return value


def _ill_formed(reason: str) -> Refusal:
    return Refusal(ErrorName.INVALID_PAYLOAD, f"the request is not understood: {reason}")


def _secret_name(name: str) -> str:
    """Return a name that is safe in a path of the API server: not "..", and without a slash."""
    _given(name, "missing secret name")
    if len(name) > _NAME_MAX or not _NAME.fullmatch(name):
        raise Refusal(ErrorName.UPSTREAM, f"no Secret can have the name {quoted(name)}")
    return name


def _field(field: str) -> str:
    """Return a field that is valid in a Secret; an invalid one is refused without a read."""
    _given(field, "missing secret key/field")
    if not _FIELD.fullmatch(field):
        raise Refusal(ErrorName.SECRET_NOT_FOUND, f"no Secret can have the entry {quoted(field)}")
    return field


def _given(value: str, otherwise: str) -> str:
    if not value:
        raise Refusal(ErrorName.OTHER, otherwise)
    return value
