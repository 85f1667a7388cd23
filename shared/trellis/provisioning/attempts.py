"""The failed attempts on a node, the Shims that caused them, and the next attempt with its time.

Pure. In: the annotations of a Node and its target. Out: changes, failures, the next attempt. Called by ``provisioner``
and by code that shows a rollout. Invariant: a failed Shim does not keep other Shims from its nodes: the next attempt
excludes the Shims blamed for the last failure while others remain; the rest is tried one by one (ADR 23).
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass

from trellis.limits.backoff import Backoff
from trellis.names import short_hash
from trellis.provisioning.int_or_percent import CountOrPercent
from trellis.provisioning.views import FailedAttempt, NodeView, Target, held_back

DISRUPTION_FACTOR = 12
"""A try that restarted a node's container runtime in vain is repeated after ``Retries.most``, and later after as many
times that: by default every 5 minutes, then every hour."""


CHANGES_MOST = 40
"""Shims that one Job changes: a variable has 128 KiB at most on Linux, and a Shim with a long location takes 3 KiB."""


@dataclass(frozen=True, slots=True)
class Retries:
    """Seconds between attempts: doubling from ``first`` to ``most``."""

    first: float
    most: float


@dataclass(frozen=True, slots=True)
class ShimLimits:
    """What one shim's rollout is held to.

    ``max_update`` None: all nodes at once. ``halt_after``: failing nodes at which no further one is begun, 0 never.
    ``forgiven``: Unix seconds; failures recorded up to then do not count towards the halt and are tried again at once.
    """

    max_update: CountOrPercent | None
    halt_after: int = 0
    paused: bool = False
    forgiven: int = 0


def difference(have: Mapping[str, str], want: Mapping[str, str]) -> tuple[str, ...]:
    """Return by name what is in one and not, or otherwise, in the other."""
    return tuple(sorted(name for name in {*have, *want} if have.get(name) != want.get(name)))


def changes_of(node: NodeView, target: Target) -> tuple[str, ...]:
    """Return the shims that a node is to get, to get in another version, or to lose; by name."""
    have, want = node.installed, dict(target.shims)
    return difference(have, want) if have != want else ()  # asked for every node in every plan


def failure_of(node: NodeView, target: Target) -> FailedAttempt | None:
    """Return the failure recorded for this target: the same was tried in vain, or only what failed is left of it."""
    failure = node.failed
    if failure is None or node.marked_digest == target.digest:
        return None
    changes = set(changes_of(node, target))
    only_failed = bool(changes) and changes <= {*_blamed(node, target)}
    return failure if only_failed or failure.digest == target.digest else None


def failing_on(node: NodeView, target: Target, asked: Target) -> tuple[str, ...]:
    """Return the shims because of which a node does not have what it is to have: those blamed, or all that was tried.

    ``asked``: what of the target may be given now; only failures of either count.
    """
    blamed = _blamed(node, target)
    changes = next((changes_of(node, tried) for tried in (target, asked) if failure_of(node, tried)), ())
    return blamed if {*blamed} & {*changes} else tuple(sorted({*blamed, *changes}))


def spared_of(node: NodeView, target: Target) -> frozenset[str]:
    """Return the shims that the next try leaves out, as the last ones were blamed on them."""
    blamed = _blamed(node, target)
    if not blamed:
        return frozenset()
    if {*changes_of(node, target)} - {*blamed}:
        return frozenset(blamed)
    turn = node.failed.attempt if node.failed else 0
    return frozenset(blamed) - {blamed[turn % len(blamed)]}


def asked_of(node: NodeView, target: Target, limits: Mapping[str, ShimLimits], halted: Collection[str]) -> Target:
    """Return what a node may be given now: its target, but nothing of a shim that is paused or halted.

    The other shims go on, and so do those beside one that failed. Where the whole of it was tried in vain it is tried
    again, also while a shim is halted: that is how a halt ends. Of many changes the first are made, by name.
    """
    paused = {name for name, _ in target.shims if name in limits and limits[name].paused}
    asked = held_back(target, node, paused) if paused else target
    if spared := spared_of(node, asked):
        asked = held_back(asked, node, spared)
    if halted and not failure_of(node, asked):
        asked = held_back(asked, node, halted)
    surplus = changes_of(node, asked)[CHANGES_MOST:]
    return held_back(asked, node, surplus) if surplus else asked


def next_attempt(node: NodeView, target: Target) -> int:
    """Return the number of the next try of a target on a node: 1 for the first, or after the target changed."""
    failure = failure_of(node, target)
    return failure.attempt + 1 if failure else 1


def retry_at(node_uid: str, failure: FailedAttempt, retries: Retries) -> float:
    """Return when a failed node may be tried again, in Unix seconds.

    Doubles from ``first`` to ``most`` (from there on if it was disruptive) with jitter over the upper half; the jitter
    comes from the node's uid and the attempt, so that every replica works out the same time and a restart changes
    nothing.
    """
    first, most = retries.first, retries.most
    if failure.disruptive:
        first, most = most, most * DISRUPTION_FACTOR
    full = Backoff(first, most).bound(failure.attempt)
    share = int(short_hash(node_uid, str(failure.attempt)), 16) / 16**10
    return failure.at + full * (0.5 + 0.5 * share)


def _blamed(node: NodeView, target: Target) -> tuple[str, ...]:
    """Return the shims that failed in the very version that the node is to have and does not have yet; by name."""
    if not (blamed := node.blamed):
        return ()
    has = node.installed
    return tuple(
        sorted(name for name, digest in target.shims if blamed.get(name) == digest and has.get(name) != digest)
    )
