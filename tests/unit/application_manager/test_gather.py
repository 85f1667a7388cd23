"""The snapshot of a run, also before its lattice has reported all of it."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from types import SimpleNamespace
from typing import Any, cast

import pytest

from application_manager import gather as gathering
from application_manager.cache import Cache
from application_manager.domain.actions import CreateObject, RemoveFinalizer
from application_manager.domain.decide import decide
from application_manager.domain.progress import SETTLED, Awaited, Progress
from application_manager.domain.sides import Absence, Base, Model, Standing
from application_manager.domain.snapshot import Duty, Snapshot
from application_manager.domain.views import ApplicationView, Key, view_application
from application_manager.gather import Gather
from application_manager.lattice_followers import LatticeFollowers
from application_manager.timings import Timings
from application_manager.tombstones import Tombstones
from support.wadm.application_objects import stored
from trellis.kube.informer import Change, ChangeKind
from trellis.lattice.domain.group_views import GroupView
from trellis.lattice.domain.replies import Status
from trellis.lattice.domain.store import AbsenceReason, StoredManifest, StoredModel
from trellis.provisioning.other_controllers import Controller, Peer
from trellis_dev.fakes.fake import FakeKube

MARK = "red/1"
KEY = Key(MARK, "web")
NAMED = {"metadata": {"name": "web"}}
MODEL = StoredModel("web", (("v1", StoredManifest.of(NAMED | {"spec": {"components": []}})),), "v1", 3)
NEWER = StoredManifest.of(NAMED | {"spec": {}})


@dataclass
class Store:
    """A store of one lattice."""

    models: dict[str, StoredModel] = field(default_factory=dict)
    bucket: str = "b"
    synced_at: float | None = 1.0
    proof: AbsenceReason = AbsenceReason.UNKNOWN
    lattice: str = "red"
    reason: str = "because"
    unavailable: str = ""
    unlisted: bool = False

    def find(self, name: str) -> StoredModel | None:
        return self.models.get(name)

    def listed(self, _name: str) -> bool:
        return not self.unlisted

    def absence(self, _name: str) -> AbsenceReason:
        return self.proof

    def names(self) -> list[str]:
        return list(self.models)

    def status(self, _name: str) -> Status | None:
        return None


@dataclass
class Lattice:
    """The followed state of one lattice. ``owner``: the cluster that owns its applications; this one is ``us``."""

    found: Store | None
    own: str | None = "us"

    def store(self, lattice_id: str) -> Store | None:
        return self.found if lattice_id == MARK else None

    def owner(self, _mark: str) -> str | None:
        return self.own

    def owns(self, _mark: str) -> bool:
        return self.own == "us"


@dataclass
class Buried:
    """Tombstones. ``queries``: for each question whether there is one, wadm's entry."""

    holding: bool = False
    queries: list[tuple[str, str, str, int]] = field(default_factory=list)

    async def holds(self, *of: Any) -> bool:
        self.queries.append(of)
        return self.holding


@dataclass
class World:
    """One run after the other, with one group of hosts in namespace ``team``."""

    cache: Cache
    tombstones: Buried = field(default_factory=Buried)
    timings: Timings = field(default_factory=Timings)
    groups_known: bool = True
    applications_known: bool = True
    remove_finalizers: bool = False

    def group(self, group: GroupView) -> None:
        self.cache.group_changed(Change(ChangeKind.ADDED, group.key, None, group))

    async def run(self, key: Key = KEY) -> Snapshot:
        """Return what a run gathers, with what that is remembered of it."""
        gather = Gather(
            *(FakeKube(), self.cache, cast("Tombstones", self.tombstones)),
            *(lambda: self.groups_known, lambda: self.applications_known),
            *(self.remove_finalizers, self.timings),
        )
        before = self.cache.progress(key)
        snapshot = await gather.snapshot(key)
        assert self.cache.progress(key) == before, "it changed something"
        self.cache.advance(key, lambda _: snapshot.progress)
        return snapshot


