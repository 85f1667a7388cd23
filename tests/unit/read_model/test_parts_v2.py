"""The watched kinds of wasmCloud v2: every part of a snapshot, and views that stay small."""

from __future__ import annotations

import json
import tracemalloc
from typing import Any

import pytest

from support.v2.recordings import recording
from trellis.read_model.entities.composing_v2 import PARTS
from trellis.read_model.live import parts_v2
from trellis.read_model.live.parts_v2 import SharedSpecs, v2_parts
from trellis.v2.snapshot import Part
from trellis.v2.workloads import view_workload

BYTES_EACH = 3_000
"""A Workload as a manifest has 4 kB of JSON."""


def workload(number: int = 0, owner: str = "rs-0", **spec: Any) -> dict[str, Any]:
    """Return a new Workload as decoded from JSON; ``owner``: the UID of its WorkloadReplicaSet."""
    [found, *_] = [item for item in recording("03").objects(2.2) if item["kind"] == "Workload"]
    made: dict[str, Any] = json.loads(json.dumps(found))
    made["metadata"] |= {"name": f"hello-{number:05}", "uid": f"uid-{number:05}"}
    made["metadata"]["ownerReferences"][0]["uid"] = owner
    made["spec"] |= spec
    return made


def test_each_part_of_a_snapshot_is_watched() -> None:
    assert [part.name for part in v2_parts()] == [*PARTS]
    assert {*PARTS.values()} == {*Part}


def test_a_view_has_all_that_pages_use() -> None:
    full, lean = view_workload(workload()), SharedSpecs().view(workload())
    assert lean.spec == full.spec
    assert lean.conditions == full.conditions
    assert (lean.meta.key, lean.meta.owner_name) == (full.meta.key, full.meta.owner_name)


def test_workloads_of_one_owner_share_their_spec_and_others_do_not() -> None:
    specs = SharedSpecs()
    first, twin = specs.view(workload(0)), specs.view(workload(1))
    assert first.spec is twin.spec
    changed = specs.view(workload(2, environment="other"))
    assert changed.spec.environment == "other"
    assert first.spec.environment != "other"
    assert specs.view(workload(3, owner="rs-1")).spec is not changed.spec


def test_owners_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(parts_v2, "OWNERS_MOST", 2)
    specs = SharedSpecs()
    first = specs.view(workload(0, owner="rs-0"))
    for number in range(1, 4):
        specs.view(workload(number, owner=f"rs-{number}"))
    assert specs.view(workload(4, owner="rs-0")).spec is not first.spec
    assert specs.view(workload(5, owner="rs-0")).spec == first.spec


def test_a_workload_needs_little_memory() -> None:
    specs, count = SharedSpecs(), 500
    specs.view(workload())
    tracemalloc.start()
    try:
        before = tracemalloc.get_traced_memory()[0]
        kept = [specs.view(workload(number)) for number in range(count)]
        used = tracemalloc.get_traced_memory()[0] - before
    finally:
        tracemalloc.stop()
    assert used / len(kept) < BYTES_EACH
