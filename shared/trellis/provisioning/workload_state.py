"""The part of the rollout ledger about pods: how ready they were on nodes that changed, and halts because of them.

Pure. In: the text in the ledger. Out: states by Shim, and back. Written by ``provisioner`` only, read by code that
shows a rollout. Invariants: an invalid part is skipped, and affects no other; an owner of pods has about 25 bytes for
each changed node, regardless of its name.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from trellis.installer_api.json_text import read_json

_MESSAGE_KEPT: Final = 600
"""Characters of the message of a halt: the ledger is one object for all Shims."""

Readiness = tuple[int, int]
"""Pods of one owner on a node: how many were ready, and how many there were."""


@dataclass(frozen=True, slots=True)
class Baseline:
    """The pods of a Shim on one node when its slot was assigned. ``since``: Unix seconds; ``owners``: by their key."""

    node: str
    since: int
    owners: Mapping[str, Readiness]


@dataclass(frozen=True, slots=True)
class WorkloadHalt:
    """The reason why a rollout is halted because of pods. ``at``: Unix seconds; ``pod``: ``namespace/name``, "" if none
    is known.

    ``cause``: reason of the pod, as ``trellis explain`` names it.
    """

    reason: str
    at: int
    message: str
    pod: str = ""
    node: str = ""
    cause: str = ""


@dataclass(frozen=True, slots=True)
class WorkloadState:
    """Pods of one Shim during its rollout. ``baselines``: by UID of a changed node, until its pods are as ready again.

    ``content``: the version that is rolled out (``shims.content_of``). ``ended``: when the last of these nodes ended
    its change, 0 if none has. ``unread``: since when pods cannot be read, 0 if they can. In Unix seconds.
    """

    content: str
    baselines: Mapping[str, Baseline] = field(default_factory=dict)
    ended: int = 0
    unread: int = 0
    halt: WorkloadHalt | None = None

    @property
    def is_empty(self) -> bool:
        """True if it has no record, no error and no halt."""
        return not self.baselines and not self.unread and self.halt is None


def encode_states(states: Mapping[str, WorkloadState]) -> str:
    """Return states by Shim as a text, "" if there are none."""
    document = {shim: _encode(state) for shim, state in sorted(states.items())}
    return json.dumps(document, separators=(",", ":")) if document else ""


def decode_states(text: str | None) -> dict[str, WorkloadState]:
    """Return the states by Shim in a text, without invalid parts."""
    try:
        document = read_json(text or "{}")
    except ValueError:
        return {}
    found = document.items() if isinstance(document, dict) else ()
    states = {str(shim): state for shim, item in found if (state := _decode(item)) is not None}
    return {shim: state for shim, state in states.items() if not state.is_empty}


def size_of(baseline: Baseline) -> int:
    """Return the approximate number of bytes of a baseline in the ledger."""
    return len(_dump(_encode_baseline(baseline))) + _UID_BYTES


_UID_BYTES: Final = 40


def _dump(value: object) -> str:
    return json.dumps(value, separators=(",", ":"))


def _encode(state: WorkloadState) -> dict[str, Any]:
    found: dict[str, Any] = {
        "content": state.content,
        "ended": state.ended,
        "unread": state.unread,
        "nodes": {uid: _encode_baseline(item) for uid, item in sorted(state.baselines.items())},
    }
    if (halt := state.halt) is not None:
        found["halt"] = [halt.reason, halt.at, halt.message[:_MESSAGE_KEPT], halt.pod, halt.node, halt.cause]
    return found


def _encode_baseline(baseline: Baseline) -> list[Any]:
    return [baseline.node, baseline.since, {key: list(item) for key, item in sorted(baseline.owners.items())}]


def _decode(item: object) -> WorkloadState | None:
    if not isinstance(item, dict) or not isinstance(item.get("content"), str):
        return None
    nodes = item.get("nodes")
    baselines = {
        str(uid): baseline
        for uid, value in (nodes.items() if isinstance(nodes, dict) else ())
        if (baseline := _decode_baseline(value)) is not None
    }
    return WorkloadState(
        item["content"], baselines, _number(item.get("ended")), _number(item.get("unread")), _halt(item.get("halt"))
    )


def _decode_baseline(value: object) -> Baseline | None:
    match value:
        case [str(node), int(since), dict(owners)]:
            return Baseline(node, since, {key: pair for key, item in owners.items() if (pair := _pair(item))})
        case _:
            return None


def _pair(item: object) -> Readiness | None:
    match item:
        case [int(ready), int(total)]:
            return ready, total
        case _:
            return None


def _halt(value: object) -> WorkloadHalt | None:
    match value:
        case [str(reason), int(at), str(message), str(pod), str(node), str(cause)]:
            return WorkloadHalt(reason, at, message, pod, node, cause)
        case _:
            return None


def _number(value: object) -> int:
    return value if isinstance(value, int) and value >= 0 else 0
