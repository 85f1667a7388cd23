"""Many Applications are deleted at once, on either side: the circuit breaker pauses what follows on the other."""

from __future__ import annotations

import http

import pytest

from support.cluster.crd_deletion import define_again, delete_definition
from support.lattices.host_world import PATIENCE
from support.lattices.real_lattice import Wadm
from support.nodes.fleet import eventually
from support.wadm.application_behaviour import wadm_has
from support.wadm.application_world import ApplicationWorld, spec
from trellis import names
from trellis.kube.breaker import DELETION_PAUSED
from trellis.kube.resources import APPLICATIONS, EVENTS

pytestmark = [pytest.mark.cluster, pytest.mark.nats]

MANY = [f"app-{number}" for number in range(9)]
LIMIT = 5


def there(apps: ApplicationWorld) -> list[str]:
    return [name for name in MANY if apps.find(name)]


def reported(apps: ApplicationWorld) -> set[str]:
    """Return the Applications with an Event of a paused deletion."""
    found = apps.hosts.call("GET", EVENTS)["items"]
    return {item["involvedObject"]["name"] for item in found if item["reason"] == DELETION_PAUSED}


async def others_are_deleted(apps: ApplicationWorld) -> list[str]:
    """Wait until the circuit breaker pauses the deletion of all that are left; return them."""
    await eventually(lambda: len(there(apps)) == len(MANY) - LIMIT, "five are gone", seconds=PATIENCE)
    paused = there(apps)
    for name in paused:
        await apps.condition(name, "Synced", "False", "MassDeletion")
    await eventually(lambda: reported(apps) == set(paused), "an Event on each", seconds=PATIENCE)
    assert there(apps) == paused
    return paused


async def test_applications_deleted_with_their_crd_wait_for_the_circuit_breaker_and_can_be_kept(
    apps: ApplicationWorld, wadm: Wadm
) -> None:
    apps.group()
    async with apps.manager():
        for name in MANY:
            apps.apply(name, spec())
        former = {name: (await apps.synced(name))["metadata"]["uid"] for name in MANY}
        delete_definition(apps.hosts.api, APPLICATIONS)
        paused = await others_are_deleted(apps)
        for name in paused:
            await wadm_has(wadm, name)
            path = APPLICATIONS.path(apps.namespace, name)
            status, answer = apps.hosts.api.call("PATCH", path, {"metadata": {"finalizers": None}})
            assert status == http.HTTPStatus.OK, answer
        await define_again(apps.hosts.api, APPLICATIONS)
        for name in paused:
            await wadm_has(wadm, name)
            apps.apply(name, spec())
        for name in paused:
            assert (await apps.synced(name))["metadata"]["uid"] != former[name]
            await wadm_has(wadm, name)


async def test_objects_of_many_applications_deleted_in_wadm_wait_for_the_circuit_breaker(
    apps: ApplicationWorld, wadm: Wadm
) -> None:
    apps.group()
    async with apps.manager():
        for name in MANY:
            apps.apply(name, spec())
        for name in MANY:
            await apps.synced(name)
        for name in MANY:
            await wadm.delete(name)
        await others_are_deleted(apps)


async def test_a_finalizer_removed_by_hand_from_a_living_application_is_put_back(
    apps: ApplicationWorld, wadm: Wadm
) -> None:
    apps.group()
    async with apps.manager():
        apps.apply("web", spec())
        await apps.synced("web")
        apps.patch("web", {"metadata": {"finalizers": None}})
        await apps.until(
            "web", "held again", lambda item: names.FINALIZER_APPLICATIONS in item["metadata"].get("finalizers", [])
        )
        await wadm_has(wadm, "web")
