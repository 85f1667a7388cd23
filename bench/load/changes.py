"""One change at a time in a world that is settled, and the duration until its effect was visible.

In: a world, a number of changes. Out: seconds, by kind of change. Called by ``run``. A change is measured from just
before its request is sent until another client sees what follows; the next one is made only then.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable
from typing import Any, Final

from load import objects, sizes
from load.seen import until
from load.world import World, by_wash
from trellis import names
from trellis.kube.resources import APPLICATIONS, CONFIGMAPS, LEASES

PAUSE: Final = 0.1
"""Between two changes: what follows the last one is over, mostly."""
_SECONDS: Final = 300.0
"""A machine may have so much other work that leases are lost, and found again."""

Change = Callable[[World, int, int], Awaitable[float]]
"""Makes the change of a number, with a nonce that no other has; returns how long it took."""


async def node_opted_in(world: World, number: int, _: int) -> float:
    """From the annotation of a node to its Job."""
    name = min(world.spares - world.seen.jobs.keys())
    began = time.monotonic()
    await _patch(world, f"/api/v1/nodes/{name}", {"metadata": {"annotations": {names.ANNOTATION_OPT_IN: "true"}}})
    await _until(lambda: name in world.seen.jobs, f"the Job of {name}, change {number}")
    return world.seen.jobs[name] - began


async def host_started(world: World, number: int, _: int) -> float:
    """A pod of a lattice's hosts becomes ready until the slices of all its applications have it; then it ends again."""
    lattice = number % world.size.lattices
    wanted = [
        sizes.application(item) for item in range(world.size.applications) if world.full.lattice_of(item) == lattice
    ]
    where, seen = objects.address(lattice, objects.STARTED), world.seen
    began = time.monotonic()
    await asyncio.to_thread(world.start_host, lattice, objects.STARTED, ready=True)
    await _until(
        lambda: all(where in seen.slices.get(item, ()) for item in wanted), f"slices of {lattice} with {where}"
    )
    took = max(seen.moved[item] for item in wanted) - began
    await asyncio.to_thread(world.start_host, lattice, objects.STARTED, ready=False)
    await _until(lambda: all(where not in seen.slices[item] for item in wanted), f"slices of {lattice} without {where}")
    return took


async def application_applied(world: World, number: int, nonce: int) -> float:
    """An application is applied with kubectl until wadm has stored and deployed it."""
    ours = [item for item in range(world.size.applications) if not by_wash(item)]
    which = ours[number * max(1, len(ours) // 60) % len(ours)]
    name, lattice = sizes.application(which), sizes.lattice(world.full.lattice_of(which))
    key, deployed = f"{lattice}-{name}", world.seen.deployed
    former = deployed.get(key, ("", 0.0))[0]
    began = time.monotonic()
    body = {"spec": objects.application_spec(str(nonce))}
    await _patch(world, f"{APPLICATIONS.path(lattice, name)}?fieldManager=kubectl", body)
    await _until(lambda: deployed.get(key, (former, 0.0))[0] != former, f"{key} in wadm's storage")
    took = deployed[key][1] - began
    await _until(lambda: world.seen.bases[name] == deployed[key][0], f"{name} has the state of wadm")
    return took


async def object_changed(world: World, number: int, nonce: int) -> float:
    """From the change of a watched object to the write of its controller."""
    which = number * max(1, world.size.controllers // 60) % world.size.controllers
    wanted = sizes.copied(which), str(nonce)
    path = CONFIGMAPS.path(sizes.CONTROLLERS_NAMESPACE, sizes.watched(which))
    began = time.monotonic()
    await _patch(world, path, {"data": {"nonce": wanted[1]}})
    await _until(lambda: wanted in world.seen.copies, f"{wanted[0]} has {wanted[1]}")
    return world.seen.copies[wanted] - began


async def _requested(world: World, nonce: int) -> float:
    """From a patch to its event in a watch, without any service: the part of the API server in all other durations."""
    began = time.monotonic()
    path = LEASES.path(sizes.REQUESTS_NAMESPACE, sizes.REQUEST)
    await _patch(world, path, {"spec": {"holderIdentity": str(nonce)}})
    await _until(lambda: str(nonce) in world.seen.requests, f"{sizes.REQUEST} has {nonce}")
    return world.seen.requests[str(nonce)] - began


CHANGES: Final[dict[str, Change]] = {
    "node": node_opted_in,
    "host": host_started,
    "application": application_applied,
    "controller": object_changed,
}
OF: Final = {"node": "nodes", "host": "lattices", "application": "applications", "controller": "controllers"}
"""Objects of a size that a kind of change requires."""


async def one_after_another(world: World, change: Change, count: int) -> tuple[list[float], list[float]]:
    """Make so many changes, each followed by a request without a service; return the durations of both."""
    first = time.time_ns() // 10**6
    took, requests = [], []
    for number in range(count):
        took.append(await change(world, number, first + number))
        await asyncio.sleep(PAUSE)
        requests.append(await _requested(world, first + number))
    return took, requests


async def _patch(world: World, path: str, body: dict[str, Any]) -> None:
    await asyncio.to_thread(world.patch, path, body)


async def _until(check: Callable[[], bool], what: str) -> None:
    await until(check, lambda: what, _SECONDS)
