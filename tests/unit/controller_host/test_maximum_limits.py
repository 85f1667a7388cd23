"""The limits that a spec may request, and the controllers whose memory may be pinned."""

from __future__ import annotations

import dataclasses

import pytest

from controller_host.domain.maximum_limits import Acceptance, MaximumLimits, above_maximum
from controller_host.domain.views import Bounds, Wanted
from support.suite.naming import lacking

MOST = MaximumLimits(64 << 20, 1.0, 30.0, 50.0, 100.0)


def test_limits_at_the_maximum_are_accepted() -> None:
    assert above_maximum(Bounds(64 << 20, 1.0, 30.0, 50.0, 100.0), MOST) == ""
    assert above_maximum(Bounds(), MaximumLimits()) == ""


@pytest.mark.parametrize(
    ("field", "value", "named"),
    [
        ("memory_bytes", 128 << 20, ["spec.limits.memory", "128Mi", "64Mi"]),
        ("cpu_seconds", 1.5, ["spec.limits.cpuPerCall", "1.5s", "1s"]),
        ("wall_seconds", 60.0, ["spec.limits.timePerCall", "60s", "30s"]),
        ("calls_per_second", 51.0, ["spec.limits.callsPerSecond", "51", "50"]),
        ("host_calls_per_second", 101.0, ["spec.limits.hostCallsPerSecond", "101", "100"]),
    ],
)
def test_a_limit_above_the_maximum_is_named_with_both_numbers(field: str, value: float, named: list[str]) -> None:
    message = above_maximum(dataclasses.replace(Bounds(), **{field: value}), MOST)
    assert (lacking(message, *named), message.count("spec.limits.")) == ([], 1)


def test_all_that_is_above_is_named_at_once() -> None:
    assert above_maximum(Bounds(1 << 30, 2.0), MOST).count("; spec.limits.") == 1


def pinned(memory_bytes: int) -> Wanted:
    return Wanted("{}", True, "x", (), b"{}", ((), ()), Bounds(memory_bytes), None, paused=False)


def test_a_namespace_pins_no_more_than_its_share_and_another_has_its_own() -> None:
    acceptance = Acceptance(MaximumLimits(pinned_bytes=100 << 20))
    assert acceptance.claim("a", "a/1", pinned(60 << 20)) == ""
    refused = acceptance.claim("a", "a/2", pinned(60 << 20))
    assert lacking(refused, "Pinned", "60Mi", "spec.limits.memory", "100Mi") == []
    assert acceptance.claim("a", "a/3", pinned(40 << 20)) == ""
    assert acceptance.claim("a", "a/4", dataclasses.replace(pinned(99 << 20), suspend_after=0.0)) == "", "not pinned"
    assert acceptance.claim("b", "b/1", pinned(100 << 20)) == ""
    assert acceptance.drop("a", "a/3") == ["a/2"], "who was refused may ask again"
    assert lacking(acceptance.claim("a", "a/2", pinned(60 << 20)), "60Mi") == []
    assert acceptance.drop("a", "a/2") == []
    assert acceptance.drop("a", "a/1") == [], "who is gone waits no more"
    assert "of the 0Mi" in Acceptance(MaximumLimits(pinned_bytes=0)).claim("a", "a/1", pinned(1 << 20))
