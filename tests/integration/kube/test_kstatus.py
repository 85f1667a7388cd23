"""The library of Flux and Helm judges the objects of every kind by their conditions as the services mean them."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Iterable, Iterator
from dataclasses import replace
from typing import Any

from application_manager.domain.actions import Announcement, Decision, Refused
from application_manager.domain.actions import Reason as Wait
from application_manager.domain.conditions import status_of as application_status_of
from application_manager.domain.sides import Absence, Base, Model
from application_manager.domain.snapshot import Snapshot
from application_manager.domain.views import view_application
from controller_host.report.status import status_of as controller_status_of
from host_manager.domain.status import health_of as group_health_of
from provisioner.domain.shim_status import health_of as shim_health_of
from secrets_backend.domain.decide import view_grant
from secrets_backend.domain.grant_status import Access, Reason
from secrets_backend.domain.grant_status import status_of as grant_status_of
from support.situations.objects import GROUPS, SEEN, SHIMS, SHOWN, Manifest
from support.wadm.application_objects import seen_of, stored
from trellis.crds.conditions import Health, State, make_condition, summary
from trellis.lattice.domain.replies import Refusal, Status
from trellis.lattice.domain.store import StoredManifest, StoredModel
from trellis.provisioning.shim_status import read_status
from trellis_dev.localcluster import tools

AT = "2026-01-01T00:00:00Z"
DEADLINE = 60
CURRENT, IN_PROGRESS, FAILED = "Current", "InProgress", "Failed"
STATUSES = {
    State.READY: CURRENT,
    State.RECONCILING: IN_PROGRESS,
    State.STALLED: FAILED,
    State.SUSPENDED: IN_PROGRESS,
    State.UNKNOWN: IN_PROGRESS,
}
"""kstatus has no word for an object that a user suspended: a rollout that is paused is not complete."""
OF_CONTROLLERS = (CURRENT, CURRENT, IN_PROGRESS, IN_PROGRESS, FAILED, IN_PROGRESS, IN_PROGRESS, IN_PROGRESS)
"""Of the situations in ``SEEN``, in their order: an invalid module needs another spec; other problems may resolve."""


def judged(objects: Iterable[Manifest]) -> list[str]:
    """Return the status of each object."""
    done = subprocess.run(
        [str(tools.ensure("kstatus"))], input=json.dumps([*objects]), capture_output=True, text=True, timeout=DEADLINE,
        check=True,
    )  # fmt: skip
    return [load["status"] for load in json.loads(done.stdout)]


def with_summary(found: Manifest, health: Health, *, seen: int = 1) -> Manifest:
    """Return an object whose service wrote what this health comes to, for the generation ``seen``."""
    status = found.get("status") or {}
    conditions = [make_condition(item, (), seen, AT) for item in summary(health)]
    kind = {"apiVersion": "trellis.dev/v1alpha1", "kind": "Any"} | found
    return kind | {
        "metadata": found["metadata"] | {"generation": 1},
        "status": status | {"observedGeneration": seen, "conditions": [*conditions, *status.get("conditions", ())]},
    }


def situations() -> Iterator[tuple[str, Manifest, State]]:
    """Yield the situations of the kinds with the state that their service writes."""
    for name, (world, _, _) in SHIMS.items():
        [raw] = [shim for shim in world.shims if shim["metadata"]["name"] == "spin"]
        health = shim_health_of(read_status(raw).conditions)
        yield f"Shim: {name}", with_summary(raw, health), health.state
    for name, (found, _, _) in GROUPS.items():
        conditions = [
            (condition["type"], condition["status"], condition["reason"], condition["message"])
            for condition in found["status"]["conditions"]
        ]
        health = group_health_of(conditions)
        yield f"host group: {name}", with_summary(found, health), health.state


def test_every_situation_of_shims_and_host_groups() -> None:
    names, objects, states = zip(*situations(), strict=True)
    found = dict(zip(names, judged(objects), strict=True))
    assert found == {name: STATUSES[state] for name, state in zip(names, states, strict=True)}
    assert {*found.values()} == {CURRENT, IN_PROGRESS, FAILED}


def test_every_situation_of_controllers() -> None:
    objects: list[dict[str, Any]] = [
        {
            "apiVersion": "trellis.dev/v1alpha1",
            "kind": "WasmController",
            "metadata": {"name": "c", "namespace": "team", "generation": 1},
            "status": controller_status_of(seen, {}, AT),
        }
        for seen, _ in SEEN.values()
    ]
    assert dict(zip(SEEN, judged(objects), strict=True)) == dict(zip(SEEN, OF_CONTROLLERS, strict=True))


def test_every_phase_of_an_application() -> None:
    plain = view_application(stored())
    digest = plain.object.digest
    base = Base(digest, "v1", deployed=True, newest="v1", serial=1, bucket="b")
    view = replace(plain, object=replace(plain.object, base=base))
    model = StoredModel("web", (("v1", StoredManifest.of({})),), "v1", 9)
    synced = Snapshot(view.object, Model((("v1", digest),), "v1", "b"), now=0.0)
    unavailable = replace(synced, wadm=Absence.UNAVAILABLE)
    no = Refused(digest, undeploy=False, refusal=Refusal.REJECTED, message="no")
    idle = replace(view, object=replace(view.object, base=replace(base, deployed=False)))
    cases = {
        "deployed": (CURRENT, seen_of(view, synced, model=model, wadm_status=Status("deployed"))),
        "undeployed": (
            CURRENT, seen_of(idle, synced, model=replace(model, deployed=""), wadm_status=Status("undeployed")),
        ),
        "reconciling": (IN_PROGRESS, seen_of(view, synced, model=model, wadm_status=Status("reconciling"))),
        "unhealthy": (IN_PROGRESS, seen_of(view, synced, model=model, wadm_status=Status("unhealthy"))),
        "wadm is unavailable": (IN_PROGRESS, seen_of(view, unavailable, model=model, wadm_status=Status("deployed"))),
        "failed": (FAILED, seen_of(view, synced, model=model, wadm_status=Status("failed"))),
        "rejected": (FAILED, seen_of(view, synced, model=model, wadm_status=None, refused=no)),
        "invalid": (FAILED, seen_of(replace(view, problem="no manifest"), synced, model=model, wadm_status=None)),
    }  # fmt: skip
    found = judged(stored() | {"status": application_status_of(seen)} for _, seen in cases.values())
    assert dict(zip(cases, found, strict=True)) == {name: status for name, (status, _) in cases.items()}


def test_every_reason_for_which_an_application_waits() -> None:
    view = view_application(stored())
    synced = Snapshot(view.object, Model((("v1", view.object.digest),), "v1", "b"), now=0.0)
    waiting = {reason: Decision(waits=Announcement(reason, "it waits")) for reason in Wait}
    found = judged(
        stored() | {"status": application_status_of(seen_of(view, synced, decision=item, wadm_status=None))}
        for item in waiting.values()
    )
    failed = {reason for reason, status in zip(waiting, found, strict=True) if status == FAILED}
    assert failed == {Wait.DUPLICATE}, "no other wait needs a change of the object"
    assert {*found} == {IN_PROGRESS, FAILED}


def test_every_reason_for_which_wadm_refuses_an_application() -> None:
    view = view_application(stored())
    synced = Snapshot(view.object, Model((("v1", view.object.digest),), "v1", "b"), now=0.0)
    refused = [Refused(view.object.digest, undeploy=False, refusal=refusal, message="no") for refusal in Refusal]
    seen = [seen_of(view, synced, wadm_status=None, refused=item) for item in refused]
    found = dict(zip(Refusal, judged(stored() | {"status": application_status_of(item)} for item in seen), strict=True))
    passing = {Refusal.FAILED, Refusal.VERSION_EXISTS, Refusal.VERSION_MISSING}
    assert found == {refusal: IN_PROGRESS if refusal in passing else FAILED for refusal in Refusal}


def test_every_state_of_a_secret_grant() -> None:
    grant: Manifest = {
        "apiVersion": "trellis.dev/v1alpha1",
        "kind": "SecretGrant",
        "metadata": {"namespace": "vault", "name": "g", "uid": "u1", "generation": 1},
        "spec": {"from": [{"namespace": "shop", "lattice": "default"}], "serviceAccounts": ["reader"]},
    }
    groups = frozenset({("shop", "default")})
    cases = {
        "in effect": (CURRENT, grant, groups, Access("a")),
        "no host group": (IN_PROGRESS, grant, frozenset[tuple[str, str]](), Access("a")),
        "account missing": (IN_PROGRESS, grant, groups, Access("a", Reason.NO_ACCOUNT)),
        "not checked": (IN_PROGRESS, grant, groups, Access("a", Reason.NOT_CHECKED)),
        "user not listed": (FAILED, grant, groups, Access("a", Reason.NOT_ALLOWED)),
        "invalid": (FAILED, grant | {"spec": {}}, groups, Access("a")),
    }
    found = judged(
        item | {"status": grant_status_of(view_grant(item), here, [access], {}, (1, AT))}
        for _, item, here, access in cases.values()
    )
    assert dict(zip(cases, found, strict=True)) == {name: status for name, (status, *_) in cases.items()}


def test_each_state_of_an_object_and_one_that_its_service_has_not_seen() -> None:
    plain: Manifest = {"metadata": {"name": "x", "namespace": "team"}}
    assert {*STATUSES} == {*SHOWN} == {*State}
    states = [Health(state, "Reason", "message") for state in State]
    assert judged(with_summary(plain, item) for item in states) == [STATUSES[item.state] for item in states]
    assert {*judged(with_summary(plain, item, seen=0) for item in states)} == {IN_PROGRESS}
