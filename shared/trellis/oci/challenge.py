"""Authorization at a registry: its challenge, and the token of its token server.

Pure. In: ``WWW-Authenticate`` of a 401 answer, the answer of the token server. Out: headers of the requests to the
registry, and the request to its token server. Called by the node installer and by controller_host. Source: the token
flow of the authentication specification of registries; RFC 7617. Invariants: a password is sent only to its registry
and to the token server named by this registry; a token is a valid header or ``MalformedDocument`` is raised.
"""

from __future__ import annotations

import base64
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final
from urllib.parse import urlencode

from trellis.oci.manifests import MalformedDocument, read_document

_PARAMETER: Final = re.compile(r'(\w+)="([^"]*)"')


def basic(credentials: str) -> str:
    """Return the header for ``user:password`` (RFC 7617)."""
    return "Basic " + base64.b64encode(credentials.encode()).decode()


@dataclass(frozen=True, slots=True)
class TokenRequest:
    """A GET that a token server answers with a token."""

    url: str
    headers: Mapping[str, str] = field(repr=False)


@dataclass(slots=True)
class Authorization:
    """The authorization of the requests for one repository; ``credentials``: ``user:password``."""

    repository: str
    credentials: str | None = field(repr=False)
    _value: str = field(default="", init=False, repr=False)

    def headers(self) -> dict[str, str]:
        """Return the headers of a request to the registry; empty before the first challenge."""
        return {"Authorization": self._value} if self._value else {}

    def challenged(self, challenge: str) -> TokenRequest | None:
        """Process the challenge of a registry; return the request for a token, None if it requires no token.

        The answer to the request goes to ``granted``. An unsupported challenge changes nothing.
        """
        scheme, _, rest = challenge.partition(" ")
        login = basic(self.credentials) if self.credentials else ""
        if scheme.lower() == "basic":
            self._value = login
            return None
        values = dict(_PARAMETER.findall(rest))
        if scheme.lower() != "bearer" or "realm" not in values:
            return None
        scope = values.get("scope") or f"repository:{self.repository}:pull"
        query = urlencode({"service": values.get("service", ""), "scope": scope})
        url = f"{values['realm']}{'&' if '?' in values['realm'] else '?'}{query}"
        return TokenRequest(url, {"Authorization": login} if login else {})

    def granted(self, body: bytes) -> None:
        """Store the token of an answer of the token server; raises MalformedDocument."""
        document = read_document(body)
        token = document.get("token") or document.get("access_token")
        if not isinstance(token, str) or not (token.isascii() and token.isprintable()):
            raise MalformedDocument("has no token that a header can have")
        self._value = f"Bearer {token}"
