"""Removes credentials from text for users or other systems.

Pure: text in, text out. Called by ``settings`` (messages), ``telemetry`` (every log line) and ``health`` (reasons).
Invariant: a password or token between ``://`` and ``@`` is always removed; other text is unchanged.
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


def redact_url(text: str) -> str:
    """Return the text with the secret part of each URL replaced by ``***``: ``nats://user:***@host:4222``.

    A userinfo without a colon is a token in NATS URLs and is replaced as a whole. The text may be a list of URLs, or
    prose with URLs.
    """
    if "://" not in text or "@" not in text:
        return text
    return _USERINFO.sub(_hide, text)


def _hide(match: re.Match[str]) -> str:
    user = match["user"]
    # If the part before the colon contains an "@", it may be a token and a host.
    return f"://{HIDDEN}@" if user is None or "@" in user else f"://{user}:{HIDDEN}@"
