"""The cases and their permitted results.

In: a request and the rule of the protocol. Out: a verdict on a reply. Called by the tables and their runners. The rules
are the protocol's; ``ours`` marks a case in which we ask for more than it does, and why.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any, Final

from support.secrets.secrets_client import ClientError, Key, Reply
from support.secrets.secrets_conformance.world import RESPONSE_XKEY, Ask, World

BARE: Final = frozenset({
    "SecretNotFound", "InvalidRequest", "InvalidHeaders", "InvalidPayload", "EncryptionError", "DecryptionError",
    "InvalidXKey", "Unauthorized",
})  # fmt: skip
WITH_MESSAGE: Final = frozenset({"InvalidEntityJWT", "InvalidHostJWT", "UpstreamError", "PolicyError", "Other"})


class UnreadableError(Exception):
    """A host cannot read what came."""


@dataclass(frozen=True)
class Value:
    """A secret came: as text, or as bytes."""

    text: str | None = None
    binary: bytes | None = None

    def __str__(self) -> str:
        value = self.text if self.text is not None else self.binary
        return f"a {type(value).__name__} of {len(value or '')}"


@dataclass(frozen=True)
class Refusal:
    """An error came: its name and, if it has one, its message."""

    name: str
    message: str | None = None

    def __str__(self) -> str:
        return self.name if self.message is None else f"{self.name}: {self.message[:200]}"


@dataclass(frozen=True)
class Line:
    """The server's public key came, as it is."""

    text: str

    def __str__(self) -> str:
        return f"a line of {len(self.text)}"


Outcome = Value | Refusal | Line


@dataclass(frozen=True)
class Expected:
    """The permitted results: one of these. ``refusals`` by name; ``says`` has to be in the message."""

    value: Value | None = None
    refusals: frozenset[str] = frozenset()
    key: bool = False
    nothing: bool = False
    says: str = ""

    def allows(self, outcome: Outcome | None, server_xkey: str) -> bool:
        """Return whether that is what may come."""
        match outcome:
            case None:
                return self.nothing
            case Value():
                return outcome == self.value
            case Refusal(name, message):
                return name in self.refusals and self.says in (message or "")
            case Line(text):
                return self.key and text == server_xkey

    def __str__(self) -> str:
        given = [str(self.value)] if self.value else []
        given += ["the server's key"] if self.key else []
        given += ["nothing"] if self.nothing else []
        return " or ".join([*given, *sorted(self.refusals)]) + (f" that says {self.says!r}" if self.says else "")


@dataclass(frozen=True)
class Case:
    """A request, and what has to come."""

    id: str
    ask: Ask
    expected: Expected
    ours: str = ""


def granted(text: str = "p4ss-w0rd") -> Expected:
    """Return that this text comes."""
    return Expected(Value(text=text))


def granted_bytes(binary: bytes) -> Expected:
    """Return that these bytes come, as bytes."""
    return Expected(Value(binary=binary))


def refused(*names: str, says: str = "") -> Expected:
    """Return that one of these errors comes; any, if none is named."""
    return Expected(refusals=frozenset(names) or BARE | WITH_MESSAGE, says=says)


def granted_or_refused(*names: str) -> Expected:
    """Return that the protocol leaves it open, but not that there is no answer."""
    return Expected(Value(text="p4ss-w0rd"), frozenset(names) or BARE | WITH_MESSAGE)


def read_key(reply: Reply) -> Line:
    """Return what a host reads in a reply to ``server_xkey``.

    Raises:
        UnreadableError: if there is more than the key.
    """
    if reply.headers:
        raise UnreadableError(f"the key came with headers: {reply.headers}")
    return Line(reply.data.decode("utf-8", "replace"))


def read(world: World, reply: Reply, host: Key) -> Outcome:
    """Return what a host reads in a reply to ``get``.

    Raises:
        UnreadableError: if it is none of what a host knows, with the reason.
    """
    theirs = [value for name, value in reply.headers if name == RESPONSE_XKEY]
    if not theirs:
        return _refusal(reply.data)
    if len(theirs) > 1 or theirs[0] == world.server_xkey:
        raise UnreadableError("sealed with no fresh key")
    try:
        opened = world.client.open(reply.data, host.seed, theirs[0])
    except ClientError as error:
        raise UnreadableError(f"the box does not open: {error}") from None
    return _value(opened)


def _value(opened: bytes) -> Value:
    body = _json(opened)
    if body.keys() != {"secret"} or not isinstance(body["secret"], dict):
        raise UnreadableError("what is sealed is no secret alone")
    secret = {name: value for name, value in body["secret"].items() if value is not None}
    text, binary = secret.get("string_secret"), secret.get("binary_secret")
    if not (isinstance(secret.get("version"), str) and secret["version"]) or (text is None) == (binary is None):
        raise UnreadableError(f"a secret has to have a version and one value; it has {sorted(secret)}")
    if binary is not None:
        if not all(type(item) is int and 0 <= item <= 255 for item in binary):
            raise UnreadableError("bytes have to be an array of numbers from 0 to 255")
        return Value(binary=bytes(binary))
    if not isinstance(text, str):
        raise UnreadableError("string_secret is no string")
    return Value(text=text)


def _refusal(data: bytes) -> Refusal:
    body = _json(data)
    error = body.get("error")
    if body.keys() != {"error"}:
        raise UnreadableError(f"an answer without a key has to be an error alone; it has {sorted(body)}")
    if isinstance(error, str) and error in BARE:
        return Refusal(error)
    if isinstance(error, dict) and len(error) == 1:
        [(name, message)] = error.items()
        if name in WITH_MESSAGE and isinstance(message, str):
            return Refusal(name, message)
    raise UnreadableError(f"no error of the protocol: {str(error)[:200]}")


def _json(data: bytes) -> dict[str, Any]:
    try:
        body = json.loads(data)
    except ValueError as error:
        raise UnreadableError(f"no JSON: {error}") from None
    if not isinstance(body, dict):
        raise UnreadableError("no JSON object")
    return body
