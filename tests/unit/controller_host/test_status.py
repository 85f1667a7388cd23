"""The status of a controller, and the changes that are worth a write."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from controller_host.report.status import Before, Seen, before_of, is_urgent, patch_of, status_of
from controller_host.scheduler.hosted import Fault, Trouble
from controller_host.state.progress import KnownModule
from trellis.crds.wasm_controllers import WasmControllerStatus

NOW = "2026-11-22T10:00:00Z"
LATER = "2026-11-22T11:00:00Z"
WELL = Seen(generation=3, state="Suspended", ready=True, module=KnownModule("ab" * 32, 1, 20_000))
REFUSED = replace(WELL, state="Failed", ready=False, refused=Trouble("NotWasm", "it has no magic number"))
STOPPED = replace(WELL, state="Failed", stopped=Trouble("Trapped", "unreachable"))
REQUESTED_LATER = replace(WELL, module=KnownModule("ab" * 32, None, 20_000))
NOT_WATCHED = replace(WELL, not_watched=Trouble("WatchNotGranted", "ask for it"))


def conditions(seen: Seen, former: dict[str, Any] | None = None) -> dict[str, tuple[str, str]]:
    found = status_of(seen, former or {}, NOW)["conditions"]
    return {item["type"]: (item["status"], item["reason"]) for item in found}


@pytest.mark.parametrize(
    ("seen", "accepted", "ready", "reconciling", "stalled"),
    [
        (WELL, "True Accepted", "True Running", "False", "False"),
        (replace(WELL, ready=False, module=None), "Unknown Pending", "False Pending", "True", "False"),
        (replace(WELL, ready=False, fetching=True), "Unknown Fetching", "False Fetching", "True", "False"),
        (replace(WELL, fetching=True), "True Accepted", "True Running", "False", "False"),
        (REFUSED, "False NotWasm", "False NotWasm", "False", "True"),
        (STOPPED, "True Accepted", "False Trapped", "True", "False"),
        (NOT_WATCHED, "True Accepted", "False WatchNotGranted", "True", "False"),
        (replace(WELL, paused=True), "True Accepted", "False Paused", "False", "False"),
        (replace(WELL, paused=True, ready=False, module=None), "Unknown Paused", "False Paused", "False", "False"),
    ],
    ids=[
        "well",
        "new",
        "another is fetched",
        "it is looked at again",
        "refused",
        "stopped",
        "not watched",
        "paused",
        "paused from the start",
    ],
)
def test_conditions(seen: Seen, accepted: str, ready: str, reconciling: str, stalled: str) -> None:
    found = conditions(seen)
    assert " ".join(found["Accepted"]) == accepted
    assert " ".join(found["Ready"]) == ready
    assert (found["Reconciling"][0], found["Stalled"][0]) == (reconciling, stalled)


def test_a_watch_that_does_not_work_reports_it() -> None:
    assert conditions(NOT_WATCHED)["WatchesGranted"] == ("False", "WatchNotGranted")
    assert conditions(WELL)["WatchesGranted"] == ("True", "Granted")


def test_the_time_of_a_condition_is_that_of_its_last_change() -> None:
    first = status_of(WELL, {}, NOW)
    same = status_of(replace(WELL, generation=4), first, LATER)
    changed = status_of(STOPPED, first, LATER)
    times = [
        {condition["type"]: condition["lastTransitionTime"] for condition in found["conditions"]}
        for found in (same, changed)
    ]
    assert set(times[0].values()) == {NOW}
    assert (times[1]["Ready"], times[1]["Accepted"]) == (LATER, NOW)


def test_figures_alone_are_not_urgent_and_conditions_are() -> None:
    first = status_of(WELL, {}, NOW)
    busy = replace(WELL, state="Resident", calls=7, wakes=7, wake_p99=0.00041, resident_bytes=5, snapshot_bytes=6)
    counters = patch_of(first, status_of(busy, first, LATER))
    assert counters == {
        "state": "Resident",
        "calls": 7,
        "wakes": 7,
        "wakeP99": "0.41ms",
        "residentBytes": 5,
        "snapshotBytes": 6,
    }
    assert not is_urgent(counters)
    assert is_urgent(patch_of(first, status_of(STOPPED, first, LATER)))
    assert patch_of(first, status_of(WELL, first, LATER)) == {}


def test_outdated_conditions_are_removed() -> None:
    first = status_of(WELL, {}, NOW)
    assert "module" in first
    assert patch_of(first, status_of(replace(WELL, module=None), first, LATER))["module"] is None


def test_the_status_of_a_former_process_stays_until_there_is_a_new_one() -> None:
    fault = Fault("Trapped", "x", NOW)
    counted = replace(WELL, fault=fault, wake_p99=0.0004, snapshot_bytes=6, wakes=3, calls=5, traps=2)
    first = status_of(counted, {}, NOW)
    assert before_of(first) == Before(wakes=3, calls=5, traps=2, snapshot_bytes=6)
    restarted = replace(WELL, snapshot_bytes=6, wakes=3, calls=5, traps=2)
    assert patch_of(first, status_of(restarted, first, LATER)) == {}
    later = patch_of(first, status_of(replace(restarted, wake_p99=0.001, snapshot_bytes=9), first, LATER))
    assert later == {"wakeP99": "1.00ms", "snapshotBytes": 9}


def test_a_status_written_by_another_client_is_ignored() -> None:
    assert before_of({"calls": "many", "wakes": None}) == Before()


@pytest.mark.parametrize("seen", [WELL, REFUSED, STOPPED, NOT_WATCHED])
def test_it_matches_the_crd(seen: Seen) -> None:
    fault = Fault("ReconcileFailed", "y" * 9000, NOW)
    WasmControllerStatus.model_validate(status_of(replace(seen, fault=fault, wake_p99=1.0, failing=2), {}, NOW))


def test_an_unknown_version_is_not_reported_and_the_former_is_removed() -> None:
    former = status_of(WELL, {}, NOW)
    status = status_of(REQUESTED_LATER, former, NOW)
    assert "abi" not in status["module"]
    assert WasmControllerStatus.model_validate(status).module is not None
    patch = patch_of(former, status)
    assert patch["module"] == {"sha256": "ab" * 32, "abi": None, "bytes": 20_000}
    assert patch_of(status, status) == {}
