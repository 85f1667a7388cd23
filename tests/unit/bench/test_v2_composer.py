"""The benchmark of many Workloads: its objects have the states that it measures, and one outage has one event."""

from __future__ import annotations

from trellis.read_model.health import Health
from v2_composer import NOW, Size, Viewer, of_host_manager, of_viewer, views

SMALL = Size(200)


def test_the_objects_are_healthy_and_without_running_workloads_degraded() -> None:
    viewer = Viewer()
    viewer.take(views(SMALL))
    viewer.runs(NOW)
    found = [item for item in viewer.journal.entities.values() if item["kind"] != "part"]
    assert len(found) == SMALL.workloads + SMALL.deployments + SMALL.hosts + 1, "and the host group"
    assert {item["health"] for item in found if item["kind"] == "workload"} == {Health.HEALTHY}
    viewer.take(views(SMALL, fails=True))
    viewer.runs(NOW)
    assert {item["health"] for item in viewer.journal.entities.values() if item["kind"] == "workload"} == {
        Health.DEGRADED
    }


def test_each_step_has_a_figure() -> None:
    assert all(row.figure >= 0 for row in of_viewer(SMALL) if row.unit == "s")


def test_an_outage_of_all_hosts_is_one_event() -> None:
    first, regular, failing, silent = (row.what for row in of_host_manager(SMALL))
    assert f"{SMALL.workloads + SMALL.deployments + SMALL.hosts} events" in first
    assert "0 events" in regular
    assert f"{2 * SMALL.deployments} events" in failing
    assert "1 event" in silent
