"""The rollout ledger: nodes in progress with their Shims, the pods on changed nodes, and halted rollouts.

Pure. In: the ConfigMap as the API server returns it. Out: the ledger, and back. Written by ``provisioner`` only, read
by ``node_watcher`` (slots) and by code that shows a rollout. Invariant: an invalid entry is skipped, and affects no
other.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from trellis import names
from trellis.installer_api.parse_int import whole
from trellis.provisioning.views import KWASM, NodeView, Target, without_changes_to
from trellis.provisioning.workload_state import WorkloadState, decode_states, encode_states

Manifest = dict[str, Any]
_UNCONFIRMED: Final = "/unconfirmed"
"""Suffix of an entry of the ledger; any suffix is read as this one."""
_WORKLOADS: Final = "workloads"
"""Key of the states of pods, besides the UIDs of Nodes; older versions ignore it."""
Try = tuple[str, str, int]
"""UID of the Node, digest of its target, number of the attempt."""


@dataclass(frozen=True, slots=True)
class Entry:
    """One node in progress: digest of its target, attempt, start (Unix seconds), and Shims that change.

    ``unconfirmed``: the Shims may be installed although no annotation names them, by an earlier attempt whose Job is
    deleted.
    """

    digest: str
    attempt: int
    since: int
    shims: tuple[str, ...] = (KWASM,)
    unconfirmed: bool = False

    def tried(self, uid: str) -> Try:
        """Return the attempt of the slot, for the Node with this UID."""
        return uid, self.digest, self.attempt

    def is_recorded_on(self, node: NodeView) -> bool:
        """Return whether a Node records success or failure of exactly this attempt."""
        failure = node.failed
        if node.marked_digest == self.digest:
            return True
        return failure is not None and (failure.digest, failure.attempt) == (self.digest, self.attempt)


def target_of_slot(node: NodeView, target: Target | None, entry: Entry | None) -> Target | None:
    """Return the target of a node limited to the changes of its slot; all further Shims stay as they are."""
    if target is None or entry is None:
        return target
    others = {name for name, _ in target.shims} - {*entry.shims}
    return without_changes_to(target, node, others) if others else target


@dataclass(frozen=True, slots=True)
class Ledger:
    """The nodes in progress by UID, and the Shims whose rollout is halted.

    ``halts_published``: the Shims whose halt was published. ``workloads``: by Shim, its pods on changed nodes. ``uid``,
    ``version``: UID and resourceVersion of the ConfigMap.
    """

    entries: Mapping[str, Entry]
    halted: tuple[str, ...] = ()
    halts_published: tuple[str, ...] = ()
    uid: str = field(default="", compare=False)
    version: str | None = field(default=None, compare=False)
    workloads: Mapping[str, WorkloadState] = field(default_factory=dict)


def make_ledger(namespace: str, ledger: Ledger, resource_version: str | None) -> Manifest:
    """Return the ConfigMap of the ledger: one entry per node in progress, by UID of the Node (about 100 bytes each).

    With the resourceVersion of the last read, the write is a compare-and-swap.
    """
    marks = {names.ANNOTATION_HALTED: ledger.halted, names.ANNOTATION_HALT_PUBLISHED: ledger.halts_published}
    metadata: Manifest = {
        "name": names.LEDGER,
        "namespace": namespace,
        "labels": {names.LABEL_MANAGED_BY: names.MANAGED_BY, names.LABEL_LEDGER: "true"},
        "annotations": {key: ",".join(value) for key, value in marks.items() if value},
    }
    if resource_version:
        metadata["resourceVersion"] = resource_version
    data = {uid: _encode(entry) for uid, entry in sorted(ledger.entries.items())}
    if states := encode_states(ledger.workloads):
        data[_WORKLOADS] = states
    return {"apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata, "data": data}


def _encode(entry: Entry) -> str:
    suffix = _UNCONFIRMED if entry.unconfirmed else ""
    return f"{entry.digest}/{entry.attempt}/{entry.since}/{','.join(entry.shims)}{suffix}"


def read_ledger(manifest: Manifest) -> Ledger:
    """Return the ledger in a ConfigMap of the API server, without invalid entries (their Jobs are adopted later)."""
    metadata = manifest["metadata"]
    marks = metadata.get("annotations") or {}
    halted, published = (
        tuple(filter(None, (marks.get(key) or "").split(",")))
        for key in (names.ANNOTATION_HALTED, names.ANNOTATION_HALT_PUBLISHED)
    )
    uid, version = metadata.get("uid", ""), metadata.get("resourceVersion")
    states = decode_states((manifest.get("data") or {}).get(_WORKLOADS))
    return Ledger(read_slots(manifest), halted, published, uid, version, states)


def read_slots(manifest: Manifest) -> dict[str, Entry]:
    """Return the nodes in progress in a ConfigMap of the API server by their UID, without invalid entries."""
    entries: dict[str, Entry] = {}
    data: Mapping[str, str] = manifest.get("data") or {}
    for uid, value in data.items():
        if uid == _WORKLOADS:
            continue
        digest, attempt, since, shims, suffix = (*value.split("/"), "", "", "", "")[:5]
        number, requested = whole(attempt), whole(since)
        if digest and number is not None and requested is not None:
            changed = tuple(filter(None, shims.split(","))) or (KWASM,)
            entries[uid] = Entry(digest, number, requested, changed, unconfirmed=bool(suffix))
    return entries
