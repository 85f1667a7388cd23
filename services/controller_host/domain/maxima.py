"""What the platform lets a WasmController ask for, and whether one asks for more.

Pure. In: what a spec says, in numbers; the platform's maxima. Out: why a spec is not accepted: which field of it says
what, and may say what. Called by ``hosting``. Invariant: what all pinned controllers of a namespace may have in memory
together is never above its share; whoever came first has it.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Final

from controller_host.domain.views import Bounds, Wanted

ABOVE_MAXIMUM: Final = "AboveMaximum"


@dataclass(frozen=True, slots=True)
class Maxima:
    """Bytes, seconds of a call, calls and requests a second; ``pinned_bytes``: of all pinned ones of a namespace."""

    memory_bytes: int = 512 << 20
    cpu_seconds: float = 30.0
    wall_seconds: float = 120.0
    calls_per_second: float = 10_000.0
    host_calls_per_second: float = 1000.0
    pinned_bytes: int = 256 << 20


def above_maximum(bounds: Bounds, most: Maxima) -> str:
    """Return which fields of ``spec.limits`` are above what the platform allows, "" if none is."""
    limits = (
        ("memory", bounds.memory_bytes, most.memory_bytes, _size),
        ("cpuPerCall", bounds.cpu_seconds, most.cpu_seconds, _seconds),
        ("timePerCall", bounds.wall_seconds, most.wall_seconds, _seconds),
        ("callsPerSecond", bounds.calls_per_second, most.calls_per_second, _number),
        ("hostCallsPerSecond", bounds.host_calls_per_second, most.host_calls_per_second, _number),
    )
    return "; ".join(
        f"spec.limits.{name} is {shown(asked)}, and this platform allows {shown(allowed)} at most"
        for name, asked, allowed, shown in limits
        if asked > allowed
    )


@dataclass(slots=True)
class Acceptance:
    """Who has what. ``most``: what the platform allows."""

    most: Maxima
    _pinned: dict[str, dict[str, int]] = field(default_factory=dict)
    _refused: dict[str, dict[str, None]] = field(default_factory=dict)

    def claim(self, namespace: str, key: str, wanted: Wanted) -> str:
        """Return what a controller asks for that it cannot have, "" if it has all of it from now on."""
        message = above_maximum(wanted.bounds, self.most)
        if message or wanted.suspend_after is not None:
            return message
        size, taken = wanted.bounds.memory_bytes, sum(self._pinned.get(namespace, {}).values())
        if taken + size <= self.most.pinned_bytes:
            self._pinned.setdefault(namespace, {})[key] = size
            return ""
        self._refused.setdefault(namespace, {})[key] = None
        allowed = _size(self.most.pinned_bytes)
        return (
            f"spec.idle.policy is Pinned with {_size(size)} (spec.limits.memory), and of {allowed} that controllers of "
            f"a namespace may pin on this platform {_size(taken)} are taken: let it be suspended, or give it less"
        )

    def drop(self, namespace: str, key: str) -> list[str]:
        """Take back what a controller has; returns those that were refused and may ask again."""
        self._refused.get(namespace, {}).pop(key, None)
        held = self._pinned.get(namespace, {})
        if held.pop(key, None) is None:
            return []
        if not held:
            del self._pinned[namespace]
        return list(self._refused.pop(namespace, ()))


def _size(size: float) -> str:
    return f"{size / 2**20:g}Mi"


def _seconds(seconds: float) -> str:
    return f"{seconds:g}s"


def _number(number: float) -> str:
    return f"{number:g}"
