"""Histories of both sides, with restarts and lost buckets: both end equal, and nothing is lost or undeployed by us.

The oracle is a model of the nine rules that knows no versions and no base: what both had, what each has, who counts.
"""

from __future__ import annotations

import contextlib
from collections.abc import Sequence
from dataclasses import dataclass

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from application_manager.domain.actions import DeleteModel, DeleteObject, RemoveFinalizer, Undeploy
from support.wadm.two_sides import Killed, Step, TwoSides

State = tuple[str, bool] | None
QUIET = 3600.0
DIGESTS = st.sampled_from(["a" * 64, "b" * 64, "c" * 64])
VERSIONS = st.sampled_from(["", "v1", "v2", "v3"])
WASH_VERSIONS = st.sampled_from(["v1", "v2", "v3", "w1", "w2"])

KUBERNETES: st.SearchStrategy[Step] = st.one_of(
    st.builds(lambda digest, version: lambda world: world.apply(digest, version), DIGESTS, VERSIONS),
    st.builds(lambda undeploy: lambda world: world.mark(undeploy), st.booleans()),
    st.just(lambda world: world.delete()),
)
WASH: st.SearchStrategy[Step] = st.one_of(
    st.builds(lambda digest, version: lambda world: world.put(digest, version), DIGESTS, WASH_VERSIONS),
    st.builds(lambda version: lambda world: world.deploy(version), WASH_VERSIONS),
    st.just(lambda world: world.undeploy()),
    st.just(lambda world: world.purge()),
    st.just(lambda world: world.lose()),
)
DEATHS = st.lists(st.integers(min_value=0, max_value=4), max_size=4)


def settle(world: TwoSides, deaths: Sequence[int] = ()) -> State:
    """Let application_manager be killed and started again, and then finish; return what both sides have."""
    world.unavailable = False
    for survive in deaths:
        with contextlib.suppress(Killed):
            world.sync(survive)
    world.now += QUIET  # nobody is in a contest any more
    world.sync()
    done = len(world.log)
    world.sync()
    assert len(world.log) == done, "work without a change"
    return world.state()


@dataclass(frozen=True)
class Oracle:
    """The rules for a time in which users changed both sides and no controller synchronised them."""

    before: State
    base_undeploy: bool
    base_version: str
    base_newest: str
    bucket: str

    def expected(self, world: TwoSides) -> State:
        found, model = world.object, world.model
        if found is not None and found.deleting:
            return None
        theirs = self._theirs(world)
        if found is None:
            return theirs
        if self.before is None:
            return found.digest, not found.undeploy
        changed = (found.digest, found.undeploy) != (self.before[0], self.base_undeploy)
        ours = (found.digest, not found.undeploy if changed else self.before[1])
        if world.lost if model is None else world.bucket != self.bucket and not model.deployed:
            return ours
        if theirs == self.before or (changed and found.others):
            return ours
        return theirs

    def _theirs(self, world: TwoSides) -> State:
        model = world.model
        if model is None:
            return None
        if model.deployed:
            return model.digests[model.deployed], True
        known = world.object is not None and model.newest == self.base_newest
        # As it was shown, unless it was deleted and put again with something else in that version.
        if self.before is not None and known and model.digests.get(self.base_version) == self.before[0]:
            return self.before[0], False
        return model.digests[model.newest], False


@pytest.mark.thorough
@given(st.lists(st.tuples(st.lists(KUBERNETES | WASH, max_size=5), DEATHS), max_size=6))
@settings(max_examples=300, derandomize=True)
def test_in_each_case_both_sides_converge_by_the_rules(times: list[tuple[list[Step], list[int]]]) -> None:
    world, state = TwoSides(), None
    for steps, deaths in times:
        base = None if world.object is None else world.object.base
        version, newest = (base.version, base.newest) if base else ("", "")
        oracle = Oracle(state, bool(base and base.undeploy), version, newest, world.bucket)
        for step in steps:
            step(world)
        expected = oracle.expected(world)
        state = settle(world, deaths)
        assert state == expected


A, B, C = "a" * 64, "b" * 64, "c" * 64


def test_killed_between_putting_and_deploying_what_was_lost_it_is_deployed_nevertheless() -> None:
    world = TwoSides()
    world.apply(A)
    settle(world)
    world.lose()
    with pytest.raises(Killed):
        world.sync(survive=1)
    assert world.model is not None
    assert world.model.deployed == ""
    assert settle(world) == (A, True)


def test_writes_of_the_controller_are_no_change_of_kubernetes() -> None:
    world = TwoSides()
    world.apply(B)
    settle(world)
    world.undeploy()
    world.put(A, "v1")
    assert settle(world) == (A, False)


