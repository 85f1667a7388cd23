"""Error answers of the secrets protocol.

Pure. In: an error name of the protocol and, for some names, a message for users. Out: the body of the answer, which is
sent unsealed and without a header. Raised by every step of a request, answered by ``answering``.
Invariant: a refusal contains no key material, token or value; messages quote only names.
Source: ``GetSecretError`` of wasmcloud-secrets-types, as serialized by serde; the host cannot read any other shape.
"""

from __future__ import annotations

from enum import StrEnum
from typing import Final

import orjson


class ErrorName(StrEnum):
    """The errors of the protocol with which a backend answers."""

    SECRET_NOT_FOUND = "SecretNotFound"  # noqa: S105 (a name of the protocol)
    INVALID_REQUEST = "InvalidRequest"
    INVALID_HEADERS = "InvalidHeaders"
    INVALID_PAYLOAD = "InvalidPayload"
    ENCRYPTION = "EncryptionError"
    DECRYPTION = "DecryptionError"
    INVALID_ENTITY_JWT = "InvalidEntityJWT"
    INVALID_HOST_JWT = "InvalidHostJWT"
    UPSTREAM = "UpstreamError"
    POLICY = "PolicyError"
    OTHER = "Other"


WITH_MESSAGE: Final = frozenset(
    {
        ErrorName.INVALID_ENTITY_JWT,
        ErrorName.INVALID_HOST_JWT,
        ErrorName.UPSTREAM,
        ErrorName.POLICY,
        ErrorName.OTHER,
    }
)
"""Errors whose message is sent to the host; all other messages are only for logs and events."""


class Reason(StrEnum):
    """The reason why the grant of a connection does not cover a policy."""

    NO_HOST_GROUPS = "NoHostGroups"
    NAMESPACE_NOT_GRANTED = "NamespaceNotGranted"
    INVALID_ACCOUNT_NAME = "InvalidAccountName"
    ACCOUNT_NOT_GRANTED = "AccountNotGranted"
    USER_NOT_GRANTED = "UserNotGranted"
    USER_NOT_ALLOWED = "UserNotAllowed"
    ISSUER_NOT_GRANTED = "IssuerNotGranted"
    GRANT_INVALID = "GrantInvalid"


class Refusal(Exception):  # noqa: N818 (an answer of the protocol, not a failure)
    """A request that is not granted.

    ``error``: its name in the protocol; ``message``: the reason, for users; ``reason``: set if the grant lacks it.
    """

    def __init__(self, error: ErrorName, message: str, reason: Reason | None = None) -> None:
        super().__init__(error, message)
        self.error = error
        self.message = message
        self.reason = reason

    def __str__(self) -> str:
        return f"{self.error}: {self.message}"

    def body(self) -> bytes:
        """Return the answer: ``{"error": "Name"}``, or ``{"error": {"Name": "message"}}`` for errors with a message."""
        if self.error not in WITH_MESSAGE:
            return orjson.dumps({"error": self.error.value})
        message = self.message.encode(errors="replace").decode()  # half of a surrogate pair is invalid in JSON
        return orjson.dumps({"error": {self.error.value: message}})
