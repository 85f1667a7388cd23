"""Statuses of wadm at the limits of size and storage: a stand-in for wadm."""

from __future__ import annotations

import json

import pytest

from support.suite.settling import settle
from support.wadm.application_world import ApplicationWorld, spec
from support.wadm.wadm_stand_in import WadmStandIn

pytestmark = [pytest.mark.cluster, pytest.mark.nats]


@pytest.mark.thorough
async def test_the_largest_status_has_room_beside_the_largest_manifest(
    apps: ApplicationWorld, stand_in: WadmStandIn
) -> None:
    apps.group()
    async with apps.manager():
        apps.apply("web", spec("file:///" + "x" * 1_040_000))
        await apps.synced("web")
        scalers = [
            {
                "id": f"{at:064}",
                "kind": "SpreadScaler",
                "name": f"web-{at}",
                "status": {"type": "failed" if at % 2 else "deployed", "message": "no host fits " * 12},
            }
            for at in range(3200)
        ]
        message = {"status": {"type": "failed", "message": "no host fits"}, "scalers": scalers}
        payload = json.dumps(message).encode()
        assert 900_000 < len(payload) < 2**20
        await stand_in.client.publish(f"wadm.status.{stand_in.lattice}.web", payload)
        await settle(stand_in.client)
        found = await apps.condition("web", "Ready", "False", "Failed")
        shown = found["status"]["scalers"]
        assert {item["status"] for item in shown} == {"failed"}
        assert len(shown) + found["status"]["scalersLeftOut"] == len(scalers)
        await stand_in.publish("web", "deployed")
        found = await apps.condition("web", "Ready", "True", "Deployed")
        assert "scalersLeftOut" not in found["status"]


@pytest.mark.thorough
async def test_a_new_version_does_not_take_its_readiness_from_the_status_of_the_former_version(
    apps: ApplicationWorld, stand_in: WadmStandIn
) -> None:
    apps.group()
    async with apps.manager():
        apps.apply("web", spec())
        first = await apps.synced("web")
        await stand_in.publish("web", "deployed")
        await apps.condition("web", "Ready", "True", "Deployed")
        apps.patch("web", {"spec": spec("file:///none-2.wasm")})
        second = await apps.synced("web")
        assert second["status"]["synced"]["wadmVersion"] != first["status"]["synced"]["wadmVersion"]
        assert second["status"]["phase"] == "Reconciling"
        assert apps.conditions("web")["Ready"] == ("False", "Reconciling")
        await stand_in.publish("web", "deployed")
        await apps.condition("web", "Ready", "True", "Deployed")
        apps.patch("web", {"metadata": {"annotations": {"description": "words alone"}}})
        await apps.until("web", "a third version", lambda item: len(item["status"]["versions"]) == 3)
        third = await apps.synced("web")
        assert third["status"]["synced"]["wadmVersion"] != second["status"]["synced"]["wadmVersion"]
        assert apps.conditions("web")["Ready"] == ("True", "Deployed")


@pytest.mark.thorough
async def test_the_status_of_a_deleted_application_does_not_apply_to_its_successor_of_the_same_name(
    apps: ApplicationWorld, stand_in: WadmStandIn
) -> None:
    apps.group()
    async with apps.manager():
        apps.apply("web", spec())
        await apps.synced("web")
        await stand_in.publish("web", "deployed")
        await apps.condition("web", "Ready", "True", "Deployed")
        apps.delete("web")
        await apps.deleted("web")
        apps.apply("web", spec())  # of which wadm answers what it said last
        found = await apps.synced("web")
        assert found["status"]["phase"] == "Reconciling"
        await stand_in.publish("web", "undeployed", "Manifest has been undeployed")
        await apps.condition("web", "Ready", "False", "Waiting")
        await stand_in.publish("web", "deployed")
        await apps.condition("web", "Ready", "True", "Deployed")


async def test_unreadable_statuses_change_nothing_and_later_ones_count(
    apps: ApplicationWorld, stand_in: WadmStandIn
) -> None:
    apps.group()
    async with apps.manager():
        apps.apply("web", spec())
        await apps.synced("web")
        await stand_in.publish("web", "deployed")
        before = await apps.condition("web", "Ready", "True", "Deployed")
        subject = f"wadm.status.{stand_in.lattice}.web"
        for garbage in (b"", b"{", b"[]", b'{"status": {"type": 7}}', b'{"status": {"type": "failed"}, "scalers": 1}'):
            await stand_in.client.publish(subject, garbage)
        await stand_in.client.publish(f"{subject}.deeper", b'{"status": {"type": "failed"}}')
        apps.apply("later", spec())  # what comes after has been seen, so what came before has
        await apps.synced("later")
        assert apps.status("web") == before["status"]
        await stand_in.publish("web", "failed", "no host")
        await apps.condition("web", "Ready", "False", "Failed")
