"""Controllers as the command line shows them."""

from __future__ import annotations

from typing import Any

from support.suite.naming import lacking
from trellis.read_model.tables.controllers import controller_row
from trellis_cli.controllers.model import controllers_part


def a_controller(name: str = "mirror", ready: str | None = "True", **status: Any) -> dict[str, Any]:
    conditions = [] if ready is None else [{"type": "Ready", "status": ready, "reason": "Because", "message": "so"}]
    return {"metadata": {"namespace": "team-a", "name": name}, "status": {"conditions": conditions, **status}}


def test_a_row_has_the_fields_of_the_status() -> None:
    status = {"state": "Suspended", "residentBytes": 0, "snapshotBytes": 8192, "wakes": 7, "wakeP99": "0.41ms"}
    fault = {"kind": "Trapped", "message": "unreachable", "time": "2026-11-22T10:00:00Z"}
    document = controller_row(a_controller(**status, calls=9, traps=1, lastFault=fault)).document()
    assert document == {
        "namespace": "team-a",
        "name": "mirror",
        "state": "Suspended",
        "ready": True,
        "problem": None,
        "resident_bytes": 0,
        "disk_bytes": 8192,
        "calls": 9,
        "wakes": 7,
        "wake_p99": "0.41ms",
        "traps": 1,
        "last_fault": fault,
        "module_sha256": None,
    }


def test_a_controller_that_is_not_ready_states_the_reason_and_an_unevaluated_one_the_remedy() -> None:
    assert controller_row(a_controller(ready="False")).problem == "Because: so"
    assert "trellis run controller-host" in controller_row(a_controller(ready=None)).problem


def test_the_row_of_the_status_counts_and_names() -> None:
    rows = [
        controller_row(a_controller("a", state="Suspended")),
        controller_row(a_controller("b", "False", state="Failed")),
        controller_row(a_controller("c", "False", state="Paused")),
    ]
    part = controllers_part(rows, "me")
    assert part.data == {
        "count": 3,
        "states": {"Failed": 1, "Paused": 1, "Suspended": 1},
        "not_ready": ["team-a/b"],
        "holder": "me",
        "causes": {"team-a/b": "Because: so"},
    }
    assert "team-a/b" in part.problem
    assert lacking(controllers_part(rows, "").problem, "controller-host") == []
    assert not controllers_part([], "").problem
