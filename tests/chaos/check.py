"""Judge a run: compare the end with the model, and check the history, the bus and the finalizers.

In: a ``World`` whose schedule is over. Out: an ``Outcome``. Called by ``run``. Everything has a deadline: a late result
is a violation, too.
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
_DELETION_SECONDS: Final = 90.0
_STAYS_SECONDS: Final = 20.0
"""A machine that stands still for some seconds is no fault; what services write by themselves is found by itself."""


async def check(world: World) -> Outcome:
    """Return the outcome of a run."""
    outcome, patience = Outcome(), Patience(world.processes)
    began = time.monotonic()
    with _seen(outcome):
        await _settle(world, outcome, patience)
    offset = world.fleet.audit_offset()
    for side in world.sides.values():
        await side.release()
    with _seen(outcome):
        outcome.wrong += await none_of(lambda: _left(world), _DELETION_SECONDS, world.log, patience)
    world.log(f"gone after {time.monotonic() - began:.1f} s")
    await world.end()
    world.log(f"ended after {time.monotonic() - began:.1f} s")
    outcome.wrong += world.errors()
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
    """Check something; a check without enough processor time is undecided."""
    try:
        yield
    except NoProcessorError as error:
        outcome.undecided.append(str(error))


async def _settle(world: World, outcome: Outcome, patience: Patience) -> None:
    """Check that the end is the expected one and stays so, and check the dead letters."""
    wanted, began = expected(world.schedule), time.monotonic()
    outcome.wrong += await none_of(lambda: world.wrong(wanted), SETTLE_SECONDS, world.log, patience)
    outcome.settled = time.monotonic() - began
    if outcome.good:
        outcome.wrong += await _quiet(world, patience)
        stays = await none_of(lambda: world.wrong(wanted), _STAYS_SECONDS, world.log, patience)
        outcome.wrong += [f"{stay}, although the state was correct before" for stay in stays]
        world.log(f"quiet after {time.monotonic() - began:.1f} s")
    outcome.wrong += await _dead_letters(world, wanted)


async def _left(world: World) -> list[str]:
    return [item for side in world.sides.values() async for item in side.left()]


async def _quiet(world: World, patience: Patience) -> list[str]:
    """Wait until services write nothing for a while."""
    last: list[dict[str, Any]] = []

    async def look() -> list[str]:
        offset = world.fleet.audit_offset()
        await asyncio.sleep(QUIET_SECONDS)
        last[:] = world.fleet.writes(offset)
        counts = judge.work(last)
        return [f"there is nothing to do, and still they write {dict(counts)}"] if counts else []

    return await none_of(look, _DELETION_SECONDS, world.log, patience)


async def _dead_letters(world: World, wanted: Expected) -> list[str]:
    """Return unexpected dead letters, and the number of missing ones."""
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
    """Return the requested deletions for the first so many writes."""
    deleted = frozenset(name for side in world.sides.values() for name in side.deleted)
    return judge.Case(world.fleet.system, world.fleet.installers, deleted, until)
