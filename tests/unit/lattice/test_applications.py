"""The deployed applications of a lattice, by wadm's events and answers in any order."""

from __future__ import annotations

import json
from dataclasses import dataclass

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from support.lattices.lattice_recordings import messages, replies
from support.wadm.manifests import capability, link, manifest
from trellis.lattice.domain.applications import Applications
from trellis.lattice.domain.manifests import Application, read_application
from trellis.lattice.domain.models import Model, read_models
from trellis.lattice.timings import ComparisonTimings

UNCONFIRMED, BUSY = ComparisonTimings().unconfirmed, ComparisonTimings().busy
LATER = UNCONFIRMED + 1


def app(name: str = "shop", version: str = "v1", port: int = 8080) -> Application:
    return read_application(manifest(name, capability("http", link(f"0.0.0.0:{port}")), version=version))


def at(second: int) -> str:
    return f"2026-11-21T05:00:{second:02}.5Z"


def test_a_published_application_is_deployed_at_once() -> None:
    state = Applications()
    assert state.published(app(), at(1), 0.0)
    assert state.deployed() == {"shop": app()}
    assert not state.published(app(), at(1), 0.1), "it came twice"
    assert not state.published(app(version="v0"), at(0), 0.2), "it came late"
    assert state.published(app(version="v2", port=1), at(2), 0.3)


def test_an_unpublished_application_is_removed_when_wadm_agrees() -> None:
    state = Applications()
    state.published(app(), at(1), 0.0)
    state.unpublished("shop", at(2), 1.0)
    assert state.deployed(), "wadm was not asked"
    assert not state.absent("shop")
    assert state.listed([Model("shop", "v1")], state.events, 1.0)
    assert not state.deployed()
    assert state.absent("shop")
    assert state.recheck_in(1.0) is None


def test_an_unmentioned_application_stays_while_wadm_reports_it_as_deployed() -> None:
    state = Applications()
    state.published(app(), at(1), 0.0)
    state.unpublished("shop", at(2), 1.0)
    state.listed([Model("shop", "v1", "v1")], state.events, 1.0)
    assert state.deployed()
    assert state.recheck_in(1.0) == UNCONFIRMED, "that answer may have been old"
    state.listed([Model("shop", "v1")], state.events, LATER + 1)
    assert not state.deployed()


def test_an_unpublished_application_is_removed_when_wadm_cannot_be_asked() -> None:
    state = Applications()
    state.published(app(), at(1), 0.0)
    state.published(app("other"), at(1), 0.0)
    assert not state.refused(state.events)
    state.unpublished("other", at(0), 1.0)
    assert not state.refused(state.events), "it was published after that"
    state.unpublished("shop", at(2), 1.0)
    assert not state.refused(state.events - 1), "that was asked before it was said"
    assert state.refused(state.events)
    assert set(state.deployed()) == {"other"}
    assert state.absent("shop")
    assert not state.absent("third"), "wadm never told all"


def test_an_answer_does_not_override_a_status_published_after_the_question() -> None:
    state = Applications()
    requested = state.events
    state.published(app(), at(1), 0.0)
    state.listed([], requested, LATER)  # the answer took its time
    assert state.deployed()
    assert not state.got(app(version="v0"), requested)
    assert state.deployed() == {"shop": app()}


def test_an_old_answer_just_after_an_event_is_unconfirmed() -> None:
    state = Applications()
    state.published(app(version="v2"), at(1), 0.0)
    state.listed([], state.events, 0.5)
    state.listed([Model("shop", "v1", "v1")], state.events, 0.5)
    assert state.deployed() == {"shop": app(version="v2")}
    assert not state.wanted
    assert state.recheck_in(0.5) == pytest.approx(UNCONFIRMED - 0.5)
    assert state.listed([], state.events, LATER)
    assert not state.deployed()


def test_a_version_missed_on_the_bus_is_fetched() -> None:
    state = Applications()
    state.published(app(), at(1), 0.0)
    models = [Model("shop", "v3", "v2"), Model("new", "v1", "v1"), Model("old", "v1")]
    state.listed(models, state.events, LATER)
    assert state.wanted == {"shop": "v2", "new": "v1"}
    assert state.deployed() == {"shop": app()}, "nothing goes before there is something better"
    assert not state.absent("new")
    assert state.absent("old")
    assert state.got(app("new"), state.events)
    assert state.got(app(version="v2"), state.events)
    assert not state.wanted


def test_the_recorded_answers_are_taken() -> None:
    state = Applications()
    listed, undeployed, none = (
        read_models(json.dumps(item).encode()) for item in replies("wadm.api.default.model.list")
    )
    (reply,) = replies("wadm.api.default.model.get.shop")
    state.listed(listed, 0, 0.0)
    assert state.wanted == {"shop": "v2"}
    state.got(read_application(reply["manifest"]), 0)
    assert [listener.port for listener in state.deployed()["shop"].listeners] == [8095]
    state.listed(undeployed, 0, 1.0)
    assert not state.deployed()
    assert not state.listed(none, 0, 2.0)