def world(lattice: Lattice, *views: ApplicationView) -> World:
    made = World(Cache({view.key: view for view in views}, cast("LatticeFollowers", lattice)))
    made.group(GroupView("team", "hosts", "u", "1", deleting=False, lattice=MARK))
    for view in views:
        made.cache.application_changed(Change(ChangeKind.ADDED, view.key, None, view))
    return made


def deleted() -> ApplicationView:
    view = view_application(stored(deletionTimestamp="2026-11-01T00:00:00Z"))
    base = Base(view.object.digest, "v1", deployed=True, newest="v1", bucket="b")
    return replace(view, object=replace(view.object, base=base))


UNKNOWN: dict[str, Lattice] = {
    "not followed yet": Lattice(None),
    "not read yet": Lattice(Store(synced_at=None)),
    "silent": Lattice(Store(unavailable="nobody answers")),
    "not known whose it is": Lattice(Store(), own=None),
}


@pytest.mark.parametrize("lattice", UNKNOWN.values(), ids=UNKNOWN.keys())
async def test_no_action_is_taken_before_the_applications_and_owners_in_wadm_are_known(lattice: Lattice) -> None:
    found = await world(lattice, deleted()).run()
    assert found.wadm is Absence.UNAVAILABLE
    assert found.standing is Standing.OWNED
    assert found.reason
    assert decide(found).actions == ()


async def test_nothing_is_done_before_it_is_known_which_groups_there_are() -> None:
    made = world(Lattice(Store({"web": MODEL})), deleted())
    made.groups_known = False
    found = await made.run()
    assert (found.wadm, found.standing) == (Absence.UNAVAILABLE, Standing.OWNED)
    assert decide(found).actions == ()


async def test_a_stored_model_counts_as_listed_while_wadm_may_still_list_it() -> None:
    store = Store({"web": MODEL}, unlisted=True)
    made = world(Lattice(store))
    made.timings = Timings(unlisted=60.0)
    found = await made.run()
    assert cast("Model", found.wadm).listed
    assert 0 < (found.progress.listing_due(found.monotonic, made.timings) or 0.0) <= 60.0
    made.timings = Timings(unlisted=0.0)
    found = await made.run()
    assert not cast("Model", found.wadm).listed
    assert found.progress.listing_due(found.monotonic, made.timings) is None, "a run does not call for another at once"
    store.unlisted = False
    found = await made.run()
    assert cast("Model", found.wadm).listed
    assert found.progress.unlisted_since is None


async def test_an_object_of_another_clusters_lattice_loses_its_finalizer_without_a_request_to_wadm() -> None:
    found = await world(Lattice(Store({"web": MODEL}), own="them"), deleted()).run()
    assert found.standing is Standing.OWNED_BY_OTHER
    assert [type(action) for action in decide(found).actions] == [RemoveFinalizer]


@pytest.mark.parametrize(
    ("proof", "absence"),
    [
        (AbsenceReason.DELETED, Absence.DELETED),
        (AbsenceReason.LOST, Absence.LOST),
        (AbsenceReason.UNKNOWN, Absence.LOST),
    ],
)
async def test_only_verified_deletions_count(proof: AbsenceReason, absence: Absence) -> None:
    assert (await world(Lattice(Store(proof=proof))).run()).wadm is absence


async def test_a_bucket_whose_age_is_not_known_is_taken_for_the_former_one() -> None:
    found = await world(Lattice(Store({"web": MODEL}, bucket="")), deleted()).run()
    assert isinstance(found.wadm, Model)
    assert found.wadm.bucket == "b"


async def test_an_object_without_a_lattice_has_a_key_of_its_own() -> None:
    view = view_application(stored(namespace="elsewhere"))
    made = world(Lattice(Store()), view)
    key = made.cache.key_of(view)
    assert key == Key("", "elsewhere/web")
    found = await made.run(key)
    assert (found.view, found.standing) == (view, Standing.NO_LATTICE)
    assert "WasmCloudHostConfig" in found.reason


