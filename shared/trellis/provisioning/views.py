"""The provisioning state of Nodes and installer Jobs, read alike by two services.

Pure. In: views of Nodes and Jobs, created by ``nodes_and_jobs``. Out: the opt-in of a node, its verified state. Called
by ``node_watcher`` (labels follow the verification) and ``provisioner`` (slots and retries follow it). Invariant: a
view contains everything that decisions need, so that 1,000 nodes need kilobytes each instead of raw objects.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from functools import lru_cache
from sys import intern
from types import MappingProxyType
from typing import Any, Final

from trellis import names
from trellis.installer_api.parse_int import whole
from trellis.provisioning.excluded_nodes import Skip

Manifest = dict[str, Any]
Digests = MappingProxyType[str, str]
"""Digests by Shim name, decoded once and shared."""

SUPPORTED_OS: Final = "linux"
PROVISION: Final = "provision"
REMOVE: Final = "remove"
END_NOW_SECONDS: Final = 1
"""``activeDeadlineSeconds`` of a Job that must end: the only way to stop its pods and keep their logs."""
UNDO: Final = "undo"
"""Operation of a Job that restores the recorded state of a node after a failed verification."""
VERIFICATION_FAILED: Final = "?"
"""Prefix of the version of an installed but unverified Shim, before the last verified version, if there is one. It is
never part of a target."""
KWASM: Final = "kwasm"
"""Name of the content of a legacy installer image, in place of the name of a Shim."""
INSTALLER_JOBS: Final = names.LABEL_NODE_UID
"""Label selector of the installer Jobs of Trellis, without those of an earlier KWasm installation. It has only labels
of the domain of Trellis: policies set ``app.kubernetes.io/managed-by``, which is information for users."""


@dataclass(frozen=True, slots=True)
class Target:
    """The target of one node: digests by Shim name, sorted by name; empty if all Shims are to be removed.

    ``digest`` covers all of it: nodes with equal digests have the same target.
    """

    shims: tuple[tuple[str, str], ...]

    @property
    def digest(self) -> str:
        """16 hex digits; for a legacy installer image alone its own digest, as in existing annotations."""
        if len(self.shims) == 1 and self.shims[0][0] == KWASM:
            return self.shims[0][1]
        return _digest_of(self.shims)


class OptIn(StrEnum):
    """The opt-in of a node to Wasm."""

    IN = "In"
    OUT = "Out"
    INVALID = "Invalid"


class JobState(StrEnum):
    """State of a Job, from its conditions."""

    ACTIVE = "Active"
    COMPLETE = "Complete"
    FAILED = "Failed"


class VerifiedBy(StrEnum):
    """Kind of the verification of a node after an installation."""

    CANARY = "canary"
    HANDLER = "handler"
    JOB = "job"


_DISRUPTIVE: Final = "disruptive"
VERIFIED_BY: Final[Mapping[str, VerifiedBy]] = {verified_by.value: verified_by for verified_by in VerifiedBy}
"""Verifications by the value in annotations."""


@dataclass(frozen=True, slots=True)
class FailedAttempt:
    """One recorded failure: digest of the target, number of the attempt, and its end (Unix seconds).

    ``disruptive``: the attempt restarted the container runtime of the node, so the next one is delayed.
    """

    digest: str
    attempt: int
    at: int
    disruptive: bool = False

    def encode(self) -> str:
        """Return the value of the annotation: ``<digest>/<attempt>/<at>[/disruptive]``."""
        value = f"{self.digest}/{self.attempt}/{self.at}"
        return f"{value}/{_DISRUPTIVE}" if self.disruptive else value

    @classmethod
    def decode(cls, value: str | None) -> FailedAttempt | None:
        """Return the failure in the annotation, or None if it is missing or invalid."""
        parts = (value or "").split("/")
        (digest, attempt, at), more = (*parts, "", "")[:3], parts[3:]
        number, ended = whole(attempt), whole(at)
        if not number or ended is None or more not in ([], [_DISRUPTIVE]):
            return None
        return cls(intern(digest), number, ended, bool(more))


@dataclass(frozen=True, slots=True)
class NodeTaint:
    """A taint of a Node; None for a missing field."""

    key: str
    effect: str
    value: str | None = None
    time_added: str | None = None

    def manifest(self) -> Manifest:
        """Return the taint in the form of the API server."""
        fields = (("key", self.key), ("value", self.value), ("effect", self.effect), ("timeAdded", self.time_added))
        return {name: value for name, value in fields if value is not None}


@dataclass(frozen=True, slots=True)
class NodeView:
    """The relevant fields of a Node. Two views are equal if no relevant field changed (heartbeats are irrelevant)."""

    name: str
    uid: str
    resource_version: str = field(compare=False)
    architecture: str = ""
    operating_system: str = "linux"
    runtime_version: str = ""
    labels: tuple[tuple[str, str | None], ...] = ()
    """Read by :meth:`label_values`. None stands for the name of the Node, so that Nodes share one value."""
    handlers: frozenset[str] = frozenset()
    opt_in: str | None = None
    provisioned: str | None = None
    provisioned_name: str | None = None
    wasm: str | None = None
    digest: str | None = None
    verified: str | None = None
    marked_uid: str | None = None
    failure: str | None = None
    failed_attempt: str | None = None
    failed_shims: str | None = None
    shims: str | None = None
    taints: tuple[NodeTaint, ...] = ()
    ready: bool = True
    skip: Skip | None = None
    """Reason why no installer runs on the node, None if one may."""
    has_annotations: bool = True
    has_labels: bool = True
    verified_by: VerifiedBy | None = field(init=False, repr=False, compare=False)
    """The verification recorded on the Node; None for an unknown value."""
    marked_digest: str | None = field(init=False, repr=False, compare=False)
    """Digest verified on this Node; None if there is none, or if it is of a former Node of the same name."""
    failed: FailedAttempt | None = field(init=False, repr=False, compare=False)
    """The last failure recorded for this Node."""
    blamed: Digests = field(init=False, repr=False, compare=False)
    """Shims that the last failures on this Node are blamed on."""
    recorded: Digests = field(init=False, repr=False, compare=False)
    """Shims in the annotations of the Node, also if they are of a former Node of the same name."""
    installed: Digests = field(init=False, repr=False, compare=False)
    """Shims on this Node by its annotations; unverified digests have the prefix :data:`VERIFICATION_FAILED`."""

    def __post_init__(self) -> None:
        """Decode the annotations once, as each plan needs them. Equal values of several Nodes share the result."""
        own, verified_by = self.marked_uid == self.uid, VERIFIED_BY.get(self.verified or "")
        recorded, digest = decode_digests(self.shims), self.digest if own and verified_by else None
        installed = decode_digests(None)
        if digest is not None:
            installed = recorded if self.shims is not None else _of_legacy(digest)
        decoded = {
            "verified_by": verified_by,
            "marked_digest": digest,
            "failed": FailedAttempt.decode(self.failed_attempt) if own else None,
            "blamed": decode_digests(self.failed_shims if own else None),
            "recorded": recorded,
            "installed": installed,
        }
        for name, value in decoded.items():
            object.__setattr__(self, name, value)

    def label_values(self) -> dict[str, str]:
        """Return the labels of the Node."""
        return {key: self.name if value is None else value for key, value in self.labels}

    @property
    def bears_marks(self) -> bool:
        """True if the Node has labels or annotations of Trellis.

        The label of KWasm alone does not count: KWasm itself may have set it.
        """
        marks = (self.wasm, self.digest, self.verified, self.marked_uid, self.failure, self.failed_attempt, self.shims)
        return any(value is not None for value in marks)


@dataclass(frozen=True, slots=True)
class JobView:
    """The relevant fields of an installer Job. Times are Unix seconds.

    ``succeeded``: one of its pods succeeded, in any state of the Job. ``ends_now``: it must end before its deadline.
    ``failure_target``: reason for which Kubernetes fails it once its pods have ended; "" if there is none.
    ``unconfirmed``: names of Shims that may be installed from before although no annotation names them. ``has_pods``: a
    pod was created, in any state. ``suspended``: it creates no pods, and its deadline is stopped; ``has_pods`` is then
    true if a former pod may still run, or succeeded.
    """

    namespace: str
    name: str
    uid: str
    resource_version: str = field(compare=False)
    node: str = ""
    node_uid: str = ""
    digest: str = ""
    operation: str = PROVISION
    attempt: int = 1
    handlers: frozenset[str] = frozenset()
    removed_handlers: frozenset[str] = frozenset()
    unconfirmed: frozenset[str] = frozenset()
    installs: str | None = None
    traceparent: str | None = None
    state: JobState = JobState.ACTIVE
    condition: str = ""
    failure_target: str = ""
    created_at: int = 0
    started_at: int | None = None
    finished_at: int | None = None
    failure: str | None = None
    blamed: str | None = None
    succeeded: bool = False
    ends_now: bool = False
    disruptive: bool = False
    canaries: frozenset[str] = frozenset()
    verified_by: VerifiedBy | None = None
    rolls_back: str = ""
    deleting: bool = False
    has_pods: bool = False
    suspended: bool = False

    @property
    def shims(self) -> Digests:
        """Shims of the node after the Job has completed."""
        return _of_legacy(self.digest) if self.installs is None else decode_digests(self.installs)

    @property
    def stopped(self) -> bool:
        """True if the Job is suspended without a running pod: an interrupted installer reverts its changes."""
        return self.suspended and not self.has_pods

    @property
    def tried(self) -> tuple[str, str, int]:
        """The attempt of the Job: UID of the Node, digest of its target, number of the attempt."""
        return self.node_uid, self.digest, self.attempt

    @property
    def order(self) -> tuple[int, int, bool, str]:
        """Sort key: the newest Job of a node is the greatest; a rollback is greater than its attempt."""
        return (self.created_at, self.attempt, self.operation == UNDO, self.name)


def opt_in_of(node: NodeView, *, auto_provision: bool) -> OptIn:
    """Return the opt-in of a node to Wasm.

    ``kwasm.sh/kwasm-node``: exactly ``true`` opts in, ``false`` opts out (also with auto-provisioning), any other value
    is invalid and counts as out. Without the annotation auto-provisioning decides (KWasm's rule).
    """
    if node.opt_in is None:
        return OptIn.IN if auto_provision else OptIn.OUT
    return {"true": OptIn.IN, "false": OptIn.OUT}.get(node.opt_in, OptIn.INVALID)


def opting_in(former: NodeView | None, node: NodeView) -> str | None:
    """Return the cause of the trace that a change starts by opting a Node in: ``uid/resourceVersion``.

    None if the change does not opt it in by annotation. All services that watch Nodes get the same result (ADR 102).
    """
    if opt_in_of(node, auto_provision=False) is not OptIn.IN:
        return None
    if former is not None and former.uid == node.uid and former.opt_in == node.opt_in:
        return None
    return f"{node.uid}/{node.resource_version}"


def verification_of(job: JobView, node: NodeView) -> VerifiedBy | None:
    """Return how this Job is verified on the node, or None if it is not.

    A completed Job with known handlers is not sufficient: the status of the node must list the installed handlers and
    none of the removed ones, and the announced canaries must have succeeded. For a node that lists no handlers at all
    (containerd 1.6; KEP-4216) only canaries verify a shim, and a removal is accepted from the installer, which queries
    the runtime itself. A legacy installer image names no handler, so the Job alone decides.
    """
    if job.state is not JobState.COMPLETE or job.node_uid != node.uid or job.operation == UNDO:
        return None
    if job.installs is None and not job.handlers:
        return VerifiedBy.JOB
    if not node.handlers:
        if job.operation == REMOVE:
            return node.verified_by
        return job.verified_by if job.verified_by is VerifiedBy.CANARY else None
    if not shows(job, node) or (job.canaries and job.verified_by is None):
        return None
    return job.verified_by or VerifiedBy.HANDLER


def shows(job: JobView, node: NodeView) -> bool:
    """Return True if the runtime handlers of the node match the Job, or if the node lists none."""
    return not node.handlers or (job.handlers <= node.handlers and not job.removed_handlers & node.handlers)


def recorded_on(node: NodeView) -> dict[str, str]:
    """Return the annotations of a Node that record attempts: any result of an attempt changes one of them."""
    return {names.ANNOTATION_DIGEST: node.digest or "", names.ANNOTATION_FAILED_ATTEMPT: node.failed_attempt or ""}


def verified_digests(digests: Mapping[str, str]) -> dict[str, str]:
    """Return the verified versions among digests by Shim name."""
    return {name: digest for name, digest in digests.items() if not digest.startswith(VERIFICATION_FAILED)}


def as_unverified(digest: str | None) -> str:
    """Return the unverified form of a digest in the annotations of a node, which may be None."""
    return VERIFICATION_FAILED + last_verified(digest)


def last_verified(digest: str | None) -> str:
    """Return the last verified version in a digest of a node's annotations; "" if there was none."""
    return (digest or "").removeprefix(VERIFICATION_FAILED)


def without_changes_to(target: Target, node: NodeView, blocked: Collection[str]) -> Target:
    """Return a target without changes to the Shims in ``blocked``: the node keeps their installed versions."""
    installed = node.installed
    left = {name: installed.get(name, "") if name in blocked else digest for name, digest in target.shims}
    return Target(tuple((name, digest) for name, digest in left.items() if digest))


def encode_digests(digests: Mapping[str, str]) -> str:
    """Return digests by Shim name as one annotation value: ``slight=<digest> spin=<digest>``."""
    return " ".join(f"{name}={digest}" for name, digest in sorted(digests.items()))


@lru_cache(maxsize=4096)  # few values for many nodes and Jobs
def decode_digests(value: str | None) -> Digests:
    """Return the digests in a value of :func:`encode_digests`, without invalid entries, which are reinstalled."""
    pairs = (item.partition("=") for item in (value or "").split())
    return MappingProxyType({name: digest for name, _, digest in pairs if name and digest})


@lru_cache(maxsize=4096)  # as above
def _of_legacy(digest: str) -> Digests:
    return MappingProxyType({KWASM: digest})


def newest(jobs: tuple[JobView, ...]) -> JobView | None:
    """Return the newest Job, or None: older ones are superseded."""
    return max(jobs, key=lambda job: job.order, default=None)


def spec_digest(spec: Mapping[str, str | None]) -> str:
    """Return the digest of a specification: 16 hex digits over its canonical JSON."""
    canonical = json.dumps(spec, sort_keys=True, separators=(",", ":"))
    return hashlib.sha256(canonical.encode()).hexdigest()[:16]


@lru_cache(maxsize=4096)  # as above
def _digest_of(shims: tuple[tuple[str, str], ...]) -> str:
    return spec_digest(dict(shims))