def test_a_publisher_cannot_exhaust_the_memory() -> None:
    state = Applications()
    state.published(app(), at(1), 0.0)
    for number in range(6_000):
        state.unpublished(f"invented-{number}", at(2), 0.0)
    assert len(state.known) == 5_001
    assert state.deployed()


@dataclass(frozen=True)
class Published:
    """An event: what is published, or the name of what is not any more."""

    time: str
    what: Application | str


def recorded() -> list[Published]:
    """Every recorded event about applications, and the life of some more."""
    found = [
        Published(message["data"]["time"], read_application(message["data"]["data"]))
        for message in messages("manifest_published")
    ]
    found += [
        Published(message["data"]["time"], message["data"]["data"]["name"])
        for message in messages("manifest_unpublished")
    ]
    lifetimes: list[Application | str] = [
        app(),
        "other",
        app("other"),
        app(version="v2", port=9),
        "shop",
        "shop",
        app(),
    ]
    return found + [Published(at(second), what) for second, what in enumerate(lifetimes)]


def final(events: list[Published]) -> dict[str, Application]:
    """Return the applications that are deployed after all events, as wadm has them."""
    found: dict[str, Application] = {}
    for event in sorted(events, key=lambda item: item.time):
        if isinstance(event.what, str):
            found.pop(event.what, None)
        else:
            found[event.what.name] = event.what
    return found


def take(state: Applications, event: Published, now: float) -> None:
    if isinstance(event.what, str):
        state.unpublished(event.what, event.time, now)
    else:
        state.published(event.what, event.time, now)


@settings(max_examples=300)
@given(st.permutations(recorded() * 2), st.integers(0, 5))
def test_shuffled_and_doubled_events_end_in_the_same_without_wadm(events: list[Published], every: int) -> None:
    state = Applications()
    for number, event in enumerate(events):
        take(state, event, number * 0.1)
        if every and number % every == 0:
            state.refused(state.events)
    state.refused(state.events)
    assert state.deployed() == final(recorded())
    assert not any(state.deployed().get(name) for name in state.known if state.absent(name))


_ACTIONS = st.lists(
    st.sampled_from(recorded()) | st.sampled_from(["failed", "listed", "late list", "old list"]), max_size=30
)


@settings(max_examples=300)
@given(
    _ACTIONS, st.lists(st.sampled_from([app(), app(version="v2", port=9), app("other")]), unique_by=lambda a: a.name)
)
def test_gaps_duplicates_and_failures_end_in_what_wadm_has(
    actions: list[Published | str], truth: list[Application]
) -> None:
    state, now = Applications(), 0.0
    models = [Model(item.name, item.version, item.version) for item in truth]
    for action in actions:
        now += 0.3
        if isinstance(action, Published):
            take(state, action, now)
        elif action == "failed":
            state.refused(state.events)
        else:
            requested = state.events - (action == "old list")
            state.listed([] if action == "late list" else models, requested, now)
            for item in truth:
                if item.name in state.wanted:
                    state.got(item, requested)
    for _ in range(2):  # what is in doubt is asked again
        now += state.recheck_in(now) or LATER
        state.listed(models, state.events, now)
        for item in truth:
            if item.name in state.wanted:
                state.got(item, state.events)
    # A manifest of the same version is the same manifest.
    assert {name: item.version for name, item in state.deployed().items()} == {
        item.name: item.version for item in truth
    }
    assert state.recheck_in(now) is None
    assert all(state.absent(name) for name in {"shop", "other", "hello-world"} - {item.name for item in truth})


def test_while_events_keep_coming_wadm_is_asked_after_twenty_seconds_and_otherwise_when_they_are_quiet() -> None:
    state = Applications()
    state.listed([], 0, 0.0)
    for second in range(30):
        state.published(app(f"shop-{second}"), at(second), float(second))
        assert state.recheck_in(float(second)) == min(UNCONFIRMED, max(0.0, BUSY - second))


def test_an_application_that_may_not_be_deployed_is_not_requested() -> None:
    state = Applications()
    state.listed([Model("shop", "v1", "v1")], 0, 0.0)
    assert state.unpublished("shop", at(1), 1.0), "its manifest is not known yet, and it is deployed"
    assert not state.unpublished("shop", at(1), 1.1), "it came twice"
    assert not state.unpublished("never", at(2), 1.2)


def test_an_answer_that_contradicts_a_recent_event_is_requested_again() -> None:
    state = Applications()
    state.published(app(), at(1), 0.0)
    state.listed([Model("shop", "v1", "v1")], state.events, 0.1)
    assert state.recheck_in(0.1) is None
    state.listed([Model("shop", "v2", "v2")], state.events, 0.2)
    assert state.recheck_in(0.2) is not None
    state.listed([Model("shop", "v1", "v1")], state.events, 0.3)
    state.listed([Model("shop", "v1")], state.events, 0.4)
    assert state.recheck_in(0.4) is not None
