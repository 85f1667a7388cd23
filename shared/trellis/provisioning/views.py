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
"""``activeDeadlineSeconds`` of a Job that was told to end: the only way to stop its pods and keep what they said."""
UNDO: Final = "undo"
"""Operation of a Job that brings a node back to what its marks say: what was tried there did not prove itself."""
VERIFICATION_FAILED: Final = "?"
"""Begins the version of a Shim that is on a node and of which nothing is proved; behind it stands the last version that
was proved there, if there was one. It is no version that a node is ever to have."""
KWASM: Final = "kwasm"
"""What a legacy installer image installs, as if it were a Shim of this name."""
INSTALLER_JOBS: Final = names.LABEL_NODE_UID
"""Label selector of our installer Jobs: KWasm's own, from a former install, are not ours to judge. Only labels of our
own domain select: policies set ``app.kubernetes.io/managed-by``, which is information for users."""


@dataclass(frozen=True, slots=True)
class Target:
    """What one node is to have: digests by Shim name, in order of names; none if all of Trellis is to be removed.

    ``digest`` is over all of it: two nodes with one digest are to have the same.
    """

    shims: tuple[tuple[str, str], ...]

    @property
    def digest(self) -> str:
        """16 hex digits; of a legacy installer image alone its own, as nodes have carried it."""
        if len(self.shims) == 1 and self.shims[0][0] == KWASM:
            return self.shims[0][1]
        return _digest_of(self.shims)


class OptIn(StrEnum):
    """Whether a node is to run Wasm."""

    IN = "In"
    OUT = "Out"
    INVALID = "Invalid"


class JobState(StrEnum):
    """How far a Job came, from its own conditions."""

    ACTIVE = "Active"
    COMPLETE = "Complete"
    FAILED = "Failed"


class Proof(StrEnum):
    """What is known of a node on which an installer finished."""

    CANARY = "canary"
    HANDLER = "handler"
    JOB = "job"


_DISRUPTIVE: Final = "disruptive"
PROOFS: Final[Mapping[str, Proof]] = {proof.value: proof for proof in Proof}
"""By what stands in annotations."""


@dataclass(frozen=True, slots=True)
class FailedAttempt:
    """One recorded failure: what was installed, which try it was, when it ended (Unix seconds).

    ``disruptive``: the try restarted the node's container runtime, so the next one can wait.
    """

    digest: str
    attempt: int
    at: int
    disruptive: bool = False

    def encode(self) -> str:
        """Return the value of the annotation that carries it: ``<digest>/<attempt>/<at>[/disruptive]``."""
        mark = f"{self.digest}/{self.attempt}/{self.at}"
        return f"{mark}/{_DISRUPTIVE}" if self.disruptive else mark

    @classmethod
    def decode(cls, value: str | None) -> FailedAttempt | None:
        """Read the annotation; None when it is absent or was edited into something else."""
        parts = (value or "").split("/")
        (digest, attempt, at), more = (*parts, "", "")[:3], parts[3:]
        number, ended = whole(attempt), whole(at)
        if not number or ended is None or more not in ([], [_DISRUPTIVE]):
            return None
        return cls(intern(digest), number, ended, bool(more))


@dataclass(frozen=True, slots=True)
class NodeTaint:
    """A taint as it stands on a Node; what is None is not there."""

    key: str
    effect: str
    value: str | None = None
    time_added: str | None = None

    def manifest(self) -> Manifest:
        """Return it as the API server has it."""
        fields = (("key", self.key), ("value", self.value), ("effect", self.effect), ("timeAdded", self.time_added))
        return {name: value for name, value in fields if value is not None}


