"""Many Applications are deleted at once, on either side: the circuit breaker pauses what follows on the other."""

from __future__ import annotations

import http

import pytest

from support.cluster.crd_deletion import define_again, delete_definition
from support.lattices.host_world import PATIENCE
from support.lattices.real_lattice import Wadm
from support.nodes.fleet import eventually
from support.wadm.kept import KeptWorld, spec
from support.wadm.kept_behaviour import wadm_has
from trellis import names
from trellis.kube.breaker import DELETION_PAUSED
from trellis.kube.resources import APPLICATIONS, EVENTS

pytestmark = [pytest.mark.cluster, pytest.mark.nats]

MANY = [f"app-{number}" for number in range(9)]
LIMIT = 5


def there(kept: KeptWorld) -> list[str]:
    return [name for name in MANY if kept.find(name)]


async def others_are_deleted(kept: KeptWorld) -> list[str]:
    """Wait until the circuit breaker pauses the deletion of all that are left; return them."""
    await eventually(lambda: len(there(kept)) == len(MANY) - LIMIT, "five are gone", seconds=PATIENCE)
    paused = there(kept)
    for name in paused:
        await kept.condition(name, "Synced", "False", "MassDeletion")
    found = kept.hosts.call("GET", EVENTS)["items"]
    assert {item["involvedObject"]["name"] for item in found if item["reason"] == DELETION_PAUSED} == set(paused)
    assert there(kept) == paused
    return paused


async def test_applications_deleted_with_their_crd_wait_for_the_circuit_breaker_and_can_be_kept(
    kept: KeptWorld, wadm: Wadm
) -> None:
    kept.group()
    async with kept.manager():
        for name in MANY:
            kept.apply(name, spec())
        former = {name: (await kept.synced(name))["metadata"]["uid"] for name in MANY}
        delete_definition(kept.hosts.api, APPLICATIONS)
        paused = await others_are_deleted(kept)
        for name in paused:
            await wadm_has(wadm, name)
            path = APPLICATIONS.path(kept.namespace, name)
            status, answer = kept.hosts.api.call("PATCH", path, {"metadata": {"finalizers": None}})
            assert status == http.HTTPStatus.OK, answer
        await define_again(kept.hosts.api, APPLICATIONS)
        for name in paused:
            await wadm_has(wadm, name)
            kept.apply(name, spec())
        for name in paused:
            assert (await kept.synced(name))["metadata"]["uid"] != former[name]
            await wadm_has(wadm, name)


async def test_objects_of_many_applications_deleted_in_wadm_wait_for_the_circuit_breaker(
    kept: KeptWorld, wadm: Wadm
) -> None:
    kept.group()
    async with kept.manager():
        for name in MANY:
            kept.apply(name, spec())
        for name in MANY:
            await kept.synced(name)
        for name in MANY:
            await wadm.delete(name)
        await others_are_deleted(kept)


async def test_a_finalizer_removed_by_hand_from_a_living_application_is_put_back(kept: KeptWorld, wadm: Wadm) -> None:
    kept.group()
    async with kept.manager():
        kept.apply("web", spec())
        await kept.synced("web")
        kept.patch("web", {"metadata": {"finalizers": None}})
        await kept.until(
            "web", "held again", lambda item: names.FINALIZER_APPLICATIONS in item["metadata"].get("finalizers", [])
        )
        await wadm_has(wadm, "web")
