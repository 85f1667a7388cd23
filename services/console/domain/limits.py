"""Resource limits of the console. ADR 82 has the reasons for the values."""

from __future__ import annotations

from typing import Final

REQUEST_BYTES: Final = 32 * 2**10
"""Body of a request to the console; the largest content is a token."""
TOKEN_CHARACTERS: Final = 16 * 2**10
VIEWERS: Final = 20
"""Concurrent viewers; the default of a setting."""
CONNECTIONS: Final = 512
STREAMS: Final = 200
STREAMS_EACH: Final = 12
"""Open streams of one viewer: its tabs, and the streams in each."""
MESSAGE_BYTES: Final = 64 * 2**10
"""One message of a stream; a full state consists of several."""
WATCHES_EACH: Final = 270
"""Watches of one viewer, over the selected namespaces of all of their tabs.

12 namespaces with wasmCloud v2 and a Shim are 260.
"""
CONNECTIONS_EACH: Final = 286
"""Connections of one viewer to the API server; each watch uses one."""
NAMESPACES: Final = 12
"""Namespaces that one viewer may watch individually, without permission to watch all of them."""
READS_EACH: Final = 4
READS: Final = 16
"""Concurrent reads of pages, replays and traces."""
JOURNAL_IDS: Final = 20_000
"""Changed entities that are kept for pages that reconnect."""
SESSIONS: Final = 500
SESSIONS_EACH: Final = 20
LOGINS_PER_SECOND: Final = 5.0
LOGINS_BURST: Final = 20.0
PERMISSIONS_KEPT: Final = 4_096
"""Cached access reviews of one viewer."""
REVIEWS_AT_ONCE: Final = 4
EVENTS_KEPT: Final = 2_000
EVENT_BYTES: Final = 8 * 2**10
"""Data of a message; longer data is omitted and marked as omitted."""
EVENTS_BYTES: Final = 8 * 2**20
PAGE_EVENTS: Final = 200
MESSAGES_READ: Final = 5_000
"""Messages that are read for one page of a replay."""
DEAD_LETTERS: Final = 500
SPANS: Final = 5_000