@dataclass(frozen=True, slots=True)
class NodeView:
    """What matters of a Node. Two views are equal if nothing that matters changed (heartbeats do not)."""

    name: str
    uid: str
    resource_version: str = field(compare=False)
    architecture: str = ""
    operating_system: str = "linux"
    runtime_version: str = ""
    labels: tuple[tuple[str, str], ...] = ()
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
    """Why no installer is to run on it, None if one may."""
    has_annotations: bool = True
    has_labels: bool = True
    proof: Proof | None = field(init=False, repr=False, compare=False)
    """What the Node says was proved; None for a value that is none of Trellis."""
    marked_digest: str | None = field(init=False, repr=False, compare=False)
    """Digest of what is proved on this very Node; None if unmarked or marked for a former one of that name."""
    failed: FailedAttempt | None = field(init=False, repr=False, compare=False)
    """The last failure recorded for this very Node."""
    blamed: Digests = field(init=False, repr=False, compare=False)
    """What the last failures on this very Node were blamed on."""
    recorded: Digests = field(init=False, repr=False, compare=False)
    """What the Node's record names, be it that of a former Node of the name."""
    installed: Digests = field(init=False, repr=False, compare=False)
    """What is on this very Node by its marks; :data:`VERIFICATION_FAILED` begins the digests that prove nothing."""

    def __post_init__(self) -> None:
        """Decode the annotations: once, as each plan asks for them. Nodes share what equal ones decode to."""
        mine, proof = self.marked_uid == self.uid, PROOFS.get(self.verified or "")
        recorded, digest = decode_digests(self.shims), self.digest if mine and proof else None
        installed = decode_digests(None)
        if digest is not None:
            installed = recorded if self.shims is not None else _of_legacy(digest)
        decoded = {
            "proof": proof,
            "marked_digest": digest,
            "failed": FailedAttempt.decode(self.failed_attempt) if mine else None,
            "blamed": decode_digests(self.failed_shims if mine else None),
            "recorded": recorded,
            "installed": installed,
        }
        for name, value in decoded.items():
            object.__setattr__(self, name, value)

    @property
    def bears_marks(self) -> bool:
        """Whether anything of Trellis is written on the Node. KWasm's label alone is not.

        KWasm itself may have set it.
        """
        marks = (self.wasm, self.digest, self.verified, self.marked_uid, self.failure, self.failed_attempt, self.shims)
        return any(mark is not None for mark in marks)


@dataclass(frozen=True, slots=True)
class JobView:
    """What matters of an installer Job. Times are Unix seconds.

    ``succeeded``: one of its pods did, whatever the Job says. ``ends_now``: it was told to end before its time.
    ``given_up``: why Kubernetes waits for the end of its pods, to fail it then; "" if it does not.
    ``feared``: the Shims that may be there from before it though no mark names them; by name. ``has_pods``: a pod of
    it was created, whatever became of it. ``suspended``: it has no new pod, and its deadline does not pass; its
    ``has_pods`` is whether a former pod may still run, or ended well.
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
    feared: frozenset[str] = frozenset()
    installs: str | None = None
    traceparent: str | None = None
    state: JobState = JobState.ACTIVE
    condition: str = ""
    given_up: str = ""
    created_at: int = 0
    started_at: int | None = None
    finished_at: int | None = None
    failure: str | None = None
    blamed: str | None = None
    succeeded: bool = False
    ends_now: bool = False
    disruptive: bool = False
    canaries: frozenset[str] = frozenset()
    proved: Proof | None = None
    undoes: str = ""
    deleting: bool = False
    has_pods: bool = False
    suspended: bool = False

    @property
    def shims(self) -> Digests:
        """What the node has once the Job did its work."""
        return _of_legacy(self.digest) if self.installs is None else decode_digests(self.installs)

    @property
    def stopped(self) -> bool:
        """Whether it is suspended and no pod of it runs: an installer that is interrupted takes its changes back."""
        return self.suspended and not self.has_pods

    @property
    def tried(self) -> tuple[str, str, int]:
        """Which try of which node this is: the Node's uid, the digest of what it is to have, the attempt."""
        return self.node_uid, self.digest, self.attempt

    @property
    def order(self) -> tuple[int, int, bool, str]:
        """Sort key: the newest Job of a node is the greatest; what undoes a try comes after it."""
        return (self.created_at, self.attempt, self.operation == UNDO, self.name)


def opt_in_of(node: NodeView, *, auto_provision: bool) -> OptIn:
    """Return whether a node is to run Wasm.

    ``kwasm.sh/kwasm-node``: exactly ``true`` opts in, ``false`` opts out (also where every node is provisioned),
    anything else is invalid and counts as out. Without the annotation auto-provisioning decides (KWasm's rule).
    """
    if node.opt_in is None:
        return OptIn.IN if auto_provision else OptIn.OUT
    return {"true": OptIn.IN, "false": OptIn.OUT}.get(node.opt_in, OptIn.INVALID)


