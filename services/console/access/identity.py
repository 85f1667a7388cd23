"""Identity of a viewer: by their token, or by the headers of a proxy.

Pure. In: headers, the credentials of the proxy, settings. Out: a viewer, or a refusal. Called by ``authentication`` for
each request. Invariants: identity headers count only together with the secret or the certificate of the proxy; they
accept ``system:`` users and groups only with a setting; a name that the API server could parse differently is rejected;
two viewers are equal only if the API server cannot distinguish them.
"""

from __future__ import annotations

import hashlib
import hmac
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from console.domain.limits import TOKEN_CHARACTERS
from console.http.refusals import RefusedError, bad

SECRET_HEADER: Final = "X-Trellis-Proxy-Secret"  # noqa: S105 - the header's name
SECRET_LEAST: Final = 32
"""Minimum length of the secret that proxy and console share."""
_TOKEN: Final = re.compile(r"[A-Za-z0-9._~+/=-]+")
_SYSTEM: Final = "system:"
_NAME_MOST: Final = 1024
_GROUPS_MOST: Final = 200
_ANONYMOUS: Final = frozenset({"", "system:anonymous"})


@dataclass(frozen=True, slots=True)
class Viewer:
    """A viewer. ``key``: unique, not a secret; ``user`` and ``groups``: for display.

    ``token``: authenticates the viewer to the API server; "" behind a proxy, with impersonation.
    """

    key: str
    user: str
    groups: tuple[str, ...] = ()
    token: str = field(default="", repr=False, compare=False)


@dataclass(frozen=True, slots=True)
class Proxy:
    """Credentials of a proxy. ``secret``: b"" without a secret; ``names``: in its certificate, empty without one."""

    user_header: str
    groups_header: str
    secret: bytes = field(default=b"", repr=False)
    names: frozenset[str] = frozenset()
    system: bool = False


def token_of(given: object) -> str:
    """Return a token without its prefix and white space; raises RefusedError if it is invalid."""
    text = given.strip() if isinstance(given, str) else ""
    text = text.removeprefix("Bearer ").strip()
    if not text or len(text) > TOKEN_CHARACTERS or not _TOKEN.fullmatch(text):
        raise bad("invalid bearer token", "use the output of `kubectl create token`")
    return text


def by_token(token: str, review: Mapping[str, Any]) -> Viewer:
    """Return the viewer of a token, from its SelfSubjectReview.

    Raises:
        RefusedError: the API server does not accept the token.
    """
    info = (review.get("status") or {}).get("userInfo") or {}
    user = str(info.get("username") or "")
    if user in _ANONYMOUS:
        raise RefusedError(401, "the API server rejects this token", "use another one, it may have expired")
    # The digest of the token: two tokens of a user may be bound to different objects.
    key = f"token/{hashlib.sha256(token.encode()).hexdigest()}"
    return Viewer(key, user, tuple(sorted(map(str, info.get("groups") or ()))), token)


def by_proxy(proxy: Proxy, headers: Mapping[str, Sequence[str]], certificate: frozenset[str] = frozenset()) -> Viewer:
    """Return the viewer that a proxy names. ``headers``: by lower-case name, with all values.

    ``certificate``: names in the verified client certificate of the connection.

    Raises:
        RefusedError: the request is not from the proxy, or it names no user, or a user that is not permitted.
    """
    if not _trusted(proxy, headers.get(SECRET_HEADER.lower(), ()), certificate):
        raise RefusedError(403, "the console is available only through its proxy", "use the address of the proxy")
    users = headers.get(proxy.user_header.lower(), ())
    if len(users) != 1 or not users[0].strip():
        raise RefusedError(403, "the proxy sends no user", "log in at the proxy")
    user = _name(users[0].strip(), proxy)
    sent = [part.strip() for value in headers.get(proxy.groups_header.lower(), ()) for part in value.split(",")]
    groups = tuple(sorted({_name(group, proxy) for group in sent if group}))
    if len(groups) > _GROUPS_MOST:
        raise RefusedError(403, f"more than {_GROUPS_MOST} groups", "configure the proxy to send fewer groups")
    digest = hashlib.sha256("\0".join((user, *groups)).encode()).hexdigest()
    return Viewer(f"proxy/{digest}", user, groups)


def _trusted(proxy: Proxy, secrets: Sequence[str], certificate: frozenset[str]) -> bool:
    if proxy.names & certificate:
        return True
    return (
        bool(proxy.secret)
        and len(secrets) == 1
        and hmac.compare_digest(secrets[0].encode(errors="replace"), proxy.secret)
    )


def _name(name: str, proxy: Proxy) -> str:
    if len(name) > _NAME_MOST or not name.isprintable():
        raise RefusedError(403, "the proxy sends an invalid name", "configure it to send names of users and groups")
    if name.startswith(_SYSTEM) and not proxy.system:
        raise RefusedError(
            403,
            "the proxy names a system: user or group",
            "configure it to omit them, or set TRELLIS_CONSOLE_SYSTEM_IDENTITIES",
        )
    return name
