"""The status of a host group about its lattice's applications."""

from __future__ import annotations

from dataclasses import replace
from types import SimpleNamespace
from typing import Any, cast

import pytest

from application_manager import freshness
from application_manager.cache import Cache
from application_manager.freshness import GroupConditions, Verdict, verdict_of, with_condition
from application_manager.lattice_followers import LatticeFollowers
from application_manager.permissions import MANIFEST, remedy
from support.suite.naming import lacking
from trellis import names
from trellis.kube.errors import Forbidden
from trellis.kube.informer import Change, ChangeKind
from trellis.kube.permissions import MissingPermissions
from trellis.kube.resources import HOST_CONFIGS
from trellis.lattice.domain.group_views import view_group
from trellis.lattice.domain.store import AbsenceReason, ModelStore, StoredModel
from trellis.telemetry.health import Health
from trellis_dev.fakes.fake import FakeKube, status_reply

NOW, LATER = "2026-01-01T00:00:00Z", "2026-01-01T00:10:00Z"
READY = {"type": "Ready", "status": "True", "reason": "AllUp", "message": ""}


class Store:
    lattice, bucket = "default", "1"

    def __init__(self, synced_at: float | None, reason: str = "", unavailable: str = "") -> None:
        self.synced_at = synced_at
        self.reason = reason
        self.unavailable = unavailable

    def find(self, name: str) -> StoredModel | None:
        raise AssertionError(name)

    def listed(self, name: str) -> bool:
        raise AssertionError(name)

    def absence(self, name: str) -> AbsenceReason:
        raise AssertionError(name)

    def names(self) -> list[str]:
        raise AssertionError

    def status(self, name: str) -> None:
        raise AssertionError(name)


UNREAD, SYNCED, POOR = Store(None, "connection lost"), Store(1.0), Store(1.0, "the user may not read the storage")
UNAVAILABLE = Store(1.0, unavailable="nobody answers")


@pytest.mark.parametrize(
    ("store", "owner", "owned", "expected"),
    [
        (None, None, False, ("Unknown", "NotFollowed")),
        (UNREAD, "here", True, ("Unknown", "WadmUnavailable")),
        (UNREAD, None, False, ("Unknown", "WadmUnavailable")),
        (UNAVAILABLE, "here", True, ("Unknown", "WadmUnavailable")),
        (SYNCED, None, False, ("Unknown", "OwnerUnknown")),
        (SYNCED, "there", False, ("True", "ReadOnly")),
        (POOR, "here", True, ("True", "DeletionsNotDetected")),
        (SYNCED, "here", True, ("True", "Synced")),
    ],
)
def test_each_state_of_a_lattice_has_its_status_and_reason(
    store: ModelStore | None, owner: str, owned: bool, expected: tuple[str, str]
) -> None:
    found = verdict_of(store, owner, owned=owned)
    assert (found.status, found.reason) == expected
    for part in (
        store.reason or store.unavailable if store is not None else "",
        owner if expected[1] == "ReadOnly" else "",
    ):
        assert part in found.message


def test_the_condition_is_added_beside_those_of_others() -> None:
    found = with_condition([READY], Verdict("True", "Synced", "all"), NOW, 1)
    condition = {"type": names.CONDITION_APPLICATIONS_SYNCED, "status": "True", "reason": "Synced", "message": "all"}
    assert found == [READY, condition | {"lastTransitionTime": NOW, "observedGeneration": 1}]


def test_a_current_condition_causes_no_write() -> None:
    verdict = Verdict("True", "Synced", "all")
    found: list[dict[str, Any]] | None = with_condition([READY], verdict, NOW, 1)
    assert found is not None
    assert with_condition(found, verdict, LATER, 1) is None
    assert with_condition(found, verdict, LATER, 2) is not None, "it is about the new generation"


def test_the_time_is_that_of_the_last_change_of_status() -> None:
    found = with_condition([READY], Verdict("Unknown", "NotFollowed", ""), NOW, 1)
    assert found is not None
    other = with_condition(found, Verdict("Unknown", "WadmUnavailable", "gone"), LATER, 1)
    assert other is not None
    assert other[1]["lastTransitionTime"] == NOW
    back = with_condition(other, Verdict("True", "Synced", ""), LATER, 1)
    assert back is not None
    assert back[1]["lastTransitionTime"] == LATER
    assert len(back) == 2


