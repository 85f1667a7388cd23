"""JSON that is kept takes the memory that it has."""

from __future__ import annotations

import tracemalloc

from controller_host.domain.views import view_controller
from trellis.limits.compact import compact


def test_many_small_controllers_need_little_memory() -> None:
    manifest = {
        "metadata": {"namespace": "team", "name": "ring", "uid": "u"},
        "spec": {"serviceAccountName": "ring"},
        "status": {"state": "Suspended"},
    }
    tracemalloc.start()
    before = tracemalloc.get_traced_memory()[0]
    kept = [view_controller(manifest) for _ in range(100)]
    used = tracemalloc.get_traced_memory()[0] - before
    tracemalloc.stop()
    assert used / len(kept) < 1024


def test_it_is_the_json_of_the_value() -> None:
    assert compact({"b": 1, "a": [None, "é"]}) == '{"b":1,"a":[null,"é"]}'.encode()
