"""Judge a run: compare the end with the model, and check the history, the bus and the finalizers.

In: a ``World`` whose schedule is over. Out: an ``Outcome``. Called by ``run``. Everything has a deadline: what does
not come about in time is a violation as much as what must not be.
"""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import Iterator
from typing import Any, Final

import nats
import nats.errors
from nats.js.errors import NotFoundError

from chaos import judge
from chaos.bus_faults import GARBAGE
from chaos.fault_plan import Fault
from chaos.model import Expected, expected
from chaos.outcome import Outcome
from chaos.waiting import NoProcessorError, Patience, none_of
from chaos.world import World
from trellis.events.subjects import STREAM_DEAD

SETTLE_SECONDS: Final = 180.0
QUIET_SECONDS: Final = 4.0
_GONE_SECONDS: Final = 90.0
_STAYS_SECONDS: Final = 20.0
"""A machine that stands still for some seconds is no fault; what services write by themselves is found by itself."""


async def check(world: World) -> Outcome:
    """Return what came of a run."""
    outcome, patience = Outcome(), Patience(world.processes)
    began = time.monotonic()
    with _seen(outcome):
        await _settle(world, outcome, patience)
    offset = world.fleet.audit_offset()
    for side in world.sides.values():
        await side.release()
    with _seen(outcome):
        outcome.wrong += await none_of(lambda: _left(world), _GONE_SECONDS, world.say, patience)
    world.say(f"gone after {time.monotonic() - began:.1f} s")
    await world.end()
    world.say(f"ended after {time.monotonic() - began:.1f} s")
    outcome.wrong += world.reproaches()
    records = world.fleet.writes(world.offset)
    until = len(records) - len(world.fleet.writes(offset))
    outcome.wrong += judge.violations(records, _case(world, until))
    counts = judge.work(records)
    outcome.writes, outcome.jobs = counts.total(), counts["jobs"]
    outcome.starts = sum(replica.starts for replica in world.replicas.values())
    outcome.repeated = world.kubelets.repeated
    return outcome


@contextlib.contextmanager
def _seen(outcome: Outcome) -> Iterator[None]:
    """See something; what cannot be seen for want of a processor is neither right nor wrong."""
    try:
        yield
    except NoProcessorError as error:
        outcome.undecided.append(str(error))


async def _settle(world: World, outcome: Outcome, patience: Patience) -> None:
    """See whether the end is what it has to be and stays so, and who has a dead letter."""
    wanted, began = expected(world.schedule), time.monotonic()
    outcome.wrong += await none_of(lambda: world.wrong(wanted), SETTLE_SECONDS, world.say, patience)
    outcome.settled = time.monotonic() - began
    if outcome.good:
        outcome.wrong += await _quiet(world, patience)
        stays = await none_of(lambda: world.wrong(wanted), _STAYS_SECONDS, world.say, patience)
        outcome.wrong += [f"{stay}, although the state was correct before" for stay in stays]
        world.say(f"quiet after {time.monotonic() - began:.1f} s")
    outcome.wrong += await _letters(world, wanted)


async def _left(world: World) -> list[str]:
    return [item for side in world.sides.values() async for item in side.left()]


async def _quiet(world: World, patience: Patience) -> list[str]:
    """Wait until services write nothing for a while: where nothing is to be done nothing is done."""
    last: list[dict[str, Any]] = []

    async def look() -> list[str]:
        offset = world.fleet.audit_offset()
        await asyncio.sleep(QUIET_SECONDS)
        last[:] = world.fleet.writes(offset)
        counts = judge.work(last)
        return [f"there is nothing to do, and still they write {dict(counts)}"] if counts else []

    return await none_of(look, _GONE_SECONDS, world.say, patience)


async def _letters(world: World, wanted: Expected) -> list[str]:
    """Return the dead letters that are none of what nobody could read, and what became none though it should have."""
    bodies = []
    client = await nats.connect(world.bus.urls)
    try:
        stream = client.jetstream()
        state = (await stream.stream_info(STREAM_DEAD)).state
        for number in range(max(1, state.first_seq), state.last_seq + 1):
            try:
                bodies.append((await stream.get_msg(STREAM_DEAD, number)).data)
            except NotFoundError:
                continue
    except (nats.errors.Error, OSError) as error:
        return [f"the dead letters cannot be read: {error!r}"]
    finally:
        await client.close()
    found = [f"a dead letter of what can be read: {(body or b'')[:300]!r}" for body in bodies if body != GARBAGE]
    kept = not any(step.act == Fault.NATS_WIPE for step in world.schedule.steps)
    if kept and bodies.count(GARBAGE) != wanted.garbage:
        found.append(
            f"{wanted.garbage} messages could not be parsed, and {bodies.count(GARBAGE)} dead letters report them"
        )
    return found


def _case(world: World, until: int) -> judge.Case:
    """Return what people had asked for when the first so many writes had been made."""
    deleted = frozenset(name for side in world.sides.values() for name in side.deleted)
    return judge.Case(world.fleet.system, world.fleet.installers, deleted, until)
