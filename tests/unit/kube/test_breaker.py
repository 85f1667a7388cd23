"""The breaker's record in Kubernetes: what it survives, what it costs, what people see."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from email.utils import formatdate
from typing import Any

import pytest

from support.cluster.kube_world import until
from trellis.kube.breaker import DELETION_PAUSED, Breaker, Scope
from trellis.kube.errors import Forbidden, NotLeading, Unavailable
from trellis.kube.recorder import EventRecorder
from trellis.kube.resources import CONFIGMAPS, EVENTS, NAMESPACES, Manifest
from trellis.kube.server_clock import ServerClock
from trellis.kube.timings import BreakerTimings
from trellis.kube.transport import HttpRequest
from trellis.kube.unhurried_clock import UnhurriedClock
from trellis.limits.breaker import Deletion, Limits, State, close
from trellis.limits.breaker_record import decode, encode, make_breakers
from trellis.telemetry import Metrics, setup
from trellis_dev.fakes.fake import FakeKube, status_reply

NS = "trellis-system"
NAME = "trellis-circuit-breaker-node-watcher"
QUICK = BreakerTimings(poll=0.02)


class World:
    """One cluster and a clock; ``breaker`` is what each leader makes again."""

    def __init__(self, clock: ServerClock | None = None) -> None:
        self.kube = FakeKube(telemetry=setup("node_watcher", metrics=Metrics()), clock=clock)
        self.kube.put(NAMESPACES, {"metadata": {"name": NS}})
        self.now = 1_000_000.0
        self.population = 40
        self.released = 0
        self.present: dict[str, str] | None = None

    def breaker(self, **changes: Any) -> Breaker:
        scope = Scope("node_watcher", NS, {"nodes": lambda: self.population}, {"nodes": lambda: self.present})
        recorder = EventRecorder(self.kube, component="test")
        return Breaker(self.kube, recorder, scope, self.release, clock=lambda: self.now, timings=QUICK, **changes)

    def release(self) -> None:
        self.released += 1

    def record(self) -> Manifest | None:
        return next((item for item in self.kube.objects(CONFIGMAPS) if item["metadata"]["name"] == NAME), None)

    def state(self) -> State:
        record = self.record()
        assert record is not None
        state = decode(record["data"]["nodes"])
        assert state is not None
        return state

    def put(self, text: str) -> None:
        record = make_breakers("node_watcher", NS, {}, None)
        self.kube.put(CONFIGMAPS, record | {"data": {"nodes": text}})

    def close(self, **options: Any) -> None:
        closing = {"by": "ada", "now": self.now, "everything_for": None, "limits": Limits()} | options
        self.put(encode(close(self.state(), **closing)))

    def sample(self, name: str) -> float | None:
        registry = self.kube.telemetry.metrics.registry
        return registry.get_sample_value(name, {"service": "node_watcher", "kind": "nodes"})


def target(n: int) -> Deletion:
    return Deletion("nodes", f"node-{n}", f"uid-{n}", "taking labels away", "v1", "Node")


def paused_names(world: World) -> set[str]:
    """Return the names of what is held; there are no more of them than are named."""
    opening = world.state().opening
    assert opening is not None
    assert len(opening.examples) == len(opening.paused)
    return set(opening.examples)


async def deleted(breaker: Breaker, numbers: range) -> int:
    """Return how many of these may go, all asked at once."""
    waits = await asyncio.gather(*(breaker.admit(target(n)) for n in numbers))
    return sum(wait is None for wait in waits)


@pytest.fixture
def world() -> World:
    return World()


async def test_leave_is_stored_before_it_is_given_and_a_burst_costs_few_writes(world: World) -> None:
    world.population = 1000
    assert await deleted(world.breaker(), range(16)) == 16
    assert sum(len(admission.tokens) for admission in world.state().admissions) == 16
    assert len(world.kube.writes) == 2, "one for the first, one for all that came meanwhile"


async def test_deletions_above_the_limit_are_paused_with_one_event_per_object(world: World) -> None:
    breaker = world.breaker()
    assert await deleted(breaker, range(30)) == 5
    for _ in range(3):
        assert await deleted(breaker, range(5, 30)) == 0
    events = [event for event in world.kube.objects(EVENTS) if event["reason"] == DELETION_PAUSED]
    assert len(events) == 25
    assert {event["count"] for event in events} == {1}
    assert events[0]["type"] == "Warning"
    assert "trellis circuit-breaker close node-watcher nodes" in events[0]["message"]
    assert world.sample("trellis_circuit_breaker_paused_total") == 25
    assert world.sample("trellis_circuit_breaker_open") == 1


async def test_paused_deletions_know_their_end_and_asking_again_is_free(world: World) -> None:
    breaker = world.breaker()
    await deleted(breaker, range(6))
    before = len(world.kube.api.requests)
    world.now += 100
    assert [await breaker.admit(target(n)) for n in (5, 5)] == [500, 500]
    assert len(world.kube.api.requests) == before
    world.now += 500
    assert await breaker.admit(target(5)) is None


async def test_a_new_leader_goes_by_what_the_former_let_through(world: World) -> None:
    assert await deleted(world.breaker(), range(5)) == 5
    assert await deleted(world.breaker(), range(5, 8)) == 0
    assert await deleted(world.breaker(), range(8, 20)) == 0
    world.now += 600
    assert await deleted(world.breaker(), range(5, 20)) == 5


async def test_a_lost_answer_is_no_leave_and_is_not_counted_twice(world: World) -> None:
    breaker = world.breaker()
    await deleted(breaker, range(4))
    world.kube.fail_next(1, when=lambda request: request.method == "PUT")
    with pytest.raises(Unavailable):
        await breaker.admit(target(4))
    assert await breaker.admit(target(4)) is None
    assert await breaker.admit(target(5)) is not None


async def test_an_api_server_that_refuses_means_that_nothing_goes(world: World) -> None:
    world.kube.answer_next(
        99, lambda _: status_reply(403, "Forbidden", "no"), when=lambda request: NAME in request.path
    )
    with pytest.raises(Forbidden):
        await world.breaker().admit(target(1))


async def test_a_former_leader_gets_no_leave(world: World) -> None:
    def lost() -> None:
        raise NotLeading("lost")

    breaker = replace(world.breaker(), kube=world.kube.guarded(lost))
    with pytest.raises(NotLeading):
        await breaker.admit(target(1))


async def test_the_record_of_another_writer_is_read_first(world: World) -> None:
    breaker = world.breaker()
    await deleted(breaker, range(1))
    other = world.breaker()
    await deleted(other, range(1, 5))
    assert await deleted(breaker, range(5, 6)) == 0


async def test_a_record_deleted_under_a_leader_is_written_again(world: World) -> None:
    breaker = world.breaker()
    await deleted(breaker, range(7))
    world.kube.remove(CONFIGMAPS, NAME, NS)
    running = asyncio.create_task(breaker.run())
    await until(lambda: world.record() is not None, "written again")
    assert await deleted(breaker, range(7)) == 5, "only those it let through before"
    assert world.state().opening is not None
    running.cancel()


@pytest.mark.parametrize("garbage", ["", "{", "null", '{"admissions":1}', "\x00"])
async def test_a_malformed_record_counts_as_open_and_is_repaired(world: World, garbage: str) -> None:
    world.put(garbage)
    breaker = world.breaker()
    assert await deleted(breaker, range(3)) == 0
    assert world.state().opening is not None
    world.now += 600
    assert await deleted(breaker, range(3)) == 3


async def test_garbage_under_a_leader_changes_nothing(world: World) -> None:
    breaker = world.breaker()
    await deleted(breaker, range(3))
    world.put("oops")
    assert await deleted(breaker, range(3, 9)) == 2


async def test_a_record_with_broken_data_is_no_crash(world: World) -> None:
    world.kube.put(CONFIGMAPS, {"metadata": {"name": NAME, "namespace": NS}, "data": None})
    assert await deleted(world.breaker(), range(7)) == 5


async def test_closing_by_command_is_noticed_and_continues_paused_deletions(world: World) -> None:
    breaker = world.breaker()
    running = asyncio.create_task(breaker.run())
    assert await deleted(breaker, range(30)) == 5
    world.close()
    await until(lambda: world.released == 1, "noticed")
    assert world.sample("trellis_circuit_breaker_open") == 0
    before = len(world.kube.writes)
    assert await deleted(breaker, range(5, 30)) == 25
    assert len(world.kube.writes) == before, "leave was given by the person"
    assert await deleted(breaker, range(30, 31)) == 0, "what is new has the usual limit"
    running.cancel()
    await asyncio.gather(running, return_exceptions=True)
    assert world.sample("trellis_circuit_breaker_open") is None


async def test_paused_deletions_are_existing_objects_still_to_be_deleted(world: World) -> None:
    breaker = world.breaker()
    assert await deleted(breaker, range(13)) == 5
    world.present = {f"uid-{n}": f"node-{n}" for n in range(11)}
    breaker.withdraw("nodes", "uid-10")
    breaker.withdraw("nodes", "uid-9")
    assert await breaker.admit(target(9)) is not None, "it is to go again"
    running = asyncio.create_task(breaker.run())
    await until(lambda: len(paused_names(world)) == 5, "those that are gone or not to go are left out")
    assert paused_names(world) == {f"node-{n}" for n in range(5, 10)}
    assert await breaker.admit(target(10)) is not None, "it stays open"
    await until(lambda: "node-10" in paused_names(world), "held again")
    running.cancel()


async def test_paused_deletions_stay_while_the_existing_objects_are_unknown(world: World) -> None:
    breaker = world.breaker()
    await deleted(breaker, range(8))
    breaker.withdraw("nodes", "uid-5")
    running = asyncio.create_task(breaker.run())
    reads = len(world.kube.api.requests)
    await until(lambda: len(world.kube.api.requests) > reads + 2, "it was looked at")
    assert len(paused_names(world)) == 3
    world.present = {"uid-5": "node-5", "uid-6": "node-6"}
    await until(lambda: paused_names(world) == {"node-6"}, "known by now")
    running.cancel()


async def test_a_circuit_breaker_closed_meanwhile_is_not_overwritten(world: World) -> None:
    breaker = world.breaker()
    await deleted(breaker, range(8))
    world.present = {"uid-5": "node-5"}
    original = world.kube.api.send
    closed = asyncio.Event()

    async def send(request: HttpRequest) -> Any:
        if request.method == "PUT" and not closed.is_set():
            world.close()
            closed.set()
        return await original(request)

    world.kube.api.send = send  # type: ignore[method-assign]
    running = asyncio.create_task(breaker.run())
    await until(lambda: world.released == 1, "the closing is noticed")
    assert await deleted(breaker, range(5, 8)) == 3
    running.cancel()


async def test_a_quiet_circuit_breaker_reads_once_a_term(world: World) -> None:
    other = World()
    await deleted(other.breaker(), range(6))
    before = len(other.kube.api.requests)
    running = [asyncio.create_task(item.breaker().run()) for item in (world, other)]
    await until(lambda: len(other.kube.api.requests) >= before + 10, "an open one is looked at ten times")
    assert len(world.kube.api.requests) == 1
    assert world.sample("trellis_circuit_breaker_open") == 0
    for task in running:
        task.cancel()


async def test_a_new_leader_shows_what_is_open_before_anything_is_destroyed(world: World) -> None:
    await deleted(world.breaker(), range(6))
    successor = world.breaker()
    running = asyncio.create_task(successor.run())
    world.kube.telemetry.metrics.circuit_breaker_open.labels("node_watcher", "nodes").set(0)
    await until(lambda: world.sample("trellis_circuit_breaker_open") == 1, "shown")
    running.cancel()


async def test_a_cancelled_asker_leaves_the_others_their_answer(world: World) -> None:
    breaker = world.breaker()
    held = asyncio.Event()

    original = world.kube.api.send

    async def send(request: HttpRequest) -> Any:
        if request.method == "POST" and not held.is_set():
            held.set()
            await asyncio.sleep(0.05)
        return await original(request)

    world.kube.api.send = send  # type: ignore[method-assign]
    first = asyncio.create_task(breaker.admit(target(1)))
    second = asyncio.create_task(breaker.admit(target(2)))
    await held.wait()
    first.cancel()
    assert await second is None


async def test_a_wall_clock_that_is_set_ahead_permits_nothing_more() -> None:
    wall, steady = [1_000_000.0], [0.0]
    world = World(ServerClock(lambda: wall[0], lambda: steady[0]))
    breaker = replace(world.breaker(), clock=None)
    answers = [await breaker.admit(target(number)) for number in range(5)]
    assert answers == [None] * 5
    for wrong in (30 * 86_400.0, 60 * 86_400.0, -3600.0):
        wall[0] += wrong
        steady[0] += 1.0
        assert await breaker.admit(target(5)) is not None, "no 60 s have passed, and it is open for 600 s"


@pytest.mark.parametrize("wrong", [-3600.0, 3600.0, 30 * 86_400.0])
async def test_a_leader_whose_clock_is_wrong_from_the_start_keeps_what_another_opened(wrong: float) -> None:
    clock = ServerClock(lambda: 1_000_000.0 + wrong, lambda: 0.0)
    world = World(clock)
    former = world.breaker()
    for number in range(6):
        await former.admit(target(number))
    assert world.state().opening is not None
    clock.answered(formatdate(world.now, usegmt=True))
    leader = replace(world.breaker(), clock=None)
    assert await leader.admit(target(5)) is not None


async def test_one_of_several_api_servers_that_is_ahead_permits_nothing_more() -> None:
    steady = [0.0]
    clock = ServerClock(lambda: 1_000_000.0, lambda: steady[0])
    world = World(clock)
    breaker = replace(world.breaker(), clock=None)
    assert [await breaker.admit(target(number)) for number in range(5)] == [None] * 5
    clock.answered(formatdate(1_100_000, usegmt=True))
    steady[0] += 1.0
    assert await breaker.admit(target(5)) is not None


def test_a_clock_that_is_set_back_is_followed_and_one_that_is_set_ahead_is_not() -> None:
    wall, steady = [1000.0], [0.0]
    clock = UnhurriedClock(lambda: wall[0], lambda: steady[0])
    assert clock() == 1000.0
    wall[0], steady[0] = 1005.0, 5.0
    assert clock() == 1005.0
    wall[0], steady[0] = 9000.0, 6.0
    assert clock() == 1006.0
    wall[0], steady[0] = 900.0, 7.0
    assert clock() == 900.0
    wall[0], steady[0] = 901.0, 8.0
    assert clock() == 901.0
