"""The failed attempts on a node, the Shims that caused them, and the next attempt with its time.

Pure. In: the annotations of a Node and its target. Out: changes, failures, the next attempt. Called by ``provisioner``
and by code that shows a rollout. Invariant: a failed Shim does not keep other Shims from its nodes: the next attempt
excludes the Shims blamed for the last failure while there are other ones; the rest is tried one by one (ADR 23).
"""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import Final

from trellis.crds.shim import WorkloadPolicy
from trellis.limits.backoff import Backoff
from trellis.names import short_hash
from trellis.provisioning.int_or_percent import CountOrPercent
from trellis.provisioning.views import FailedAttempt, NodeView, Target, without_changes_to

_ATTEMPT: Final = re.compile(r"attempt \d+: ")
_CANARY: Final = (
    r"Shim {shim} fails: (?P<cause>.+?)(?: \(pod [^()\s]+\))?(?=; Shim \S+ fails: |; the node was rolled back$|$)"
)
DISRUPTION_FACTOR = 12
"""A failed attempt that restarted the container runtime of a node is retried after ``Retries.most``, with a maximum of
this multiple of it: by default after 5 minutes, at most an hour."""


CHANGES_MOST = 40
"""Maximum number of Shims that one Job changes: a variable has at most 128 KiB on Linux, and a Shim with a long
location 3 KiB."""


WORKLOAD_TIMEOUT = 300.0
"""Default of ``rolling.workloadTimeout`` of a Shim, in seconds, as its CRD documents it."""


@dataclass(frozen=True, slots=True)
class Retries:
    """Delay between attempts in seconds: doubles from ``first`` to ``most``."""

    first: float
    most: float


@dataclass(frozen=True, slots=True)
class ShimLimits:
    """The limits of the rollout of one Shim.

    ``max_update`` None: all nodes at once. ``halt_after``: number of failing nodes that halts the rollout, 0 never.
    ``acknowledged``: Unix seconds; failures until then do not count towards the halt and are retried at once.
    ``workloads``: treatment of pods of ``runtime_class`` that are less ready on changed nodes than before;
    ``workload_timeout``: seconds for them, and for evictions of one node. ``content``: of all versions for nodes, by
    platform; a halt for pods is of one content.
    """

    max_update: CountOrPercent | None
    halt_after: int = 0
    paused: bool = False
    acknowledged: int = 0
    workloads: WorkloadPolicy = WorkloadPolicy.IGNORE
    workload_timeout: float = WORKLOAD_TIMEOUT
    runtime_class: str = ""
    content: str = ""


def difference(have: Mapping[str, str], want: Mapping[str, str]) -> tuple[str, ...]:
    """Return the sorted names whose values differ, including names in only one of both."""
    return tuple(sorted(name for name in {*have, *want} if have.get(name) != want.get(name)))


def changes_of(node: NodeView, target: Target) -> tuple[str, ...]:
    """Return the names of the Shims to install, to update, or to remove on a node."""
    have, want = node.installed, dict(target.shims)
    return difference(have, want) if have != want else ()  # called for every node in every plan


def failure_of(node: NodeView, target: Target) -> FailedAttempt | None:
    """Return the recorded failure of this target: of the same digest, or if only failed Shims remain to change."""
    failure = node.failed
    if failure is None or node.marked_digest == target.digest:
        return None
    changes = set(changes_of(node, target))
    only_failed = bool(changes) and changes <= {*_blamed(node, target)}
    return failure if only_failed or failure.digest == target.digest else None


def failing_on(node: NodeView, target: Target, permitted: Target) -> tuple[str, ...]:
    """Return the Shims that keep a node from its target: the blamed ones, or all of the last attempt.

    ``permitted``: the part of the target that is permitted now; only failures of either count.
    """
    blamed = _blamed(node, target)
    changes = next((changes_of(node, tried) for tried in (target, permitted) if failure_of(node, tried)), ())
    return blamed if {*blamed} & {*changes} else tuple(sorted({*blamed, *changes}))


