"""The events of an Application: each is published once, and again when its cause holds again."""

from __future__ import annotations

from dataclasses import replace

import pytest

from application_manager.domain.actions import Announcement, Decision, DeleteObject, Lost, Put, Reason, Record
from application_manager.domain.decide import decide
from application_manager.domain.published_events import Due, Identity, Published, events_of
from application_manager.domain.sides import Base, Model, Object, Side
from application_manager.domain.snapshot import Snapshot
from trellis.events.applications import (
    ApplicationDeleted,
    ApplicationOverridden,
    ApplicationRejected,
    ApplicationSynced,
)

A, B = "a" * 64, "b" * 64
BASE = Base(A, "v1", deployed=True, newest="v1", serial=4)
SAME = Object(A, "v1", base=BASE)
ABOUT = Identity("apps", "shop", "uid-1", "100", 3, "default", "Shop")
SYNCED = Announcement(Reason.SYNCED, "both sides have version v1")


def names_of(due: list[Due]) -> list[str]:
    return [item.event.event_name for item in due]


def publish(published: Published, holds: list[Due], key: str = ABOUT.key) -> list[str]:
    due = published.due(key, holds)
    for item in due:
        published.note(item.event)
    return names_of(due)


def test_equal_sides_are_reported_as_synced_with_their_version() -> None:
    [due] = events_of(ABOUT, SAME, Decision())
    assert due.event == ApplicationSynced(
        namespace="apps",
        name="shop",
        uid="uid-1",
        lattice="default",
        application="Shop",
        generation=3,
        shown="v1",
        deployed=True,
        digest=A,
    )
    assert due.dedup == "uid-1.3-4.synced"


def test_a_record_of_this_run_counts_already() -> None:
    newer = replace(BASE, version="v2", serial=5)
    [due] = events_of(ABOUT, SAME, Decision((Record(SYNCED, newer),)))
    assert isinstance(due.event, ApplicationSynced)
    assert due.event.shown == "v2"
    assert due.dedup == "uid-1.3-5.synced"


@pytest.mark.parametrize(
    ("found", "decision"),
    [
        (replace(SAME, base=None), Decision()),
        (SAME, Decision((Put(SYNCED, "v2"),))),
        (SAME, Decision((DeleteObject(SYNCED),))),
        (SAME, Decision(waits=Announcement(Reason.WADM_UNAVAILABLE, "wadm does not answer"))),
        (replace(SAME, deleting=True), Decision()),
        (replace(SAME, digest=B), Decision((Record(SYNCED, replace(BASE, newest="v9")),))),
        (replace(SAME, undeploy=True), Decision((Record(SYNCED, replace(BASE, newest="v9")),))),
    ],
    ids=[
        "never equal",
        "put",
        "about to be deleted",
        "wadm away",
        "being deleted",
        "another spec recorded",
        "undeploy recorded",
    ],
)
def test_sides_not_known_to_be_equal_are_not_reported_as_synced(found: Object, decision: Decision) -> None:
    assert events_of(ABOUT, found, decision) == []


def test_versions_recorded_before_a_push_are_not_reported_as_synced() -> None:
    found = replace(SAME, digest=B)
    decision = decide(Snapshot(found, Model((("v1", A), ("v2", A)), "v1")))
    assert any(isinstance(action, Record) for action in decision.actions)
    assert events_of(ABOUT, found, decision) == []


def test_a_refusal_and_a_lost_change_are_reported_with_their_details() -> None:
    events = events_of(ABOUT, SAME, Decision(), Lost(Side.KUBERNETES, "overridden-b"), ("Rejected", "no such link"))
    assert [event.dedup for event in events] == ["uid-1.100.overridden", "uid-1.100.rejected"]
    lost, refused = (event.event for event in events)
    assert isinstance(lost, ApplicationOverridden)
    assert (lost.side, lost.kept) == ("Kubernetes", "overridden-b")
    assert isinstance(refused, ApplicationRejected)
    assert (refused.generation, refused.reason, refused.message) == (3, "Rejected", "no such link")


def test_a_published_event_is_not_repeated_until_it_changes() -> None:
    published = Published()
    assert publish(published, events_of(ABOUT, SAME, Decision())) == ["synced"]
    assert publish(published, events_of(replace(ABOUT, resource_version="101"), SAME, Decision())) == []
    assert publish(published, events_of(replace(ABOUT, generation=4), SAME, Decision())) == ["synced"]


def test_a_refusal_that_was_repaired_and_comes_back_is_reported_again() -> None:
    published, refused = Published(), ("Rejected", "no such link")
    assert publish(published, events_of(ABOUT, SAME, Decision(), rejected=refused)) == ["rejected"]
    assert publish(published, events_of(ABOUT, SAME, Decision(), rejected=refused)) == []
    assert publish(published, events_of(ABOUT, SAME, Decision())) == ["synced"]
    assert publish(published, events_of(ABOUT, SAME, Decision(), rejected=refused)) == ["rejected"]


def test_a_waiting_application_is_not_reported_as_synced_again() -> None:
    published = Published()
    unavailable = Decision(waits=Announcement(Reason.WADM_UNAVAILABLE, "wadm does not answer"))
    assert publish(published, events_of(ABOUT, SAME, Decision())) == ["synced"]
    assert publish(published, events_of(ABOUT, SAME, unavailable)) == []
    assert publish(published, events_of(ABOUT, SAME, Decision())) == []


def test_a_published_object_is_reported_deleted_once_and_an_unpublished_one_never() -> None:
    published = Published()
    assert published.deletion_events(ABOUT.key) == []
    publish(published, events_of(ABOUT, SAME, Decision()))
    [due] = published.deletion_events(ABOUT.key)
    assert due.event == ApplicationDeleted(
        namespace="apps", name="shop", uid="uid-1", lattice="default", application="Shop"
    )
    assert due.dedup == "uid-1.deleted"
    published.note(due.event)
    assert published.deletion_events(ABOUT.key) == []


def test_an_object_replaced_under_its_name_is_reported_deleted_first() -> None:
    published = Published()
    publish(published, events_of(ABOUT, SAME, Decision()))
    other = replace(ABOUT, uid="uid-2")
    due = published.due(ABOUT.key, events_of(other, SAME, Decision()))
    assert [(item.event.event_name, item.event.uid) for item in due] == [("deleted", "uid-1"), ("synced", "uid-2")]
    for item in due:
        published.note(item.event)
    assert publish(published, events_of(other, SAME, Decision())) == []


def test_events_still_on_the_bus_are_not_repeated_after_a_restart() -> None:
    before, after = Published(), Published()
    events = events_of(ABOUT, SAME, Decision(), Lost(Side.WADM, "v0"))
    for event in events:
        before.note(event.event)
        after.note(event.event)
    assert after.due(ABOUT.key, events) == []
    [deleted] = before.deletion_events(ABOUT.key)
    before.note(deleted.event)
    assert before.deletion_events(ABOUT.key) == []
    after.forget()
    assert names_of(after.due(ABOUT.key, events)) == ["synced", "overridden"]


def test_the_end_of_a_former_object_does_not_forget_the_one_of_today() -> None:
    published = Published()
    publish(published, events_of(replace(ABOUT, uid="uid-2"), SAME, Decision()))
    published.note(
        ApplicationDeleted(namespace="apps", name="shop", uid="uid-1", lattice="default", application="Shop")
    )
    assert names_of(published.deletion_events(ABOUT.key)) == ["deleted"]
