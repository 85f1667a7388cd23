"""Messages of the bus in the console: permissions, filters, and stored events."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator
from datetime import UTC, datetime, timedelta
from typing import Any

import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st

from console.access.permissions import GROUP, ReviewedPermissions
from console.domain.limits import EVENT_BYTES, EVENTS_BYTES, EVENTS_KEPT
from console.domain.messages import HEARTBEAT
from console.http.refusals import RefusedError
from console.live.feed import Feed, Filter, Item, dead_letter_item, item_of, read_filter
from console.live.replays import dead_letter_page, dead_letters, read_page_request, replay
from console.timings import Timings
from support.console.viewers import Message, Users, World, console, may, messages
from trellis.bus.dead_letters.read import read_dead_letter
from trellis.bus.streams.stream_reader import Start, Stored
from trellis.bus.streams.tail import event_of
from trellis_dev.fakes.fake import FakeKube

TOKEN, DEV = "t-admin", "t-dev"
BEGAN = datetime(2026, 1, 1, tzinfo=UTC)
SECONDS = 10.0


def stored(subject: str, data: Any = None, sequence: int = 1, headers: dict[str, str] | None = None) -> Stored:
    body = orjson.dumps({"source": "/trellis/c/node_watcher", "data": data if data is not None else {}})
    return Stored(sequence, BEGAN + timedelta(seconds=sequence), subject, headers or {}, body, len(body))


def an_event(subject: str, index: int, **data: Any) -> Item:
    return item_of(event_of(stored(f"trellis.evt.c.{subject}", data, index)), index)


def copy(lattice: str, index: int) -> Item:
    return item_of(event_of(stored(f"trellis.lattice.c.{lattice}.host_started", {}, index)), index)


def dead(noun: str, key: str, index: int) -> Item:
    return dead_letter_item(
        read_dead_letter(stored(f"trellis.dead.c.node_watcher.{noun}.{key}", sequence=index), "e"), index
    )


@pytest.fixture
async def world() -> AsyncIterator[World]:
    async with console(users()) as found:
        yield found


def users() -> Users:
    rules = [may("admin"), may("dev", namespace="team"), may("dev", f"lattices.{GROUP}", name="mine")]
    return Users({TOKEN: ("admin", ()), DEV: ("dev", ())}, rules)


ITEMS = [
    an_event("node.ready.n1", 1),
    an_event("application.synced.team.shop", 2, lattice="prod"),
    an_event("application.synced.other.shop", 3, lattice="prod"),
    copy("mine", 4),
    copy("theirs", 5),
    dead("application", "team.shop", 6),
    dead("node", "n1", 7),
    an_event("weather.changed.x", 8),
]


async def received(world: World, token: str, query: str = "", *, last: str = "", end: int = 0) -> list[Message]:
    """Return what a stream says until its last item, one that anybody may see who sees anything, has come."""
    found = []
    headers = {"Last-Event-ID": last} if last else {}
    async with world.logged_in(token) as page, page.get(f"/api/events/stream{query}", headers=headers) as stream:
        assert stream.status == 200, await stream.text()
        async with asyncio.timeout(SECONDS):
            async for message in messages(stream):
                found.append(message)
                if message.event == "hello":
                    world.feed.add(an_event("application.synced.team.last", end or world.feed.newest + 1))
                if message.event == "event" and message.data["name"] == "last":
                    return found
    raise AssertionError("the stream ended before")


def abouts(found: list[Message]) -> list[Any]:
    return [item.data["about"] or item.data["lattice"] for item in found if item.event == "event"][:-1]


async def test_each_message_goes_to_viewers_who_may_see_its_object(world: World) -> None:
    for item in ITEMS:
        world.feed.add(item)
    everything = abouts(await received(world, TOKEN))
    assert len(everything) == len(ITEMS)
    assert abouts(await received(world, DEV)) == ["application/team/shop", "mine", "application/team/shop"]


@pytest.mark.parametrize(
    ("query", "expected"),
    [
        ("?streams=events&types=node.*", 1),
        ("?streams=events&types=application", 2),
        ("?types=application.synced,dead_letter.application&object=application/team/shop", 2),
        ("?namespace=other", 1),
        ("?lattice=prod", 2),
        ("?streams=lattice", 2),
        ("?streams=dead-letters", 2),
        ("?trace=00000000", 0),
    ],
)
def test_a_page_gets_its_requested_events(query: str, expected: int) -> None:
    wanted = read_filter(dict(part.split("=") for part in query[1:].split("&")))
    assert sum(map(wanted.wants, ITEMS)) == expected


async def test_a_page_that_comes_back_gets_what_it_missed_and_nothing_twice(world: World) -> None:
    for item in ITEMS[:3]:
        world.feed.add(item)
    first = await received(world, TOKEN)
    world.feed.add(an_event("node.ready.n9", world.feed.newest + 1))
    again = await received(world, TOKEN, last=first[-1].id)
    assert again[0].data["resumed"] is True
    assert abouts(again) == ["node/n9"]


async def test_a_page_that_was_disconnected_too_long_is_informed_of_a_gap(world: World) -> None:
    world.feed.add(ITEMS[0])
    first = await received(world, TOKEN)
    for number in range(EVENTS_KEPT + 10):
        world.feed.add(an_event("weather.changed.x", world.feed.newest + 1 + 0 * number))
    assert "gap" in [item.event for item in await received(world, DEV, last=first[-1].id)]


@pytest.mark.parametrize(("token", "query"), [(TOKEN, "?types=node.ready"), (DEV, "")], ids=["filtered", "not allowed"])
async def test_a_page_without_visible_events_gets_heartbeats_during_a_flood(token: str, query: str) -> None:
    async def chatter(world: World) -> None:
        while True:
            world.feed.add(an_event("weather.changed.x", world.feed.newest + 1))
            await asyncio.sleep(0.02)

    async with console(users(), timings=Timings(heartbeat=0.05)) as world:
        talking = asyncio.create_task(chatter(world))
        try:
            async with world.logged_in(token) as page, page.get(f"/api/events/stream{query}") as stream:
                async with asyncio.timeout(SECONDS):
                    while await stream.content.readline() != HEARTBEAT.splitlines(keepends=True)[0]:
                        pass
        finally:
            talking.cancel()


@pytest.mark.parametrize(
    "query",
    [
        "?streams=secrets",
        "?streams=letters",
        "?types=a%20b",
        "?trace=xyz",
        "?recent=-1",
        "?recent=999999",
    ],
)
async def test_a_filter_that_is_none_is_refused(world: World, query: str) -> None:
    async with world.logged_in(TOKEN) as page, page.get(f"/api/events/stream{query}") as answer:
        assert answer.status == 400


@given(st.lists(st.integers(0, EVENT_BYTES * 2), max_size=60))
def test_kept_events_are_bounded_and_in_order(sizes: list[int]) -> None:
    feed = Feed()
    for index, size in enumerate(sizes, 1):
        feed.add(an_event("node.ready.n1", index, text="x" * size))
    items, missed = feed.after(0)
    assert [item.index for item in items] == sorted(item.index for item in items)
    assert sum(item.size for item in items) <= EVENTS_BYTES
    assert missed is (bool(items) and items[0].index > 1)
    for at in range(len(sizes) + 1):
        assert [item.index for item in feed.after(at)[0]] == [item.index for item in items if item.index > at]


def test_many_small_ones_are_bounded_too() -> None:
    feed = Feed()
    for index in range(1, EVENTS_KEPT + 20):
        feed.add(an_event("node.ready.n1", index))
    assert len(feed.after(0)[0]) == EVENTS_KEPT
    assert feed.last(Filter(), 5) == EVENTS_KEPT + 14
    assert feed.last(Filter(namespace="none"), 5) == 0


def test_an_oversized_body_is_omitted_and_marked() -> None:
    item = an_event("node.ready.n1", 1, text="x" * EVENT_BYTES)
    assert item.document["data"] is None
    assert item.document["cut"] is True


class StoredMessages:
    """A bus that has these messages."""

    def __init__(self, *found: Stored) -> None:
        self.found = found
        self.requested: list[tuple[str, str, Start]] = []

    async def past(
        self, stream: str, subjects: str, start: Start, *, headers_only: bool = False
    ) -> AsyncGenerator[tuple[Stored, str], None]:
        del headers_only
        self.requested.append((stream, subjects, start))
        for message in self.found:
            if message.sequence >= (start.sequence or 0):
                yield message, "e"


def reviewed_permissions(*rules: Any) -> ReviewedPermissions:
    kube = FakeKube()
    kube.api.fault = Users({"t": ("dev", ())}, list(rules))
    return ReviewedPermissions(kube.with_token("t"))


NODES = tuple(stored(f"trellis.evt.c.node.ready.n{number}", {}, number) for number in range(1, 11))


async def test_the_past_comes_in_pages_that_leave_nothing_out() -> None:
    link, found, after = StoredMessages(*NODES), list[int](), ""
    while True:
        page = await replay(
            link, reviewed_permissions(may("dev")), read_page_request({"limit": "3", "after": after}), seconds=SECONDS
        )  # type: ignore[arg-type]
        assert len(page["events"]) <= 3
        found += [event["sequence"] for event in page["events"]]
        if page["next"] is None:
            break
        after = str(page["next"])
    assert found == list(range(1, 11))


async def test_history_contains_only_permitted_events() -> None:
    page = await replay(
        StoredMessages(*NODES),
        reviewed_permissions(may("dev", "nodes", name="n4")),
        read_page_request({}),
        seconds=SECONDS,
    )  # type: ignore[arg-type]
    assert [event["name"] for event in page["events"]] == ["n4"]


async def test_the_past_ends_where_it_was_asked_to() -> None:
    until = (BEGAN + timedelta(seconds=4)).isoformat()
    page = await replay(
        StoredMessages(*NODES), reviewed_permissions(may("dev")), read_page_request({"until": until}), seconds=SECONDS
    )  # type: ignore[arg-type]
    assert [event["sequence"] for event in page["events"]] == [1, 2, 3, 4]
    assert page["next"] is None


@pytest.mark.parametrize(
    ("query", "stream", "subjects"),
    [
        ({}, "TRELLIS_EVENTS", ">"),
        ({"types": "node.ready"}, "TRELLIS_EVENTS", "node.ready.>"),
        ({"types": "node.*"}, "TRELLIS_EVENTS", "node.>"),
        ({"types": "node"}, "TRELLIS_EVENTS", "node.>"),
        ({"types": "node,hosts"}, "TRELLIS_EVENTS", ">"),
        ({"types": "*"}, "TRELLIS_EVENTS", ">"),
        ({"streams": "lattice"}, "TRELLIS_LATTICE", "*.>"),
        ({"streams": "lattice", "lattice": "a.b"}, "TRELLIS_LATTICE", "a=2Eb.>"),
    ],
)
async def test_no_more_is_read_than_can_be_meant(query: dict[str, str], stream: str, subjects: str) -> None:
    link = StoredMessages()
    await replay(link, reviewed_permissions(), read_page_request(query), seconds=SECONDS)  # type: ignore[arg-type]
    assert link.requested[0][:2] == (stream, subjects)


@pytest.mark.parametrize(
    "query",
    [
        {"streams": "dead-letters"},
        {"streams": "events,lattice"},
        {"after": "x"},
        {"limit": "0"},
        {"limit": "100000"},
        {"since": "yesterday"},
        {"since": "2026-01-01T00:00:00"},
    ],
)
def test_a_page_of_no_past_is_refused(query: dict[str, str]) -> None:
    with pytest.raises(RefusedError) as refused:
        read_page_request(query)
    assert refused.value.status == 400


DEAD_LETTERS = (
    stored("trellis.dead.c.node_watcher.node.n1", sequence=1, headers={"Trellis-Reason": "Unreadable"}),
    stored("trellis.dead.c.provisioner.application.team.shop", sequence=2, headers={"Trellis-Reason": "Unknown"}),
)


async def test_dead_letters_go_to_viewers_who_may_see_their_objects() -> None:
    page = await dead_letters(
        StoredMessages(*DEAD_LETTERS), reviewed_permissions(may("dev", namespace="team")), {}, seconds=SECONDS
    )  # type: ignore[arg-type]
    assert [letter["about"] for letter in page["dead_letters"]] == ["application/team/shop"]
    assert {"get nodes", "get messages.console.trellis.dev"} <= {*page["lacking"]}, "not that there are none"
    both = await dead_letters(
        StoredMessages(*DEAD_LETTERS), reviewed_permissions(may("dev")), {"reason": "unreadable"}, seconds=SECONDS
    )  # type: ignore[arg-type]
    assert ([letter["sequence"] for letter in both["dead_letters"]], both["lacking"]) == ([1], [])


async def test_a_missing_dead_letter_looks_like_a_forbidden_one() -> None:
    few = reviewed_permissions(may("dev", namespace="team"))
    seen = await dead_letter_page(StoredMessages(*DEAD_LETTERS), few, 2)  # type: ignore[arg-type]
    assert seen["dead_letter"]["about"] == "application/team/shop"
    assert seen["page"]["subject"] == "dead letter 2"
    errors = []
    for sequence in (1, 3):
        with pytest.raises(RefusedError) as refused:
            await dead_letter_page(StoredMessages(*DEAD_LETTERS), few, sequence)  # type: ignore[arg-type]
        errors.append((refused.value.status, refused.value.what.replace(str(sequence), "N")))
    assert errors[0] == errors[1]


async def test_an_unreachable_bus_is_reported_in_the_views_that_need_it(world: World) -> None:
    async with world.logged_in(TOKEN) as page:
        for path in ("/api/events", "/api/dead-letters", "/api/dead-letters/1"):
            async with page.get(path) as answer:
                assert answer.status == 503
                assert set((await answer.json())["error"]) >= {"what", "do"}
