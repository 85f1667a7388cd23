"""One of the two tokens of a request, and ways to make it wrong."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

from secrets_backend.domain.refusals import ErrorName
from support.secrets.opened_requests import answer, message, refusal
from support.secrets.secret_requests import (
    ACCOUNT,
    HEADER,
    HOST_ISSUER,
    NOW,
    Absent,
    Signer,
    asking_with,
    b64,
    entity_claims,
    host_claims,
    jwt,
)

Claims = dict[str, Any]


class Side:
    """One of the two tokens of a request."""

    def __init__(self, member: str, error: ErrorName, claims: Callable[..., Claims], issuer: Signer) -> None:
        self.member, self.error, self.claims, self.issuer = f"context.{member}", error, claims, issuer

    def signed(self, claims: Any = None, header: Any = HEADER, **changes: Any) -> str:
        return jwt(self.claims(**changes) if claims is None else claims, self.issuer, header)

    def asks(self, token: str) -> bytes:
        return asking_with({self.member: token})


ENTITY: Final = Side("entity_jwt", ErrorName.INVALID_ENTITY_JWT, entity_claims, ACCOUNT)
OF_HOST: Final = Side("host_jwt", ErrorName.INVALID_HOST_JWT, host_claims, HOST_ISSUER)
SECOND: Final = int(NOW)
SIDES: Final = {"entity": ENTITY, "host": OF_HOST}


def cut(token: str, part: int, change: Callable[[str], str]) -> str:
    parts = token.split(".")
    parts[part] = change(parts[part])
    return ".".join(parts)


def resigned(side: Side, part: int, change: Callable[[str], str]) -> str:
    """A token whose text was changed before it was signed: the signature is right."""
    signed = ".".join(cut(side.signed(), part, change).split(".")[:2])
    return f"{signed}.{b64(side.issuer.sign(signed.encode()))}"


def header(**members: Any) -> Callable[[Side], str]:
    return lambda side: side.signed(
        header={name: value for name, value in (HEADER | members).items() if value is not Absent}
    )


def claim(**changes: Any) -> Callable[[Side], str]:
    return lambda side: side.signed(**changes)


def stopped(side: Side, token: str) -> str:
    """The words of the refusal; fails unless it is the right error, and nothing of the token is in it."""
    text = side.asks(token)
    refused = refusal(message(text), text)
    assert refused.error is side.error
    error_text = answer(side.error, refused.body())
    assert 0 < len(error_text) < 120
    return error_text