def opting_in(former: NodeView | None, node: NodeView) -> str | None:
    """Return the cause of the trace that a change of a Node begins by opting it in: ``uid/resourceVersion``.

    None if the change does not opt it in by its annotation. All services that watch Nodes come to the same (ADR 102).
    """
    if opt_in_of(node, auto_provision=False) is not OptIn.IN:
        return None
    if former is not None and former.uid == node.uid and former.opt_in == node.opt_in:
        return None
    return f"{node.uid}/{node.resource_version}"


def proof_of(job: JobView, node: NodeView) -> Proof | None:
    """Say what is proved on the node by this Job, None if nothing is.

    A finished Job proves nothing by itself where a handler is known: the node's own status must list the handlers it
    installed, and none that it removed, and what it promised a canary for must have run one. A node that lists no
    handlers at all (containerd 1.6; KEP-4216) says nothing by that: there only canaries prove that a shim runs, and a
    removal is believed to our installer, which asks the runtime itself. A legacy installer image names no handler, so
    there the Job is all there is.
    """
    if job.state is not JobState.COMPLETE or job.node_uid != node.uid or job.operation == UNDO:
        return None
    if job.installs is None and not job.handlers:
        return Proof.JOB
    if not node.handlers:
        if job.operation == REMOVE:
            return node.proof
        return job.proved if job.proved is Proof.CANARY else None
    if not shows(job, node) or (job.canaries and job.proved is None):
        return None
    return job.proved or Proof.HANDLER


def shows(job: JobView, node: NodeView) -> bool:
    """Return whether the node's runtime handlers are what its Job was to lead to.

    A node that lists none says nothing.
    """
    return not node.handlers or (job.handlers <= node.handlers and not job.removed_handlers & node.handlers)


def recorded_on(node: NodeView) -> dict[str, str]:
    """Return the annotations of a Node that the outcome of an attempt changes: any outcome changes one of them."""
    return {names.ANNOTATION_DIGEST: node.digest or "", names.ANNOTATION_FAILED_ATTEMPT: node.failed_attempt or ""}


def proved_of(digests: Mapping[str, str]) -> dict[str, str]:
    """Return of digests by Shim name those of versions that were proved."""
    return {name: digest for name, digest in digests.items() if not digest.startswith(VERIFICATION_FAILED)}


def unproved(digest: str | None) -> str:
    """Return what stands for a Shim of which nothing is proved any more, from its digest in a node's marks, if any."""
    return VERIFICATION_FAILED + last_proved(digest)


def last_proved(digest: str | None) -> str:
    """Return the last version that was proved, from a digest in a node's marks; "" if there was none."""
    return (digest or "").removeprefix(VERIFICATION_FAILED)


def held_back(target: Target, node: NodeView, held: Collection[str]) -> Target:
    """Return a target without the Shims that are held back: of these the node keeps what it has."""
    installed = node.installed
    left = {name: installed.get(name, "") if name in held else digest for name, digest in target.shims}
    return Target(tuple((name, digest) for name, digest in left.items() if digest))


def encode_digests(digests: Mapping[str, str]) -> str:
    """Return digests by Shim name as one annotation value: ``slight=<digest> spin=<digest>``."""
    return " ".join(f"{name}={digest}" for name, digest in sorted(digests.items()))


@lru_cache(maxsize=4096)  # few values for many nodes and Jobs
def decode_digests(value: str | None) -> Digests:
    """Read :func:`encode_digests`; what someone edited into something else is left out, and so installed again."""
    pairs = (item.partition("=") for item in (value or "").split())
    return MappingProxyType({name: digest for name, _, digest in pairs if name and digest})


@lru_cache(maxsize=4096)  # as above
def _of_legacy(digest: str) -> Digests:
    return MappingProxyType({KWASM: digest})


def newest(jobs: tuple[JobView, ...]) -> JobView | None:
    """Return the newest Job, None if there is none: what an older one says no longer counts."""
    return max(jobs, key=lambda job: job.order, default=None)


def spec_digest(spec: Mapping[str, str | None]) -> str:
    """Return the digest of what is to be installed: 16 hex digits over its canonical JSON."""
    canonical = json.dumps(spec, sort_keys=True, separators=(",", ":"))
    return hashlib.sha256(canonical.encode()).hexdigest()[:16]


@lru_cache(maxsize=4096)  # as above
def _digest_of(shims: tuple[tuple[str, str], ...]) -> str:
    return spec_digest(dict(shims))
