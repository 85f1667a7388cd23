"""The cache after changes of watches and runs."""

from __future__ import annotations

from dataclasses import replace
from typing import Any, cast

import pytest

from application_manager.cache import Cache
from application_manager.domain.actions import Announcement, Deploy, Reason
from application_manager.domain.progress import SETTLED, Progress, State
from application_manager.domain.views import ApplicationView, Key, view_application
from application_manager.lattice_followers import LatticeFollowers
from support.wadm.application_objects import stored
from trellis.kube.informer import Change, ChangeKind
from trellis.lattice.domain.group_views import GroupView

MARK = "red/1"
KEY = Key(MARK, "web")
VIEW = view_application(stored())
AGAIN = replace(VIEW, uid="another")
GROUP = GroupView("team", "hosts", "u", "1", deleting=False, lattice=MARK)


def changed(old: Any, new: Any) -> Change[Any]:
    kind = ChangeKind.ADDED if old is None else ChangeKind.DELETED if new is None else ChangeKind.MODIFIED
    return Change(kind, (old or new).key, old, new)


@pytest.fixture
def cache() -> Cache:
    """One lattice and its application."""
    made = Cache({VIEW.key: VIEW}, cast("LatticeFollowers", None))
    made.group_changed(changed(None, GROUP))
    made.application_changed(changed(None, VIEW))
    return made


@pytest.mark.parametrize("new", [None, AGAIN], ids=["deleted", "deleted and made again unobserved"])
def test_the_deletion_of_an_object_with_its_finalizer_is_a_forced_removal(
    cache: Cache, new: ApplicationView | None
) -> None:
    cache.application_changed(changed(VIEW, new))
    assert cache.progress(KEY) == Progress(removed=VIEW)


def test_the_deletion_of_an_object_after_its_finalizer_was_removed_is_no_forced_removal(cache: Cache) -> None:
    cache.releasing(VIEW.uid)
    cache.application_changed(changed(VIEW, None))
    assert cache.progress(KEY) == SETTLED
    cache.application_changed(changed(VIEW, None))
    assert cache.progress(KEY).state is State.FINALIZER_REMOVED, "that holds for one object"


def test_one_that_stays_under_another_finalizer_has_lost_that_of_trellis(cache: Cache) -> None:
    deleting = replace(VIEW, object=replace(VIEW.object, deleting=True))
    without = replace(deleting, object=replace(deleting.object, finalizer=False))
    cache.application_changed(changed(deleting, without))
    assert cache.progress(KEY) == Progress(removed=deleting)


@pytest.mark.parametrize("refused", [False, True], ids=["it has our finalizer again", "the write was refused"])
def test_an_object_that_stayed_after_all_may_lose_its_finalizer_later(cache: Cache, *, refused: bool) -> None:
    cache.releasing(VIEW.uid)
    if not refused:
        without = replace(VIEW, object=replace(VIEW.object, finalizer=False))
        cache.application_changed(changed(VIEW, without))
        cache.application_changed(changed(without, VIEW))
    else:
        cache.not_released(VIEW.uid)
    cache.application_changed(changed(VIEW, None))
    assert cache.progress(KEY).state is State.FINALIZER_REMOVED


def test_accepting_one_removal_forgets_no_other(cache: Cache) -> None:
    other = cache.advance(KEY, lambda progress: progress.removed_by_user(AGAIN))
    assert other.removal_accepted(VIEW) == other
    assert other.removal_accepted(AGAIN) == SETTLED


def test_a_change_or_a_deletion_without_its_finalizer_is_no_forced_removal(cache: Cache) -> None:
    cache.application_changed(changed(VIEW, replace(VIEW, generation=2)))
    cache.application_changed(changed(replace(VIEW, object=replace(VIEW.object, finalizer=False)), None))
    assert cache.progress(KEY) == SETTLED


def test_an_application_is_found_by_its_name_in_wadm_while_it_has_that_name(cache: Cache) -> None:
    assert cache.objects_of(KEY) == [VIEW]
    renamed = cache.applications[VIEW.key] = replace(VIEW, application="shop")
    cache.application_changed(changed(VIEW, renamed))
    assert cache.objects_of(KEY) == []
    assert cache.objects_of(Key(MARK, "shop")) == [renamed]


def test_a_lattice_has_the_groups_that_name_it_now(cache: Cache) -> None:
    moved = replace(GROUP, lattice="blue/1")
    cache.group_changed(changed(GROUP, moved))
    assert (list(cache.groups_of(MARK)), list(cache.groups_of("blue/1").values())) == ([], [moved])
    assert list(cache.groups_in("team")) == [moved]
    cache.group_changed(changed(moved, None))
    assert list(cache.groups_in("team")) == []
    assert cache.key_of(VIEW) == Key("", "team/web")


def test_an_application_deleted_on_both_sides_leaves_no_record(cache: Cache) -> None:
    cache.advance(KEY, lambda progress: progress.with_request(Deploy(Announcement(Reason.APPLIED, ""), "v1")))
    assert cache.progress(KEY).requested == "v1"
    cache.deleted(KEY)
    assert cache._progress == {}


def test_a_lattice_is_unavailable_since_it_did_not_answer_first(cache: Cache) -> None:
    assert [cache.unavailable(MARK, now) for now in (10.0, 11.0)] == [10.0, 10.0]
    cache.end_outage(MARK)
    assert cache.unavailable(MARK, 12.0) == 12.0
