"""The rows of ``trellis status`` for Wasm pods: all workloads in one row, and one row for each with a problem.

Pure. In: workloads with their health. Out: rows. Called by ``status``. Invariants: a workload has the health and the
reason of its page; healthy workloads are counted, so that the table stays short.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import Any, Final

from trellis.read_model.health import Health, Verdict
from trellis.read_model.wasm_pods.snapshot import Part as Read
from trellis.read_model.wasm_pods.snapshot import Snapshot
from trellis.read_model.wasm_pods.workloads import Workload, providing_shim
from trellis_cli.status.row import Part, command

WASM_PODS: Final = "wasm-pods"
UNKNOWN: Final = dict.fromkeys(("count", "pods", "pods_ready", "states", "workloads"))
ROWS_MOST: Final = 20
"""Rows of workloads in a table; JSON has all."""
_FINE: Final = frozenset({Health.HEALTHY, Health.SUSPENDED})
_SEVERITY: Final = (Health.DEGRADED, Health.MISSING, Health.UNKNOWN, Health.PROGRESSING)


def wasm_pods_part(snapshot: Snapshot, found: Sequence[tuple[Workload, Verdict]]) -> Part:
    """Return the row of all workloads of Wasm pods; a degraded workload is a problem."""
    states = Counter(verdict.health.value for _, verdict in found)
    known = snapshot.knows(Read.PODS)
    pods = sum(len(workload.counted) for workload, _ in found) if known else None
    ready = sum(pod.works for workload, _ in found for pod in workload.counted) if known else None
    degraded = states[Health.DEGRADED]
    counted = ", ".join(f"{count} {state}" for state, count in sorted(states.items()))
    text = f"{len(found)} workloads ({counted}), {_number(ready)} of {_number(pods)} pods ready" if found else "none"
    data: dict[str, Any] = {
        "count": len(found),
        "pods": pods,
        "pods_ready": ready,
        "states": dict(sorted(states.items())),
        "workloads": [_document(snapshot, workload, verdict) for workload, verdict in found],
    }
    return Part(WASM_PODS, text, f"{degraded} degraded: see the next rows" if degraded else "", data)


def workload_parts(found: Sequence[tuple[Workload, Verdict]]) -> list[Part]:
    """Return a row for each workload with a problem or in progress, the most severe first, up to a number of rows."""
    shown = [item for item in found if item[1].health not in _FINE]
    shown.sort(key=lambda item: (_SEVERITY.index(item[1].health), item[0].id[1], item[0].id[0]))
    rows = [_row(workload, verdict) for workload, verdict in shown[:ROWS_MOST]]
    if left := len(shown) - len(rows):
        rows.append(Part("…", f"{left} more: see `trellis top wasmpods`"))
    return rows


def _row(workload: Workload, verdict: Verdict) -> Part:
    kind, key = workload.id
    state = f"{_counts(workload)}, {verdict.health.value}"
    reason = f"{verdict.reason}: {verdict.message}" if verdict.message else verdict.reason
    name, see = f"{kind.lower()} {key}", f"see `{command(kind.lower(), key)}`"
    if verdict.health is Health.DEGRADED:
        return Part(name, state, f"{reason}: {see}")
    return Part(name, f"{state}; {reason}")


def _counts(workload: Workload) -> str:
    pods = workload.counted
    return f"{sum(pod.works for pod in pods)} of {max(workload.wanted or 0, len(pods))} pods ready"


def _document(snapshot: Snapshot, workload: Workload, verdict: Verdict) -> dict[str, Any]:
    kind, key = workload.id
    namespace, _, name = key.partition("/")
    shim = providing_shim(snapshot, workload.runtime_class)
    known = snapshot.knows(Read.PODS)
    return {
        "kind": kind,
        "namespace": namespace,
        "name": name,
        "runtime_class": workload.runtime_class,
        "shim": shim.name if shim is not None else None,
        "executor": (workload.owner.executor or None) if workload.owner is not None else None,
        "desired": workload.wanted,
        "pods": len(workload.counted) if known else None,
        "ready": sum(pod.works for pod in workload.counted) if known else None,
        "health": verdict.health.value,
        "reason": verdict.reason,
        "message": verdict.message or None,
    }


def _number(count: int | None) -> str:
    return "unknown" if count is None else str(count)
