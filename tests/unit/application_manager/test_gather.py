"""What is known of an application before its lattice has told all of it."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from types import SimpleNamespace
from typing import Any, cast

import pytest

from application_manager import gather as gathering
from application_manager.domain.actions import CreateObject, RemoveFinalizer
from application_manager.domain.decide import decide
from application_manager.domain.snapshot import Absence, Base, Model, Standing
from application_manager.domain.views import ApplicationView, view_application
from application_manager.following import Following
from application_manager.gather import Awaited, Key, Known
from application_manager.timings import Timings
from support.wadm.application_objects import stored
from trellis.lattice.domain.group_views import GroupView
from trellis.lattice.domain.replies import Status
from trellis.lattice.domain.store import Proof, StoredModel
from trellis_dev.fakes.fake import FakeKube

MARK = "red/1"
KEY = Key(MARK, "web")
MODEL = StoredModel("web", (("v1", {"metadata": {"name": "web"}, "spec": {"components": []}}),), "v1", 3)


@dataclass
class Store:
    """A store of one lattice."""

    models: dict[str, StoredModel] = field(default_factory=dict)
    bucket: str = "b"
    synced_at: float | None = 1.0
    proof: Proof = Proof.UNKNOWN
    lattice: str = "red"
    why: str = "because"
    silent: str = ""
    unlisted: bool = False

    def find(self, name: str) -> StoredModel | None:
        return self.models.get(name)

    def listed(self, _name: str) -> bool:
        return not self.unlisted

    def absence(self, _name: str) -> Proof:
        return self.proof

    def names(self) -> list[str]:
        return list(self.models)

    def status(self, _name: str) -> Status | None:
        return None


@dataclass
class Lattice:
    """What is followed of one lattice. ``owner``: the cluster that keeps its applications; ours is ``us``."""

    found: Store | None
    own: str | None = "us"

    def store(self, mark: str) -> Store | None:
        return self.found if mark == MARK else None

    def owner(self, _mark: str) -> str | None:
        return self.own

    def ours(self, _mark: str) -> bool:
        return self.own == "us"


def known(lattice: Lattice, *views: ApplicationView) -> Known:
    """Return what is known with one group of hosts, in namespace ``team``."""
    made = Known(FakeKube(), {view.key: view for view in views}, cast("Following", lattice))
    group = GroupView("team", "hosts", "u", "1", deleting=False, lattice=MARK)
    made.by_lattice[MARK] = made.by_place["team"] = {group.key: group}
    for view in views:
        made.by_name.setdefault(view.application, set()).add(view.key)
    return made


def deleted() -> ApplicationView:
    view = view_application(stored(deletionTimestamp="2026-11-01T00:00:00Z"))
    base = Base(view.object.digest, "v1", deployed=True, newest="v1", bucket="b")
    return replace(view, object=replace(view.object, base=base))


UNKNOWN: dict[str, Lattice] = {
    "not followed yet": Lattice(None),
    "not read yet": Lattice(Store(synced_at=None)),
    "silent": Lattice(Store(silent="nobody answers")),
    "not known whose it is": Lattice(Store(), own=None),
}


@pytest.mark.parametrize("lattice", UNKNOWN.values(), ids=UNKNOWN.keys())
def test_nothing_is_done_before_it_is_known_what_wadm_has_and_who_keeps_it(lattice: Lattice) -> None:
    world = known(lattice, deleted()).world(KEY)
    assert world.snapshot.wadm is Absence.AWAY
    assert world.snapshot.standing is Standing.OURS
    assert world.why
    assert decide(world.snapshot).actions == ()


def test_what_wadm_stores_counts_as_listed_while_wadm_may_still_list_it() -> None:
    store = Store({"web": MODEL}, unlisted=True)
    made = known(Lattice(store))
    made.timings = Timings(unlisted=60.0)
    assert cast("Model", made.world(KEY).snapshot.wadm).listed
    assert 0 < (made.listing_due(KEY) or 0.0) <= 60.0
    made.timings = Timings(unlisted=0.0)
    assert not cast("Model", made.world(KEY).snapshot.wadm).listed
    assert made.listing_due(KEY) is None, "a run that is due does not call for another at once"
    store.unlisted = False
    assert cast("Model", made.world(KEY).snapshot.wadm).listed
    assert made.unlisted == {}


def test_an_object_of_another_clusters_lattice_is_let_go_without_a_word_to_wadm() -> None:
    world = known(Lattice(Store({"web": MODEL}), own="them"), deleted()).world(KEY)
    assert world.snapshot.standing is Standing.OTHERS
    assert [type(action) for action in decide(world.snapshot).actions] == [RemoveFinalizer]


@pytest.mark.parametrize(
    ("proof", "absence"), [(Proof.GONE, Absence.GONE), (Proof.LOST, Absence.LOST), (Proof.UNKNOWN, Absence.LOST)]
)
def test_only_what_is_proved_to_be_deleted_is(proof: Proof, absence: Absence) -> None:
    assert known(Lattice(Store(proof=proof))).world(KEY).snapshot.wadm is absence


def test_a_bucket_whose_age_is_not_known_is_taken_for_the_former_one() -> None:
    world = known(Lattice(Store({"web": MODEL}, bucket="")), deleted()).world(KEY)
    assert isinstance(world.snapshot.wadm, Model)
    assert world.snapshot.wadm.bucket == "b"


def test_an_object_without_a_lattice_has_a_key_of_its_own() -> None:
    view = view_application(stored(namespace="elsewhere"))
    found = known(Lattice(Store()), view)
    key = found.key_of(view)
    assert key == Key("", "elsewhere/web")
    world = found.world(key)
    assert (world.view, world.snapshot.standing) == (view, Standing.NO_LATTICE)
    assert "WasmCloudHostConfig" in world.why


def test_of_two_lattices_of_one_name_in_a_namespace_that_of_the_older_group_is_meant() -> None:
    found = known(Lattice(Store({"web": MODEL})))
    older = GroupView("team", "older", "o", "0", deleting=False, lattice="red/other")
    found.by_lattice["red/other"] = {older.key: older}
    found.by_place["team"] = {**found.by_place["team"], older.key: older}
    world = found.world(KEY)
    assert world.snapshot.standing is Standing.NO_LATTICE
    assert decide(world.snapshot).actions == (), "an object here would be the other lattice's"
    elsewhere = GroupView("away", "hosts", "u2", "9", deleting=False, lattice=MARK)
    found.by_lattice[MARK] = {**found.by_lattice[MARK], elsewhere.key: elsewhere}
    found.by_place["away"] = {elsewhere.key: elsewhere}
    world = found.world(KEY)
    assert world.home == "away"
    assert [type(action) for action in decide(world.snapshot).actions] == [CreateObject]


def test_of_two_objects_the_oldest_is_the_application() -> None:
    first = view_application(stored("web", creationTimestamp="2026-01-01T00:00:00Z"))
    second = replace(view_application(stored("other")), application="web")
    world = known(Lattice(Store()), second, first).world(KEY)
    assert world.view == first
    assert world.others == (second,)


@pytest.mark.parametrize(
    ("awaited", "model", "shown"),
    [
        ({"version": "v2", "deployed": None, "gone": False}, MODEL, False),
        ({"version": "v1", "deployed": "v1", "gone": False}, MODEL, True),
        ({"version": None, "deployed": "", "gone": False}, MODEL, False),
        ({"version": None, "deployed": None, "gone": True}, MODEL, False),
        ({"version": None, "deployed": None, "gone": True}, None, True),
        ({"version": "v1", "deployed": None, "gone": False}, None, False),
    ],
)
def test_a_store_that_does_not_show_what_wadm_acknowledged_is_awaited(
    awaited: dict[str, Any], model: StoredModel | None, shown: bool
) -> None:
    found = known(Lattice(Store({} if model is None else {"web": model})))
    found.awaited[KEY] = Awaited(**awaited, until=float("inf"))
    assert (found.awaits(found.world(KEY)) is None) is shown
    assert (KEY in found.awaited) is not shown


def test_a_version_put_beside_the_one_that_runs_may_be_deployed_for_a_moment(monkeypatch: pytest.MonkeyPatch) -> None:
    clock = [100.0]
    monkeypatch.setattr(gathering, "time", SimpleNamespace(monotonic=lambda: clock[0], time=lambda: 5.0))
    newer = replace(MODEL, versions=(*MODEL.versions, ("v2", {"metadata": {"name": "web"}, "spec": {}})))
    store = Store({"web": newer})
    found = known(Lattice(store))

    def unsettled() -> float:
        return found.world(KEY).snapshot.unsettled

    assert unsettled() == Timings().settle
    clock[0] += 4
    assert unsettled() == Timings().settle - 4
    store.models["web"] = replace(newer, versions=(*newer.versions, ("v3", {"metadata": {"name": "web"}, "spec": {}})))
    assert unsettled() == Timings().settle, "another one was put"
    clock[0] += Timings().settle + 1
    assert unsettled() == 0
    store.models["web"] = replace(store.models["web"], deployed="v3")
    assert unsettled() == 0
    assert found.put == {}


@pytest.mark.parametrize(("told", "kept"), [("v1", {KEY: "v1"}), ("v9", {}), ("", {})])
def test_what_wadm_was_told_is_forgotten_once_it_has_something_else(told: str, kept: dict[Key, str]) -> None:
    found = known(Lattice(Store({"web": MODEL})))
    found.told[KEY], found.awaited[KEY] = told, Awaited(None, None, gone=False, until=float("-inf"))
    assert found.awaits(found.world(KEY)) is None
    assert found.told == kept
