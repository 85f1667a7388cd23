"""The rule of a soak: decide if a process grows.

Pure. In: samples of processes over time. Out: a verdict with the figures that it comes from. Called by ``soak``.
The rule: the first part of the time is not looked at, as caches fill and both replicas lead for the first time; of what
is left the median of the last third is compared with that of the first third. Medians, as a process that works has
peaks; thirds, as a leak goes on while everything else comes and goes. Replicas are judged together: the one that comes
to lead opens the connections that the other one closes.
"""

from __future__ import annotations

import itertools
import statistics
from collections import defaultdict
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Final

MIB: Final = 2**20
WARM_SHARE: Final = 1 / 6
"""Of the time: five minutes of thirty."""
MEMORY_SHARE: Final = 0.03
MEMORY_MIB: Final = 4.0
"""Memory of a process grows if it is more by both: of a small one a share is little, of a large one some MiB are."""
FILES: Final = 3
"""File descriptors of a process grow if there are more than so many more: a connection made anew has two a moment."""
_THIRDS: Final = 3
_LEAST: Final = 6


@dataclass(frozen=True, slots=True)
class Sample:
    """The resources of a process at a time, in seconds since the start."""

    at: float
    memory: int
    files: int


@dataclass(frozen=True, slots=True)
class Verdict:
    """Medians of the first and the last third, memory in MiB. ``growth``: sentences about what grows, none if flat."""

    name: str
    samples: int
    memory: tuple[float, float]
    files: tuple[float, float]
    growth: tuple[str, ...]


def together(replicas: Sequence[Sequence[Sample]]) -> list[Sample]:
    """Return what processes held together, at each time at which all were looked at."""
    looks: dict[float, list[Sample]] = defaultdict(list)
    for sample in itertools.chain.from_iterable(replicas):
        looks[sample.at].append(sample)
    return [
        Sample(at, sum(item.memory for item in found), sum(item.files for item in found))
        for at, found in sorted(looks.items())
        if len(found) == len(replicas)
    ]


def judge(name: str, samples: Sequence[Sample], processes: int = 1) -> Verdict:
    """Return whether it grows what so many processes hold.

    Raises:
        ValueError: there are too few samples to say so.
    """
    warm = [sample for sample in samples if sample.at >= WARM_SHARE * samples[-1].at] if samples else []
    third = len(warm) // _THIRDS
    if len(warm) < _LEAST:
        message = f"{name}: {len(warm)} samples say nothing; it takes {_LEAST}: give it more seconds"
        raise ValueError(message)
    memory = _medians(warm, third, lambda item: item.memory / MIB)
    files = _medians(warm, third, lambda item: float(item.files))
    growth = []
    if memory[1] - memory[0] > max(MEMORY_MIB * processes, MEMORY_SHARE * memory[0]):
        growth.append(f"{name} grows: {memory[0]:.1f} MiB, and later {memory[1]:.1f}")
    if files[1] - files[0] > FILES * processes:
        growth.append(f"{name} keeps files open: {files[0]:g}, and later {files[1]:g}")
    return Verdict(name, len(warm), memory, files, tuple(growth))


def _medians(warm: Sequence[Sample], third: int, of: Callable[[Sample], float]) -> tuple[float, float]:
    first, last = (round(statistics.median(map(of, part)), 1) for part in (warm[:third], warm[-third:]))
    return first, last
