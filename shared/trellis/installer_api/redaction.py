"""Removes credentials from text for users or other systems.

Pure: text in, text out. Called by ``settings`` (messages), ``telemetry`` (every log line) and ``health`` (reasons).
Invariant: a password or token between ``://`` and ``@``, and the value of a parameter for credentials in a URL, are
always removed; other text is unchanged.
"""

from __future__ import annotations

import re
from typing import Final

HIDDEN: Final = "***"

# RFC 3986 userinfo, and invalid forms that users write: "@" and "/" in a password. So the last "@" counts, and
# "name:…@" is treated as a password unless it can be "host:port/…@". Each URL of a list is matched separately.
_USERINFO = re.compile(
    r"""://(?:
        (?P<user>[^\s/?\#:"<>\[]*) : (?![0-9]+[/?\#]) (?:(?!://)[^\s"<>])* @
      | [^\s/?\#:"<>]+ @
    )""",
    re.VERBOSE,
)

# Registries redirect to storage with signed URLs, which errors of a pull contain: of S3, Google Cloud Storage and Azure
# (``sig``). Other names are those of tokens.
_PARAMETER = re.compile(
    r"""(?<=[?&])(?P<name>
        (?:x-(?:amz|goog)-)?(?:signature|credential|security-token) | sig | (?:access_|auth_)?token | password
        | client_secret | api_?key
    )=[^\s&"'<>`]+""",
    re.VERBOSE | re.IGNORECASE,
)


def redact_url(text: str) -> str:
    """Return the text with the secret parts of each URL replaced by ``***``: ``nats://user:***@host:4222``.

    A userinfo without a colon is a token in NATS URLs and is replaced as a whole. Of a query, the values of signatures
    and tokens are replaced. The text may be a list of URLs, or prose with URLs.
    """
    if "://" not in text:
        return text
    hidden = _USERINFO.sub(_hide, text) if "@" in text else text
    return _PARAMETER.sub(rf"\g<name>={HIDDEN}", hidden) if "?" in hidden else hidden


def _hide(match: re.Match[str]) -> str:
    user = match["user"]
    # If the part before the colon contains an "@", it may be a token and a host.
    return f"://{HIDDEN}@" if user is None or "@" in user else f"://{user}:{HIDDEN}@"
