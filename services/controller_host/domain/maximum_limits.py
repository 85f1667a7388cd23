"""Maximum limits of WasmControllers on this platform, and the check of a spec against them.

Pure. In: the limits of a spec in numbers; the platform's maximum limits. Out: the reason why a spec is not accepted:
the field, its value and its maximum. Called by ``hosting``. Invariant: the total memory limit of the pinned controllers
of a namespace never exceeds its share; first come, first served.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Final

from controller_host.domain.views import Bounds, Wanted

ABOVE_MAXIMUM: Final = "AboveMaximum"


@dataclass(frozen=True, slots=True)
class MaximumLimits:
    """Bytes, seconds per call, calls and requests per second; ``pinned_bytes``: total of the pinned in a namespace."""

    memory_bytes: int = 512 << 20
    cpu_seconds: float = 30.0
    wall_seconds: float = 120.0
    calls_per_second: float = 10_000.0
    host_calls_per_second: float = 1000.0
    pinned_bytes: int = 256 << 20


def above_maximum(bounds: Bounds, most: MaximumLimits) -> str:
    """Return a message with the fields of ``spec.limits`` that exceed the maximum limits, "" if none does."""
    limits = (
        ("memory", bounds.memory_bytes, most.memory_bytes, _size),
        ("cpuPerCall", bounds.cpu_seconds, most.cpu_seconds, _seconds),
        ("timePerCall", bounds.wall_seconds, most.wall_seconds, _seconds),
        ("callsPerSecond", bounds.calls_per_second, most.calls_per_second, _number),
        ("hostCallsPerSecond", bounds.host_calls_per_second, most.host_calls_per_second, _number),
    )
    return "; ".join(
        f"spec.limits.{name} is {shown(value)}, the maximum on this platform is {shown(allowed)}"
        for name, value, allowed, shown in limits
        if value > allowed
    )


@dataclass(slots=True)
class Acceptance:
    """Pinned memory of the accepted controllers. ``most``: the platform's maximum limits."""

    most: MaximumLimits
    _pinned: dict[str, dict[str, int]] = field(default_factory=dict)
    _refused: dict[str, dict[str, None]] = field(default_factory=dict)

    def claim(self, namespace: str, key: str, wanted: Wanted) -> str:
        """Reserve the pinned memory of a controller; return "" or the reason why its spec is not accepted."""
        message = above_maximum(wanted.bounds, self.most)
        if message or wanted.suspend_after is not None:
            return message
        size, in_use = wanted.bounds.memory_bytes, sum(self._pinned.get(namespace, {}).values())
        if in_use + size <= self.most.pinned_bytes:
            self._pinned.setdefault(namespace, {})[key] = size
            return ""
        self._refused.setdefault(namespace, {})[key] = None
        allowed = _size(self.most.pinned_bytes)
        return (
            f"spec.idle.policy is Pinned with {_size(size)} (spec.limits.memory), but {_size(in_use)} of the {allowed} "
            "that a namespace can pin on this platform are in use: remove the policy, or reduce spec.limits.memory"
        )

    def drop(self, namespace: str, key: str) -> list[str]:
        """Release the pinned memory of a controller; return the refused controllers that can retry."""
        self._refused.get(namespace, {}).pop(key, None)
        pinned = self._pinned.get(namespace, {})
        if pinned.pop(key, None) is None:
            return []
        if not pinned:
            del self._pinned[namespace]
        return list(self._refused.pop(namespace, ()))


def _size(size: float) -> str:
    return f"{size / 2**20:g}Mi"


def _seconds(seconds: float) -> str:
    return f"{seconds:g}s"


def _number(number: float) -> str:
    return f"{number:g}"