async def test_of_two_lattices_of_one_name_in_a_namespace_that_of_the_older_group_is_meant() -> None:
    made = world(Lattice(Store({"web": MODEL})))
    made.group(GroupView("team", "older", "o", "0", deleting=False, lattice="red/other"))
    found = await made.run()
    assert found.standing is Standing.NO_LATTICE
    assert decide(found).actions == (), "an object here would be the other lattice's"
    made.group(GroupView("away", "hosts", "u2", "9", deleting=False, lattice=MARK))
    found = await made.run()
    assert found.home == "away"
    assert [type(action) for action in decide(found).actions] == [CreateObject]


async def test_of_two_objects_the_oldest_is_the_application() -> None:
    first = view_application(stored("web", creationTimestamp="2026-01-01T00:00:00Z"))
    second = replace(view_application(stored("other")), application="web")
    found = await world(Lattice(Store()), second, first).run()
    assert found.view == first
    assert found.others == (second,)


@pytest.mark.parametrize("buried", [True, False])
async def test_a_model_without_an_object_is_looked_up_among_the_tombstones(buried: bool) -> None:
    made = world(Lattice(Store({"web": MODEL})))
    made.tombstones.holding = buried
    assert (await made.run()).tombstone is buried
    assert made.tombstones.queries == [("red", "web", "b", 3)]


@pytest.mark.parametrize(
    "progress",
    [Progress(removed=deleted()), Progress(awaited=Awaited(None, None, deleted=True, until=float("inf")))],
    ids=["finalizer removed", "awaited"],
)
async def test_tombstones_are_read_only_where_an_object_may_be_made(progress: Progress) -> None:
    made = world(Lattice(Store({"web": MODEL})))
    made.cache.advance(KEY, lambda _: progress)
    await made.run()
    assert made.tombstones.queries == []


@pytest.mark.parametrize(
    ("changes", "duty"),
    [
        ({}, Duty.RECONCILE),
        ({"applications_known": False}, Duty.STAND_BY),
        ({"controller": Controller(Peer.WASMCLOUD_OPERATOR, "ns", "other", "u")}, Duty.STAND_BY),
        ({"applications_known": False, "remove_finalizers": True}, Duty.REMOVE_FINALIZERS),
    ],
    ids=["none", "the kind is not served", "another controller is active", "to be uninstalled"],
)
async def test_a_run_gathers_what_this_process_may_do(changes: dict[str, Any], duty: Duty) -> None:
    made = world(Lattice(Store({"web": MODEL})), deleted())
    made.cache.controller = changes.pop("controller", None)
    found = await replace(made, **changes).run()
    assert found.duty is duty
    assert (found.wadm is Absence.UNAVAILABLE) is (duty is not Duty.RECONCILE)


@pytest.mark.parametrize(("model", "left"), [(MODEL, SETTLED), (None, Progress(requested="v1"))])
async def test_a_run_remembers_what_wadms_storage_shows(model: StoredModel | None, left: Progress) -> None:
    made = world(Lattice(Store({} if model is None else {"web": model})))
    acknowledged = Awaited(None, None, deleted=False, until=float("-inf"))
    requested = "v9" if model is not None else "v1"
    made.cache.advance(KEY, lambda _: Progress(awaited=acknowledged, requested=requested))
    assert (await made.run()).progress == left


async def test_a_version_put_beside_the_one_that_runs_may_be_deployed_for_a_moment(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    clock = [100.0]
    monkeypatch.setattr(gathering, "time", SimpleNamespace(monotonic=lambda: clock[0], time=lambda: 5.0))
    newer = replace(MODEL, versions=(*MODEL.versions, ("v2", NEWER)))
    store = Store({"web": newer})
    made = world(Lattice(store))

    async def unsettled() -> float:
        return (await made.run()).unsettled

    assert await unsettled() == Timings().settle
    clock[0] += 4
    assert await unsettled() == Timings().settle - 4
    store.models["web"] = replace(newer, versions=(*newer.versions, ("v3", NEWER)))
    assert await unsettled() == Timings().settle, "another one was put"
    clock[0] += Timings().settle + 1
    assert await unsettled() == 0
    store.models["web"] = replace(store.models["web"], deployed="v3")
    assert await unsettled() == 0
    assert made.cache.progress(KEY) == SETTLED
