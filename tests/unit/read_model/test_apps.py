"""Applications in tables: differences between wadm and the cluster, and versions."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import pytest

from trellis.lattice.domain.models import Model
from trellis.lattice.domain.replies import Version
from trellis.read_model.tables.apps import AppRow, compare, history_of, row_of, without_reply

NOW = datetime(2026, 11, 22, 8, 0, tzinfo=UTC)
READY = [{"type": "Ready", "status": "True", "reason": "Deployed", "message": ""}]


def item(status: dict[str, Any] | None = None, **metadata: Any) -> dict[str, Any]:
    found = {"metadata": {"namespace": "apps", "name": "shop", "generation": 2, **metadata}}
    return found if status is None else {**found, "status": {"observedGeneration": 2, **status}}


def app(**changed: Any) -> AppRow:
    fields: dict[str, Any] = {
        "namespace": "apps",
        "name": "shop",
        "application": "shop",
        "lattice": "default",
        "phase": "Deployed",
        "deployed": "v1",
        "synced_at": NOW,
    }
    return AppRow(**fields | changed)


def test_a_row_has_the_fields_of_the_status() -> None:
    found = row_of(
        item(
            {
                "phase": "Deployed",
                "deployedVersion": "v1",
                "lattice": "default",
                "conditions": READY,
                "synced": {"time": "2026-11-22T07:59:00Z", "wadmVersion": "v1"},
            },
            annotations={"trellis.dev/app-name": "Shop"},
        )
    )
    assert found.document(NOW) == {
        "namespace": "apps",
        "name": "shop",
        "application": "Shop",
        "lattice": "default",
        "phase": "Deployed",
        "deployed": "v1",
        "synced_seconds_ago": 60.0,
        "problem": None,
    }


@pytest.mark.parametrize(
    ("found", "problem"),
    [
        (item(), "application-manager has not reconciled it yet"),
        (
            item({"observedGeneration": 1, "phase": "Deployed"}),
            "application-manager has not reconciled its last change yet",
        ),
        (item({"phase": "Failed", "message": "no host"}), "no host"),
        (item({"phase": "Unhealthy"}), "Unhealthy"),
        (
            item(
                {
                    "phase": "Waiting",
                    "conditions": [{"type": "Ready", "status": "Unknown", "reason": "WadmUnavailable"}],
                }
            ),
            "WadmUnavailable",
        ),
        (
            item({"conditions": [{"type": "Ready", "status": "False", "reason": "Rejected", "message": "no link"}]}),
            "Rejected: no link",
        ),
        (item({"phase": "Deployed"}, deletionTimestamp="2026-11-22T08:00:00Z"), "it is being deleted"),
        (item({"phase": "Undeployed"}), ""),
    ],
)
def test_degraded_parts_are_reported(found: dict[str, Any], problem: str) -> None:
    assert row_of(found).problem.startswith(problem)
    assert bool(row_of(found).problem) == bool(problem)


def test_the_label_gives_the_lattice_until_the_status_does() -> None:
    assert row_of(item(labels={"trellis.dev/lattice": "edge"})).lattice == "edge"


@pytest.mark.parametrize("time", [None, "yesterday", "2026-11-22T08:00:00"])
def test_a_time_that_is_none_is_no_time(time: str | None) -> None:
    assert row_of(item({"synced": {"time": time}})).synced_at is None


@pytest.mark.parametrize(
    ("here", "there", "expected"),
    [
        (app(), Model("shop", "v1", "v1", "deployed"), ()),
        (app(phase=""), Model("shop", "v1", "v1", ""), ()),
        (app(), Model("shop", "v2", "v2", "deployed"), ("deployed is v1 here, v2 in wadm",)),
        (app(), Model("shop", "v1", "", "undeployed"), ("deployed is v1 here, none in wadm", "Deployed here, undep")),
        (app(phase="Undeployed", deployed=""), Model("shop", "v1", "", "waiting"), ()),
        (app(), None, ("not in wadm",)),
        (None, Model("shop", "v1", "v1"), ("not in Kubernetes",)),
    ],
)
def test_differences_are_named(here: AppRow | None, there: Model | None, expected: tuple[str, ...]) -> None:
    [row] = compare("default", [here] if here else [], [there] if there else [], {})
    assert len(row.differences) == len(expected)
    assert all(entry.startswith(start) for entry, start in zip(row.differences, expected, strict=True))


def test_a_manifest_that_differs_is_a_difference_of_its_object_alone() -> None:
    rows = compare("default", [app(), app(name="b", application="b")], [Model("shop", "v1", "v1", "deployed")], {})
    assert [(row.application, bool(row.differences)) for row in rows] == [("b", True), ("shop", False)]
    [row] = compare("default", [app()], [Model("shop", "v1", "v1", "deployed")], {"apps/shop": "the manifest"})
    assert row.differences == ("the manifest",)


def test_two_objects_of_one_application_are_both_shown() -> None:
    rows = compare("default", [app(), app(namespace="other")], [Model("shop", "v1", "v1", "deployed")], {})
    assert [row.app.namespace for row in rows if row.app] == ["apps", "other"]


def test_an_application_without_an_answer_has_no_differences() -> None:
    [row] = without_reply("default", [app()], "wadm does not answer")
    assert row.differences == ()
    assert row.document(NOW)["unknown"] == "wadm does not answer"


def test_a_history_shows_the_running_the_shown_and_the_lost_version() -> None:
    found = item(
        {
            "versions": [
                {"version": "v1", "deployed": False},
                {"version": "overridden-aaa", "deployed": False},
                {"version": "v2", "deployed": True},
                {"version": "overridden-bbb", "deployed": False},
            ],
            "synced": {"wadmVersion": "v2", "time": "2026-11-22T07:59:00Z"},
            "overridden": {"side": "Kubernetes", "version": "overridden-bbb"},
        }
    )
    rows = history_of(found)
    assert [(row.version, row.deployed, row.shown) for row in rows] == [
        ("v1", False, False),
        ("overridden-aaa", False, False),
        ("v2", True, True),
        ("overridden-bbb", False, False),
    ]
    assert [bool(row.note) for row in rows] == [False, True, False, True]
    asked = history_of(found, (Version("v2", deployed=False), Version("v3", deployed=True)))
    assert [(row.version, row.deployed) for row in asked] == [("v2", False), ("v3", True)]
