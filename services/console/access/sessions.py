"""Sessions: a random id in a cookie, the viewer and their token in memory.

In: viewers and ids. Out: ids and viewers. Called by ``authentication``. Invariants: a token is never returned; only the
digest of an id is stored; a session ends at its TTL, at the idle timeout, and at once with its viewer; the number of
sessions is limited, and a new session never evicts one of a user with no more sessions.
"""

from __future__ import annotations

import hashlib
import secrets
import time
from collections import Counter
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Final

from console.access.identity import Viewer
from console.domain.limits import SESSIONS, SESSIONS_EACH
from console.http.refusals import busy
from console.timings import Timings

_ID_BYTES: Final = 32
_ID_MOST: Final = 128


@dataclass(slots=True)
class Session:
    """The session of one browser. Times are those of the store's clock."""

    viewer: Viewer
    ends: float
    used: float


class Sessions:
    """All sessions of this process."""

    def __init__(
        self,
        lasts: float,
        *,
        timings: Timings = Timings(),  # noqa: B008 - frozen
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._lasts: Final = lasts
        self._idle: Final = timings.idle
        self._clock = clock
        self._by_digest: dict[bytes, Session] = {}

    def __len__(self) -> int:
        return len(self._by_digest)

    def open(self, viewer: Viewer) -> str:
        """Return the id of a new session; raises RefusedError if there are too many.

        It evicts the oldest session of the same viewer, or of the user with the most sessions, if that user has more:
        each token is a viewer, and some users can create any number of tokens.
        """
        now = self._clock()
        self._expire(now)
        own = [(session.used, digest) for digest, session in self._by_digest.items() if session.viewer == viewer]
        if len(own) >= SESSIONS_EACH:
            del self._by_digest[min(own)[1]]
        elif len(self._by_digest) >= SESSIONS:
            self._evict(viewer.user)
        name = secrets.token_urlsafe(_ID_BYTES)
        self._by_digest[_digest(name)] = Session(viewer, now + self._lasts, now)
        return name

    def _evict(self, user: str) -> None:
        most = greedy(user, [session.viewer.user for session in self._by_digest.values()])
        if most is None:
            raise busy("too many sessions", 60)
        theirs = [(session.used, digest) for digest, session in self._by_digest.items() if session.viewer.user == most]
        del self._by_digest[min(theirs)[1]]

    def find(self, name: str) -> Session | None:
        """Return the session of an id and mark it as used; None if it does not exist or has ended."""
        now = self._clock()
        session = self._by_digest.get(_digest(name[:_ID_MOST]))
        if session is None or not self._is_valid(session, now):
            return None
        session.used = now
        return session

    def seconds_left(self, session: Session) -> float:
        """Return the remaining seconds of a session, independent of its use."""
        return max(0.0, session.ends - self._clock())

    def close(self, name: str) -> None:
        """End one session, if it exists."""
        self._by_digest.pop(_digest(name[:_ID_MOST]), None)

    def end_all_of(self, key: str) -> int:
        """End all sessions of a viewer, and return their number."""
        deleted = [digest for digest, session in self._by_digest.items() if session.viewer.key == key]
        for digest in deleted:
            del self._by_digest[digest]
        return len(deleted)

    def per_viewer(self) -> Counter[str]:
        """Return the number of sessions of each viewer."""
        self._expire(self._clock())
        return Counter(session.viewer.key for session in self._by_digest.values())

    def _expire(self, now: float) -> None:
        for digest in [digest for digest, item in self._by_digest.items() if not self._is_valid(item, now)]:
            del self._by_digest[digest]

    def _is_valid(self, session: Session, now: float) -> bool:
        return now < session.ends and now - session.used < self._idle


def greedy(user: str, holders: Iterable[str]) -> str | None:
    """Return the holder to evict for a user: the one with the most places, if they still have more afterwards."""
    counts = Counter(holders)
    most, count = max(counts.items(), key=lambda item: item[1], default=("", 0))
    return most if count > counts[user] + 1 else None


def _digest(name: str) -> bytes:
    return hashlib.sha256(name.encode(errors="replace")).digest()
