"""Wait for a known end: until nothing differs from it.

In: a look, seconds, their processes. Out: remaining findings. Called by ``check`` and ``crashes``. Invariant: seconds
in which a process waits for a processor do not count: the load of a machine is not part of a test.
"""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import Awaitable, Callable, Coroutine, Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

_REST: Final = 3.0
"""So many times as long as a look took nobody looks: on a slow machine looking must not be most of what it does."""
_LONGEST: Final = 3
_STILL_SECONDS: Final = 60.0
"""Nothing has changed for so long: it does not come any more."""
_MOST_SECONDS: Final = 600.0
"""By the clock on the wall; whoever gets no processor for so long is not waited for."""
_NANO: Final = 1e-9


class NoProcessorError(TimeoutError):
    """The processes did not get their seconds of processor time within the longest wait: there is no result."""


@dataclass
class Patience:
    """A clock of some processes: seconds in which one of them waits for a processor do not count.

    ``processes`` returns their numbers; they may be others each time. Where the kernel does not say how long they
    waited, all seconds count. ``pause`` and ``rest``: seconds between two looks, at least and at most.
    """

    processes: Callable[[], Iterable[int]]
    pause: float = 0.5
    rest: float = 5.0
    seconds: float = field(default=0.0, init=False)
    _at: float = field(default_factory=time.monotonic)
    _waited: dict[int, float] = field(default_factory=dict)

    def look(self) -> float:
        """Return the seconds since the first look."""
        now, former = time.monotonic(), self._waited
        self._waited = {pid: waited_of(pid) for pid in self.processes()}
        lost = max((waited - former[pid] for pid, waited in self._waited.items() if pid in former), default=0.0)
        self.seconds += max(0.0, now - self._at - lost)
        self._at = now
        return self.seconds


def waited_of(pid: int) -> float:
    """Return the seconds that a process has waited for a processor, 0 if it has ended. Source: proc(5), schedstat."""
    with contextlib.suppress(OSError, IndexError):
        return int(Path(f"/proc/{pid}/schedstat").read_text(encoding="ascii").split()[1]) * _NANO
    return 0.0


async def none_of(
    look: Callable[[], Awaitable[list[str]]], seconds: float, log: Callable[[str], None], patience: Patience
) -> list[str]:
    """Wait until nothing is found; return the rest after so many seconds.

    ``log`` gets the findings of each look. While the number of findings falls, the wait is extended up to three times:
    the speed of a machine is not part of the test.

    Raises:
        NoProcessorError: in ten minutes by the clock the processes did not have so many seconds.
    """
    began, first = time.monotonic(), patience.look()
    former, changed, looked = list[str](), 0.0, began
    while found := await look():
        wall, late = time.monotonic() - began, patience.look() - first
        if found != former:
            changed = late
            log(f"+{wall:6.2f} s  {len(found)} not as they have to be: {'; '.join(item[:160] for item in found[:6])}")
        former = found
        over = late > seconds and (late > _LONGEST * seconds or late - changed > _STILL_SECONDS)
        if wall > _MOST_SECONDS and late <= seconds:
            raise NoProcessorError(_no_processor(wall, late, found))
        if over or wall > _MOST_SECONDS:
            return [f"after {wall:.0f} s, {late:.0f} s of its own: {item}" for item in found]
        await asyncio.sleep(max(patience.pause, min(_REST * (time.monotonic() - looked), patience.rest)))
        looked = time.monotonic()
    return []


async def done_within(seconds: float, patience: Patience, work: Coroutine[object, object, None], what: str) -> None:
    """Wait until work is done; it is cancelled after so many seconds of the processes' own.

    Raises:
        TimeoutError: it was not; NoProcessorError: as in ``none_of``.
    """
    began, first = time.monotonic(), patience.look()
    task = asyncio.create_task(work)
    try:
        while not (await asyncio.wait([task], timeout=patience.pause))[0]:
            wall, late = time.monotonic() - began, patience.look() - first
            if late > seconds:
                raise TimeoutError(f"{what}: not within {seconds:g} s")
            if wall > _MOST_SECONDS:
                raise NoProcessorError(_no_processor(wall, late, [what]))
        task.result()
    finally:
        task.cancel()
        await asyncio.wait([task])


def _no_processor(wall: float, late: float, found: list[str]) -> str:
    return f"after {wall:.0f} s, of which the replicas had {late:.0f}: {'; '.join(item[:160] for item in found[:6])}"
