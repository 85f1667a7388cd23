"""A group without children yet: what is done first, what may wait, and for how long."""

from __future__ import annotations

from dataclasses import replace
from typing import Any, cast

import pytest

from host_manager import gather
from host_manager.domain.children import fingerprint
from host_manager.domain.decide import ApplyChild, SetFinalizers, WriteStatus, decide, first_half, may_be_refused
from host_manager.domain.group import ADOPTED, LATEST
from host_manager.domain.inputs import Problem
from host_manager.domain.snapshot import Snapshot
from host_manager.gather import Cache
from trellis.kube.client import Kube
from unit.host_manager.test_decide import ALL_KINDS, children, condition, kinds, snapshot, with_spec


def fresh(**changes: Any) -> Snapshot:
    """Return a group of which nothing is there, not even a finalizer."""
    cache = snapshot(fresh=True, early=True)
    return replace(cache, head=replace(cache.head, finalizers=()), **changes)


def a_known() -> Cache:
    return Cache(cast("Kube", None), {}, {}, 60.0)


def test_a_new_group_is_created_without_an_empty_status() -> None:
    actions = decide(fresh())
    assert isinstance(actions[0], SetFinalizers), "it comes before what it is to keep track of"
    assert kinds(actions) == ALL_KINDS
    assert len(actions) == 1 + len(ALL_KINDS)


def test_an_invalid_new_group_is_reported_at_once() -> None:
    actions = decide(fresh(problems=(Problem("SecretMissing", "Secret g/creds is missing"),)))
    assert kinds(actions) == []
    assert condition(actions, "Degraded")["reason"] == "SecretMissing"


def test_the_first_half_ends_with_what_runs_the_pods() -> None:
    assert kinds(first_half(decide(fresh()))) == ["ConfigMap", "ServiceAccount", "Deployment"]


def test_a_half_without_pods_is_all_there_is_to_do() -> None:
    blocked = decide(fresh(problems=(Problem("SecretMissing", "it is missing"),)))
    assert first_half(blocked) == blocked


def test_the_second_half_writes_what_the_first_did_not() -> None:
    done = [action.wanted for action in first_half(decide(fresh())) if isinstance(action, ApplyChild)]
    applied = {(child["kind"], child["metadata"]["name"]): (fingerprint(child), "") for child in done}
    assert kinds(decide(snapshot(fresh=True, early=True, applied=applied))) == ALL_KINDS[3:]
    changed = with_spec(leafNodeDomain="other")
    rest = decide(snapshot(fresh=True, early=True, applied=applied, group=changed))
    assert "ConfigMap" in kinds(rest), "what is to be otherwise by now is written again"


@pytest.mark.parametrize(("seen", "written"), [(None, False), (0, False), (1, True)])
def test_the_first_status_waits_for_the_pods_controller(seen: int | None, written: bool) -> None:
    found = children()
    if seen is not None:
        found["Deployment", "group"]["status"] = {"observedGeneration": seen}
    actions = decide(snapshot(children=found, glance=True, early=True))
    assert (actions != []) == written
    assert decide(snapshot(children=found, glance=True)) != [], "and no longer than that"


def test_the_first_status_equals_that_of_a_full_reconciliation() -> None:
    found = children()
    found["Deployment", "group"]["status"] = {"observedGeneration": 1}
    [first] = decide(snapshot(children=found, glance=True, early=True))
    assert isinstance(first, WriteStatus)
    assert first.status["templateRevision"] == LATEST
    assert decide(snapshot(children=found, status=first.status)) == [], "nothing changed: no write"


def test_a_glance_leaves_the_revision_that_a_look_found() -> None:
    former = children(revision=ADOPTED)
    [written] = decide(snapshot(children=former, glance=True, status={"templateRevision": LATEST}))
    assert isinstance(written, WriteStatus)
    assert written.status["templateRevision"] == LATEST


def test_a_reconciled_group_yields_to_groups_never_reconciled(monkeypatch: pytest.MonkeyPatch) -> None:
    clock = [100.0]
    monkeypatch.setattr(gather.time, "monotonic", lambda: clock[0])
    cache, group = a_known(), fresh()
    cache.half_created(group)
    assert not cache.gives_way(group.head.key), "nobody waits"
    cache.waiting.add("g/other")
    assert cache.gives_way(group.head.key)
    clock[0] += cache.timings.half_created + 1
    assert not cache.gives_way(group.head.key)


def test_a_status_that_is_due_gives_way_no_more(monkeypatch: pytest.MonkeyPatch) -> None:
    clock = [100.0]
    monkeypatch.setattr(gather.time, "monotonic", lambda: clock[0])
    cache, group = a_known(), fresh()
    cache.knows(group)
    cache.waiting.add("g/other")
    assert cache.gives_way(group.head.key)
    clock[0] += cache.timings.first_status + 0.1
    assert not cache.gives_way(group.head.key)


@pytest.mark.parametrize(
    ("spec", "tried"),
    [
        ({}, False),
        ({"hostLabels": {"zone": "a"}}, False),
        ({"schedulingOptions": {"daemonset": True}}, False),
        ({"schedulingOptions": {"resources": {"nats": {"requests": {"cpu": "1"}}}}}, True),
        ({"schedulingOptions": {"podTemplateAdditions": {"nodeSelector": {"a": "b"}}}}, True),
        ({"schedulingOptions": {"containerTemplateAdditions": {"nats": {"env": []}}}}, True),
        ({"certificates": {"authorities": [{"name": "ca", "secret": {"secretName": "ca"}}]}}, True),
    ],
)
def test_only_options_that_users_write_into_pods_are_tried_first(spec: dict[str, Any], tried: bool) -> None:
    assert may_be_refused(fresh(group=with_spec(**spec))) == tried
