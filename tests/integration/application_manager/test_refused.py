"""Every answer with which a real wadm refused something, as an Application tells it, and what comes after it."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from support.wadm.application_world import ApplicationWorld, spec
from support.wadm.wadm_stand_in import WadmStandIn
from trellis.crds.conditions import shortened
from trellis.lattice.domain.replies import Refusal

pytestmark = [pytest.mark.cluster, pytest.mark.nats]

RECORDED = Path(__file__).parents[2] / "data/lattice/wadm-refusals.jsonl"
LASTING = {Refusal.REJECTED.value, Refusal.BLOCKED.value}
"""Nothing goes on until somebody changes something."""


def recorded(*operations: str) -> dict[str, dict[str, Any]]:
    """Return what was recorded of these operations, by a name for an application each."""
    rows = [json.loads(line) for line in RECORDED.read_text().splitlines()]
    return {f"app-{at}": item for at, item in enumerate(rows) if item["operation"] in operations}


def conditions_of(found: dict[str, Any]) -> dict[str, tuple[str, str]]:
    conditions = {
        condition["type"]: (condition["status"], condition["reason"])
        for condition in found.get("status", {}).get("conditions", ())
    }
    return {
        kind: conditions[kind]
        for kind in ("Ready", "Reconciling", "Stalled", "Synced", "Rejected")
        if kind in conditions
    }


def expected(reason: str) -> dict[str, tuple[str, str]]:
    lasting = reason in LASTING
    return {
        "Ready": ("False", reason),
        "Reconciling": ("False" if lasting else "True", reason),
        "Stalled": ("True" if lasting else "False", reason),
        "Synced": ("False", reason),
        "Rejected": ("True", reason),
    }


async def test_refused_puts_and_deployments_are_reported_and_continue_once_accepted(
    apps: ApplicationWorld, stand_in: WadmStandIn
) -> None:
    refused = recorded("put", "deploy")
    assert {item["reason"] for item in refused.values()} >= {
        item.value for item in Refusal if item is not Refusal.TOO_LARGE
    }
    for name, item in refused.items():
        stand_in.refusals[item["operation"], name] = item["reply"]
    apps.group()
    async with apps.manager():
        for name in refused:
            apps.apply(name, spec())
        for name, item in refused.items():
            found = await apps.until(
                name,
                f"{item['why']}: {expected(item['reason'])}",
                lambda found, item=item: conditions_of(found) == expected(item["reason"]),
            )
            messages = {each["type"]: each["message"] for each in found["status"]["conditions"]}
            own = item["reply"]["message"].partition("\n\nStack backtrace:")[0].strip()
            assert messages["Rejected"] == shortened(own[:1024])
            assert messages["Ready"] == messages["Synced"] == shortened(f"wadm: {own[:1024]}")
            assert found["status"]["observedGeneration"] == found["metadata"]["generation"]
        stand_in.refusals.clear()
        for name, item in refused.items():
            if item["reason"] in LASTING:  # asked again in some minutes, or when it is another
                apps.patch(name, {"spec": spec("file:///none-2.wasm")})
        for name in refused:
            found = await apps.synced(name)
            assert conditions_of(found)["Synced"][0] == "True"
            assert "Rejected" not in apps.conditions(name)


@pytest.mark.thorough
async def test_a_model_that_wadm_does_not_undeploy_or_delete_stays_until_it_does(
    apps: ApplicationWorld, stand_in: WadmStandIn
) -> None:
    apps.group()
    async with apps.manager():
        for name in ("runs", "stays"):
            apps.apply(name, spec())
            await apps.synced(name)
        for item in recorded("undeploy", "del").values():
            name = "runs" if item["operation"] == "undeploy" else "stays"
            stand_in.refusals[item["operation"], name] = item["reply"]
        apps.undeploy("runs")
        apps.delete("stays")
        for name in ("runs", "stays"):
            found = await apps.condition(name, "Rejected", "True", "WadmFailed")
            assert found["metadata"]["finalizers"]
            assert apps.conditions(name)["Stalled"][0] == "False"
        stand_in.refusals.clear()
        await apps.synced("runs", deployed=False)
        await apps.deleted("stays")
        assert "Rejected" not in apps.conditions("runs")
