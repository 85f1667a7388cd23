"""Takes credentials out of text that people or other systems will see.

Pure: text in, text out. Called by ``settings`` (messages), ``telemetry`` (every log line) and ``health`` (reasons).
Invariant: what stands between ``://`` and ``@`` as a password or a token never leaves, other text is unchanged.
"""

from __future__ import annotations

import re
from typing import Final

HIDDEN: Final = "***"

# RFC 3986 userinfo, and what people write in its place: "@" and "/" in a password. So the last "@" counts, and
# "name:…@" is taken for a password unless it can be "host:port/…@"; the next URL of a list is a URL of its own.
_USERINFO = re.compile(
    r"""://(?:
        (?P<user>[^\s/?\#:"<>\[]*) : (?![0-9]+[/?\#]) (?:(?!://)[^\s"<>])* @
      | [^\s/?\#:"<>]+ @
    )""",
    re.VERBOSE,
)


def redact_url(text: str) -> str:
    """Return the text with the secret part of each URL in it as ``***``: ``nats://user:***@host:4222``.

    A userinfo without a colon is a token in NATS URLs and is hidden whole. Lists of URLs and prose with URLs in it
    are fine.
    """
    if "://" not in text or "@" not in text:
        return text
    return _USERINFO.sub(_hide, text)


def _hide(match: re.Match[str]) -> str:
    user = match["user"]
    # With an "@" in it, what stands before the colon may be a token and a host.
    return f"://{HIDDEN}@" if user is None or "@" in user else f"://{user}:{HIDDEN}@"
