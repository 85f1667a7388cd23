"""What the secrets protocol answers instead of a secret.

Pure. In: a name of the protocol and, for some names, words for users. Out: the body of the answer, which goes out
unsealed and without a header. Raised by every step of a request, answered by ``handlers``.
Invariant: no refusal holds key material, a token or a value; who raises one quotes only names.
Source: ``GetSecretError`` of wasmcloud-secrets-types, as serde writes it; the host cannot read any other shape.
"""

from __future__ import annotations

from enum import StrEnum
from typing import Final

import orjson


class ErrorName(StrEnum):
    """The protocol's errors that a backend answers with."""

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
"""The errors whose message reaches the host; the message of the others is for our own logs and events."""


class Reason(StrEnum):
    """Why a link's grant does not have what a policy asks for."""

    NO_HOST_GROUPS = "NoHostGroups"
    NAMESPACE_NOT_GRANTED = "NamespaceNotGranted"
    INVALID_ACCOUNT_NAME = "InvalidAccountName"
    ACCOUNT_NOT_GRANTED = "AccountNotGranted"
    USER_NOT_GRANTED = "UserNotGranted"
    USER_NOT_ALLOWED = "UserNotAllowed"
    ISSUER_NOT_GRANTED = "IssuerNotGranted"
    GRANT_INVALID = "GrantInvalid"


class Refusal(Exception):  # noqa: N818 (an answer of the protocol, and no fault of ours)
    """A request that is not granted.

    ``error``: its name in the protocol; ``message``: why, for users; ``reason``: why, if the grant does not have it.
    """

    def __init__(self, error: ErrorName, message: str, reason: Reason | None = None) -> None:
        super().__init__(error, message)
        self.error = error
        self.message = message
        self.reason = reason

    def __str__(self) -> str:
        return f"{self.error}: {self.message}"

    def body(self) -> bytes:
        """Return the answer: ``{"error": "Name"}``, or ``{"error": {"Name": "message"}}`` for those that have one."""
        if self.error not in WITH_MESSAGE:
            return orjson.dumps({"error": self.error.value})
        message = self.message.encode(errors="replace").decode()  # half of a surrogate pair is no JSON
        return orjson.dumps({"error": {self.error.value: message}})
