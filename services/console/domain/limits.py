"""What viewers may cost, in one place. Why these figures: ADR 82."""

from __future__ import annotations

from typing import Final

REQUEST_BYTES: Final = 32 * 2**10
"""Of a body that is sent to the console; the largest is a token."""
TOKEN_CHARACTERS: Final = 16 * 2**10
VIEWERS: Final = 20
"""At a time, unless a setting says otherwise."""
CONNECTIONS: Final = 512
STREAMS: Final = 200
STREAMS_EACH: Final = 12
"""Open streams of one viewer: tabs, and what is open in each."""
PIECE_BYTES: Final = 64 * 2**10
"""Of one message of a stream; a whole state comes in several."""
WATCHES_EACH: Final = 80
"""Of one viewer: he may choose as many namespaces as fit, in all of his tabs together."""
CONNECTIONS_EACH: Final = 96
"""To the API server, of one viewer; each watch holds one."""
NAMESPACES: Final = 12
"""That one viewer may have watched one by one, where he may not look at all of them."""
READS_EACH: Final = 4
READS: Final = 16
"""Pages, replays and traces that are being read at a time."""
JOURNAL_IDS: Final = 20_000
"""Changed entities that are remembered for pages that come back."""
SESSIONS: Final = 500
SESSIONS_EACH: Final = 20
LOGINS_PER_SECOND: Final = 5.0
LOGINS_BURST: Final = 20.0
RIGHTS_KEPT: Final = 4_096
"""Answers of the API server about one viewer."""
REVIEWS_AT_ONCE: Final = 4
EVENTS_KEPT: Final = 2_000
EVENT_BYTES: Final = 8 * 2**10
"""Of a message's data; what is longer is left out, and said to be."""
EVENTS_BYTES: Final = 8 * 2**20
PAGE_EVENTS: Final = 200
LOOKED_AT: Final = 5_000
"""Messages that are read for one page of a replay."""
LETTERS: Final = 500
SPANS: Final = 5_000