def telling(kube: FakeKube, health: Health, *, remove_finalizers: bool = False) -> GroupConditions:
    """Return what tells every group there is of a lattice that is there."""
    followers = SimpleNamespace(store=lambda _: SYNCED, owner=lambda _: "here", owns=lambda _: True)
    groups = [view_group(item) for item in kube.objects(HOST_CONFIGS)]
    cache = SimpleNamespace(
        followers=followers, groups_to_follow=lambda _: groups, means=lambda *_: True, end_outage=lambda _: None
    )
    return GroupConditions(kube, cast("Cache", cache), MissingPermissions(health, remedy), remove_finalizers)


async def test_missing_permission_to_write_the_status_makes_the_service_not_ready_until_granted() -> None:
    kube, health = FakeKube(), Health("application_manager")
    manifest = {"metadata": {"name": "group", "namespace": "default"}, "spec": {}}
    kube.put(HOST_CONFIGS, manifest | {"status": {"apps": [], "app_count": 0, "conditions": [READY]}})
    reconciler = telling(kube, health)
    message = (
        'wasmcloudhostconfigs.k8s.wasmcloud.dev "group" is forbidden: User "me" cannot patch resource '
        '"wasmcloudhostconfigs/status" in API group "k8s.wasmcloud.dev" in the namespace "default"'
    )
    kube.answer_next(
        1,
        lambda _: status_reply(403, "Forbidden", message),
        when=lambda request: request.method == "PATCH" and request.path.endswith("/status"),
    )
    with pytest.raises(Forbidden):
        await reconciler.run("red/1", None)
    [reason] = health.readiness().reasons
    assert (
        lacking(reason, "me", "patch wasmcloudhostconfigs.k8s.wasmcloud.dev/status", "namespace default", MANIFEST)
        == []
    )
    assert await reconciler.run("red/1", None) is None
    assert health.readiness().reasons == ()


async def test_a_condition_is_written_on_a_group_with_a_status_and_only_once_until_released() -> None:
    kube = FakeKube()
    manifest = {"metadata": {"name": "group", "namespace": "default"}, "spec": {}}
    kube.put(HOST_CONFIGS, manifest)
    health = Health("application_manager")
    reconciler = telling(kube, health)
    assert await reconciler.run("mark", None) == 5.0
    assert kube.writes == []
    [found] = kube.objects(HOST_CONFIGS)
    kube.put(HOST_CONFIGS, found | {"status": {"apps": [], "app_count": 0, "conditions": [READY]}})
    assert await reconciler.run("mark", None) is None
    [found] = kube.objects(HOST_CONFIGS)
    conditions = {condition["type"]: condition["status"] for condition in found["status"]["conditions"]}
    assert conditions == {"Ready": "True", names.CONDITION_APPLICATIONS_SYNCED: "True"}
    assert await reconciler.run("mark", None) is None
    assert len(kube.writes) == 1
    assert await telling(kube, health, remove_finalizers=True).run("mark", None) is None
    [found] = kube.objects(HOST_CONFIGS)
    assert found["status"]["conditions"] == [READY]


async def test_a_lattice_that_comes_back_after_its_last_group_went_has_the_whole_delay_again(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    kube, lattice_id, now = FakeKube(), "red/1", 1000.0
    manifest = {"metadata": {"name": "group", "namespace": "default"}, "spec": {}}
    kube.put(HOST_CONFIGS, manifest | {"status": {"apps": [], "app_count": 0, "conditions": [READY]}})
    group = replace(view_group(kube.objects(HOST_CONFIGS)[0]), lattice=lattice_id)
    followers = SimpleNamespace(store=lambda _: UNAVAILABLE, owner=lambda _: "here", owns=lambda _: True)
    cache = Cache({}, cast("LatticeFollowers", followers))
    reconciler = GroupConditions(kube, cache, MissingPermissions(Health("application_manager"), remedy))
    monkeypatch.setattr(freshness, "time", SimpleNamespace(monotonic=lambda: now))
    cache.group_changed(Change(ChangeKind.ADDED, group.key, None, group))
    assert await reconciler.run(lattice_id, None) == 5.0
    cache.group_changed(Change(ChangeKind.DELETED, group.key, group, None))
    assert await reconciler.run(lattice_id, None) is None
    assert cache._unavailable_since == {}
    now += 3600.0
    cache.group_changed(Change(ChangeKind.ADDED, group.key, None, group))
    assert await reconciler.run(lattice_id, None) == 5.0
    assert kube.writes == []
    now += 5.0
    assert await reconciler.run(lattice_id, None) is None
    [found] = kube.objects(HOST_CONFIGS)
    assert found["status"]["conditions"][-1]["reason"] == "WadmUnavailable"
