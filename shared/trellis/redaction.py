"""Takes credentials out of text that people or other systems will see.

Pure: text in, text out. Called by ``settings`` (messages), ``telemetry`` (every log line) and ``health`` (reasons).
Invariant: what stands between ``://`` and ``@`` as a password or a token never leaves, other text is unchanged.
"""

from __future__ import annotations

import re
from typing import Final

HIDDEN: Final = "***"

# RFC 3986 userinfo. A raw "@" in a password is not allowed, yet people write it: the last "@" before the path counts.
_USERINFO = re.compile(r"(?P<scheme>[A-Za-z][A-Za-z0-9+.-]*://)(?P<userinfo>[^\s/?#,\"'<>]*)@")


def redact_url(text: str) -> str:
    """Return the text with the secret part of each URL in it as ``***``: ``nats://user:***@host:4222``.

    A userinfo without a colon is a token in NATS URLs and is hidden whole. Lists of URLs and prose with URLs in it
    are fine.
    """
    if "://" not in text or "@" not in text:
        return text
    return _USERINFO.sub(_hide, text)


def _hide(match: re.Match[str]) -> str:
    user, colon, _ = match["userinfo"].partition(":")
    return f"{match['scheme']}{user}:{HIDDEN}@" if colon else f"{match['scheme']}{HIDDEN}@"
