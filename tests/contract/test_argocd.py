"""Argo CD's health checks, in real Lua 5.1 as Argo CD has it, on statuses that application_manager writes."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any, get_args

import pytest
import yaml
from lupa.lua51 import LuaRuntime

from application_manager.domain.actions import Announcement as Because
from application_manager.domain.actions import Decision, Put, Reason, Refused
from application_manager.domain.conditions import Seen, status_of
from application_manager.domain.sides import Absence, Base, Model
from application_manager.domain.snapshot import Snapshot
from application_manager.domain.views import view_application
from support.suite.naming import lacking
from support.wadm.application_objects import seen_of, stored
from trellis.crds.application import Application
from trellis.crds.application_status import Phase
from trellis.lattice.domain.replies import Refusal, Status
from trellis.lattice.domain.store import StoredManifest, StoredModel

ROOT = Path(__file__).parents[2]
OURS, THEIRS = "ours", "wasmcloud-operator's"
OF_HOSTS = "ours, of hosts"
Manifest = dict[str, Any]

VIEW = view_application(stored())
DIGEST = VIEW.object.digest
BASE = Base(DIGEST, "v1", deployed=True, newest="v1", serial=1, bucket="b")
SYNCED = replace(VIEW, object=replace(VIEW.object, base=BASE))
STORED = StoredModel("web", (("v1", StoredManifest.of({})),), "v1", 9)
NOW = 1_793_491_200.0
NOT_DEPLOYED = replace(BASE, deployed=False)
UNAVAILABLE = Because(Reason.WADM_UNAVAILABLE, "wadm does not answer")
NO_LATTICE = Because(Reason.NO_LATTICE, "no group of hosts")


def script(whose: str) -> str:
    """Return the Lua of a ConfigMap."""
    if whose == THEIRS:
        text = (ROOT / "tests/data/argocd/wasmcloud-operator-configmap.yaml").read_text()
        customizations = yaml.safe_load(yaml.safe_load(text)["data"]["resource.customizations"])
        return str(customizations["core.oam.dev/Application"]["health.lua"])
    data = yaml.safe_load((ROOT / "deploy/argocd/application-health.yaml").read_text())["data"]
    kind = "k8s.wasmcloud.dev_WasmCloudHostConfig" if whose == OF_HOSTS else "core.oam.dev_Application"
    return str(data[f"resource.customizations.health.{kind}"])


def health(whose: str, item: Manifest) -> tuple[str, str]:
    """Return what a script says of an object."""
    lua = LuaRuntime(unpack_returned_tuples=True, register_eval=False, register_builtins=False)
    lua.globals().obj = lua.table_from(item, recursive=True)
    found = lua.execute(script(whose))
    return str(found.status), str(found.message)


def seen(**changes: Any) -> Seen:
    view = changes.pop("view", SYNCED)
    snapshot = changes.pop("snapshot", Snapshot(view.object, Model((("v1", DIGEST),), "v1", "b"), now=NOW))
    whole: dict[str, Any] = {"model": STORED, "wadm_status": Status("deployed")}
    return seen_of(view, snapshot, **(whole | changes))


def item(one: Seen) -> Manifest:
    found = stored() | {"status": status_of(one)}
    Application.model_validate(found)
    return found


STATES: dict[str, tuple[Seen, str, str]] = {
    "deployed": (seen(), "Healthy", "Healthy"),
    "reconciling": (seen(wadm_status=Status("reconciling")), "Progressing", "Progressing"),
    "waiting for another": (seen(wadm_status=Status("waiting")), "Progressing", "Progressing"),
    "failed": (seen(wadm_status=Status("failed", "no host fits")), "Degraded", "Degraded"),
    "unhealthy": (seen(wadm_status=Status("unhealthy", "it does not answer")), "Progressing", "Degraded"),
    "undeployed": (
        seen(
            view=replace(VIEW, object=replace(VIEW.object, base=NOT_DEPLOYED)),
            model=replace(STORED, deployed=""),
            wadm_status=Status("undeployed"),
        ),
        "Suspended",
        "Suspended",
    ),
    "rejected": (
        seen(
            view=VIEW,
            snapshot=Snapshot(VIEW.object, Absence.LOST, now=NOW),
            model=None,
            wadm_status=None,
            refused=Refused(DIGEST, undeploy=False, refusal=Refusal.REJECTED, message="no such link target"),
        ),
        "Progressing",
        "Degraded",
    ),
    "wadm away": (
        seen(
            view=replace(SYNCED, status=json.dumps(status_of(seen()))),
            decision=Decision(waits=UNAVAILABLE),
            snapshot=Snapshot(SYNCED.object, Absence.UNAVAILABLE, now=NOW),
            model=None,
        ),
        "Healthy",
        "Unknown",
    ),
    "no lattice": (seen(view=VIEW, decision=Decision(waits=NO_LATTICE), lattice_id=""), "Progressing", "Progressing"),
    "a change under way": (
        seen(decision=Decision((Put(Because(Reason.APPLIED, "it was applied"), "v2"),))),
        "Healthy",
        "Progressing",
    ),
}


@pytest.mark.parametrize(("one", "theirs", "ours"), STATES.values(), ids=STATES)
def test_both_scripts_judge_the_status_that_trellis_writes(one: Seen, theirs: str, ours: str) -> None:
    found = item(one)
    assert (health(THEIRS, found)[0], health(OURS, found)[0]) == (theirs, ours)


def test_every_phase_is_among_the_states() -> None:
    assert {item(entry)["status"]["phase"] for entry, _, _ in STATES.values()} == set(get_args(Phase))


@pytest.mark.parametrize("status", [None, {}, {"conditions": []}])
def test_an_object_not_yet_reconciled_is_progressing(status: Manifest | None) -> None:
    found = {key: value for key, value in stored().items() if key != "status"} | (
        {} if status is None else {"status": status}
    )
    assert ("status" in found) is (status is not None)
    assert health(THEIRS, found)[0] == "Progressing"
    state, reported = health(OURS, found)
    assert (state, lacking(reported, "application_manager")) == ("Progressing", [])


def test_a_change_that_was_not_looked_at_yet_is_not_taken_for_healthy() -> None:
    found = item(seen())
    found["metadata"]["generation"] += 1
    assert health(OURS, found)[0] == "Progressing"


def test_the_words_of_wadm_are_shown() -> None:
    assert health(OURS, item(STATES["failed"][0]))[1] == "no host fits"
    assert health(OURS, item(STATES["rejected"][0]))[1] == "wadm: no such link target"
    assert "wadm does not answer" in health(OURS, item(STATES["wadm away"][0]))[1]


def group(generation: int = 1, **conditions: str) -> Manifest:
    """Return a group of hosts in generation 1 or later, that was looked at in 1, with these conditions."""
    reported = [{"type": kind, "status": verdict, "message": kind} for kind, verdict in conditions.items()]
    return {"metadata": {"generation": generation}, "status": {"observedGeneration": 1, "conditions": reported}}


@pytest.mark.parametrize(
    ("found", "verdict"),
    [
        pytest.param({"metadata": {"generation": 1}}, "Progressing", id="nobody looked at it"),
        pytest.param(group(Ready="False", Progressing="True", Degraded="False"), "Progressing", id="its hosts start"),
        pytest.param(group(Ready="True", Progressing="False", Degraded="False"), "Healthy", id="all are ready"),
        pytest.param(group(2, Ready="True", Progressing="False", Degraded="False"), "Progressing", id="changed since"),
        pytest.param(group(Ready="False", Progressing="True", Degraded="True"), "Degraded", id="a host does not start"),
    ],
)
def test_a_group_of_hosts_is_judged_by_its_conditions(found: Manifest, verdict: str) -> None:
    assert health(OF_HOSTS, found)[0] == verdict
