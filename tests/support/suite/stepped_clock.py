"""A wall clock that a test can step, in this process alone: the machine's clock is never changed.

Imported before anything that reads the clock. In: the file named by ``TRELLIS_TEST_CLOCK``, with the seconds to add;
writing it steps the clock, and a fork that names another file has a clock of its own. Without the variable nothing
happens. Monotonic clocks are left as they are, as when a real wall clock is stepped.
"""

from __future__ import annotations

import datetime as dt
import os
import time
from pathlib import Path

VARIABLE = "TRELLIS_TEST_CLOCK"
_real_time, _real_time_ns, _RealDatetime = time.time, time.time_ns, dt.datetime


def offset() -> float:
    """Return the seconds the file says now; a file that is just being written counts as 0."""
    return float(Path(os.environ[VARIABLE]).read_text() or 0)


class _SteppedDatetime(_RealDatetime):
    @classmethod
    def now(cls, tz: dt.tzinfo | None = None) -> _SteppedDatetime:
        return super().now(tz) + dt.timedelta(seconds=offset())


if VARIABLE in os.environ:
    time.time = lambda: _real_time() + offset()
    time.time_ns = lambda: _real_time_ns() + int(offset() * 10**9)
    dt.datetime = _SteppedDatetime  # type: ignore[misc]
