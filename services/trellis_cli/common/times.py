"""Times in options of commands: ``10m`` ago, or an RFC 3339 timestamp.

Pure. In: the text of an option and the current time. Out: moments with a time zone. Called by commands with a time
range. Invariant: an invalid text gives a SettingsError with the option and the accepted formats.
"""

from __future__ import annotations

import re
from datetime import datetime, timedelta
from typing import Final

from trellis.config.durations import parse_seconds
from trellis.config.settings import SettingsError

_OLDEST_SECONDS: Final = 10 * 365 * 86_400.0
_TIMESTAMP: Final = re.compile(r"\d{4}-\d{2}-\d{2}[Tt ]\d{2}:\d{2}:\d{2}(\.\d+)?([Zz]|[+-]\d{2}:\d{2})")
_NEEDS: Final = "needs a duration such as 30s, 10m, 2h, or a time such as 2026-01-31T08:00:00Z"


def span(since: str | None, until: str | None, now: datetime) -> tuple[datetime | None, datetime | None]:
    """Return the moments of ``--since`` and ``--until``, None if not given.

    Raises:
        SettingsError: one is neither a duration nor a timestamp, ``--since`` is in the future, or ``--until`` is before
            ``--since``.
    """
    first, last = _moment("--since", since, now), _moment("--until", until, now)
    if first is not None and first > now:
        raise SettingsError(f"--since: has {since!r}, needs a time in the past")
    if first is not None and last is not None and first > last:
        raise SettingsError(f"--until: has {until!r}, which is before --since {since!r}")
    return first, last


def _moment(option: str, text: str | None, now: datetime) -> datetime | None:
    if text is None:
        return None
    try:
        if _TIMESTAMP.fullmatch(text.strip()):
            return datetime.fromisoformat(text.strip().upper())
        return now - timedelta(seconds=min(parse_seconds(text), _OLDEST_SECONDS))
    except ValueError:
        raise SettingsError(f"{option}: has {text!r}, {_NEEDS}") from None