def test_after_a_crash_before_recording_its_write_the_controller_does_not_send_it_to_a_wadm_that_changed_back() -> None:
    world = TwoSides()
    world.apply(A, "v1")
    settle(world)
    world.put(B, "w1")
    world.deploy("w1")
    with pytest.raises(Killed):
        world.sync(survive=1)
    assert world.object is not None
    assert world.object.digest == B
    world.deploy("v1")
    assert settle(world) == (A, True)


def test_a_former_write_of_the_controller_is_a_change_if_another_client_writes_it_later() -> None:
    world = TwoSides()
    world.apply(B)
    settle(world)
    world.put(A, "w1")
    world.deploy("w1")
    settle(world)
    world.apply(B)
    assert settle(world) == (B, True)
    world.apply(A)
    world.undeploy()
    assert settle(world) == (A, True)


def test_a_model_put_and_not_deployed_is_not_shown_because_of_an_undeploy_in_kubernetes() -> None:
    world = TwoSides()
    world.put(A, "v2")
    world.deploy("v2")
    settle(world)
    world.mark(undeploy=True)
    world.put(B, "v1")
    assert settle(world) == (A, False)


def test_a_manifest_sent_to_wadm_is_no_change_of_wadm_if_the_object_is_changed_back() -> None:
    """Before it was written down that both were equal: as if neither side had changed."""
    world = TwoSides()
    world.apply(A, "v1")
    settle(world)
    world.apply(B, "v2")
    world.once()
    world.apply(A, "v1")
    assert settle(world) == (A, True)


def test_an_undeployed_application_runs_again_if_its_object_requests_it_at_once() -> None:
    world = TwoSides()
    world.apply(A, "v1")
    settle(world)
    world.mark(undeploy=True)
    world.once()
    world.mark(undeploy=False)
    assert settle(world) == (A, True)


def test_a_change_with_wash_of_a_sent_manifest_is_a_change_of_wadm() -> None:
    world = TwoSides()
    world.apply(A, "v1")
    settle(world)
    world.apply(B, "v2")
    world.once()
    world.apply(A, "v1")
    world.put(C, "w1")
    world.deploy("w1")
    assert settle(world) == (C, True)


def test_a_version_put_a_moment_ago_is_not_skipped_if_its_deployment_was_not_observed() -> None:
    world = TwoSides()
    world.put(A, "v1")
    world.deploy("v1")
    settle(world)
    world.put(B, "v2")
    world.undecided = True
    world.sync()
    world.deploy("v2")
    world.undeploy()
    assert settle(world) == (B, False)


def test_a_version_that_was_put_and_did_not_run_for_a_while_is_passed_over() -> None:
    world = TwoSides()
    world.put(A, "v1")
    world.deploy("v1")
    settle(world)
    world.put(B, "v2")
    world.undecided = True
    world.sync()
    world.undecided = False
    world.sync()
    world.undeploy()
    assert settle(world) == (A, False)


class Watched(TwoSides):
    """Two sides that know what people asked for: the reason of each deletion or undeploy."""

    purged = False
    deleted = False
    stopped = False

    def purge(self) -> None:
        self.purged = True
        super().purge()

    def delete(self) -> None:
        self.deleted = True
        super().delete()

    def mark(self, undeploy: bool) -> None:
        self.stopped = self.stopped or undeploy
        super().mark(undeploy)


def unavailable(world: TwoSides) -> None:
    world.unavailable = True


def back(world: TwoSides) -> None:
    world.unavailable = False


def pass_time(world: TwoSides) -> None:
    world.now += 200.0


def sync(survive: int | None) -> Step:
    def run(world: TwoSides) -> None:
        with contextlib.suppress(Killed):
            world.sync(survive)

    return run


ANY: st.SearchStrategy[Step] = st.one_of(
    KUBERNETES,
    WASH,
    st.sampled_from([unavailable, back, pass_time]),
    st.builds(sync, st.none() | st.integers(min_value=0, max_value=4)),
)


@given(st.lists(ANY, max_size=25))
@settings(max_examples=500, derandomize=True)
def test_in_any_order_of_events_both_sides_converge_and_nothing_is_lost(steps: list[Step]) -> None:
    world = Watched()
    for step in steps:
        step(world)
    settle(world)
    kinds = {type(action) for action in world.log}
    assert world.deleted or not kinds & {DeleteModel, RemoveFinalizer}, "we deleted what nobody deleted"
    assert world.purged or DeleteObject not in kinds, "an object went although wadm's model was not deleted"
    assert world.stopped or Undeploy not in kinds, "we undeployed what nobody asked to be"