def failure_text(node: NodeView, target: Target, shim: str) -> str:
    """Return why a Shim of :func:`failing_on` failed on a node.

    The Node records the text of its last attempt. That is the text of another Shim if the attempt left out this one,
    because an earlier attempt had failed on it.
    """
    blamed = frozenset(_blamed(node, target))
    if node.failed is not None and shim in blamed:
        left_out = (blamed, *(blamed - {other} for other in blamed - {shim}))
        if any(without_changes_to(target, node, names).digest == node.failed.digest for names in left_out):
            return "an earlier attempt failed; the last attempt was of another Shim"
    return node.failure or "no reason given"


def without_attempt(failure: str) -> str:
    """Return a recorded failure without the number of its attempt."""
    return _ATTEMPT.sub("", failure, count=1)


def cause_for(shim: str, failure: str) -> str:
    """Return reason and cause of a recorded failure for one Shim, without other Shims, its canary and the rollback."""
    text = without_attempt(failure)
    found = re.search(_CANARY.format(shim=re.escape(shim)), text, re.DOTALL)
    return f"{text.partition(': ')[0]}: {found['cause']}" if found else text


def spared_of(node: NodeView, target: Target) -> frozenset[str]:
    """Return the Shims that the next attempt excludes, because earlier failures were blamed on them."""
    blamed = _blamed(node, target)
    if not blamed:
        return frozenset()
    if {*changes_of(node, target)} - {*blamed}:
        return frozenset(blamed)
    turn = node.failed.attempt if node.failed else 0
    return frozenset(blamed) - {blamed[turn % len(blamed)]}


def permitted_target(
    node: NodeView, target: Target, limits: Mapping[str, ShimLimits], halted: Collection[str]
) -> Target:
    """Return the permitted part of a node's target: without changes to paused or halted Shims.

    Other Shims proceed, also beside a failed one. A target that failed as a whole is retried even while a Shim is
    halted, so that a halt can end. At most ``CHANGES_MOST`` changes are made, in the order of names.
    """
    paused = {name for name, _ in target.shims if name in limits and limits[name].paused}
    permitted = without_changes_to(target, node, paused) if paused else target
    if spared := spared_of(node, permitted):
        permitted = without_changes_to(permitted, node, spared)
    if halted and not failure_of(node, permitted):
        permitted = without_changes_to(permitted, node, halted)
    surplus = changes_of(node, permitted)[CHANGES_MOST:]
    return without_changes_to(permitted, node, surplus) if surplus else permitted


def is_acknowledged(limits: ShimLimits | None, failure: FailedAttempt, latest: float) -> bool:
    """Return whether a user acknowledged a failure by resuming the rollout; a time after ``latest`` is ignored."""
    return limits is not None and failure.at <= limits.acknowledged <= latest


def acknowledges(node: NodeView, target: Target, limits: Mapping[str, ShimLimits], latest: float) -> bool:
    """Return whether a user acknowledged the node's last failure by resuming the rollout of a shim to change."""
    failure = node.failed
    return failure is not None and any(
        is_acknowledged(limits.get(name), failure, latest) for name in changes_of(node, target)
    )


def next_attempt(node: NodeView, target: Target) -> int:
    """Return the number of the next attempt of a target on a node: 1 for the first, or after the target changed."""
    failure = failure_of(node, target)
    return failure.attempt + 1 if failure else 1


def retry_at(node_uid: str, failure: FailedAttempt, retries: Retries) -> float:
    """Return the earliest time of the retry of a failed node, in Unix seconds.

    The delay doubles from ``first`` to ``most`` (starting at ``most`` if it was disruptive), with jitter over the upper
    half. The jitter is derived from the UID of the node and the attempt, so that every replica computes the same time,
    also after a restart.
    """
    first, most = retries.first, retries.most
    if failure.disruptive:
        first, most = most, most * DISRUPTION_FACTOR
    full = Backoff(first, most).bound(failure.attempt)
    share = int(short_hash(node_uid, str(failure.attempt)), 16) / 16**10
    return failure.at + full * (0.5 + 0.5 * share)


def _blamed(node: NodeView, target: Target) -> tuple[str, ...]:
    """Return the names of the Shims that failed in the version of the target and are not installed in it."""
    if not (blamed := node.blamed):
        return ()
    has = node.installed
    return tuple(
        sorted(name for name, digest in target.shims if blamed.get(name) == digest and has.get(name) != digest)
    )
