"""The behaviour of Applications while servers are unavailable: a suite for the real wadm and for the stand-in.

A class of tests has the fixtures ``apps`` and ``wadm`` of one lattice, and ``servers``, which takes them away.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Any, ClassVar

import nats

from support.lattices.host_world import PATIENCE
from support.lattices.real_lattice import Wadm, application, wasm_component
from support.nodes.fleet import eventually
from support.wadm.application_behaviour import image_of, models, wadm_has, wadm_lacks
from support.wadm.application_world import ApplicationWorld, spec
from trellis import names
from trellis.lattice.domain.subjects import STREAM_MODELS

Manifest = dict[str, Any]
Act = Callable[[], Awaitable[None]]
UNAVAILABLE = {"Ready": ("Unknown", "WadmUnavailable"), "Synced": ("Unknown", "WadmUnavailable")}


@dataclass(frozen=True)
class Servers:
    """Stops servers by force, and starts them again. ``url``: of the NATS while it is there."""

    url: str
    kill_wadm: Act
    start_wadm: Act
    kill_nats: Act
    start_nats: Act

    async def lose_bucket(self) -> None:
        """Delete wadm's storage while wadm is unavailable; it makes another when it starts."""
        await self.kill_wadm()
        client = await nats.connect(self.url)
        try:
            await client.jetstream().delete_stream(STREAM_MODELS)
        finally:
            await client.close()
        await self.start_wadm()


async def unavailable(apps: ApplicationWorld, name: str) -> Manifest:
    """Wait until an Application says that wadm is unavailable."""
    return await apps.until(name, "away", lambda _: apps.conditions(name).items() >= UNAVAILABLE.items())


async def newest_is_seen(apps: ApplicationWorld, name: str) -> Manifest:
    """Wait until what an Application says is about its newest version."""
    return await apps.until(
        name, "seen", lambda found: found["status"]["observedGeneration"] == found["metadata"]["generation"]
    )


async def equal_again(apps: ApplicationWorld, *applications: str) -> None:
    """Wait until nothing says any more that wadm is unavailable."""
    for name in applications:
        await apps.condition(name, "Synced", "True")


class OutageBehaviour:
    """Nothing is lost, nothing is undeployed, and unknown state is reported.

    ``proves``: wadm's storage can be read, and proves what wash deletes.
    """

    proves: ClassVar[bool] = True

    async def test_a_dead_wadm_is_reported_without_any_change(
        self, apps: ApplicationWorld, wadm: Wadm, servers: Servers
    ) -> None:
        apps.group()
        async with apps.manager():
            apps.apply("mine", spec(), annotations={"version": "v1"})
            await wadm.put(application("theirs", wasm_component("echo", "file:///none-1.wasm"), version="w1"))
            before = await apps.synced("mine", version="v1")
            await apps.synced("theirs", deployed=False)
            await servers.kill_wadm()
            try:
                found = await unavailable(apps, "mine")
                await unavailable(apps, "theirs")
                for field in ("phase", "versions", "deployedVersion", "synced"):
                    assert found["status"][field] == before["status"][field]
                assert found["status"]["observedGeneration"] == found["metadata"]["generation"]
                assert apps.conditions("mine")["Stalled"][0] == "False"
            finally:
                await servers.start_wadm()
            await equal_again(apps, "mine", "theirs")
            assert set(await models(wadm)) == {"mine", "theirs"}

    async def test_a_host_group_reports_a_dead_wadm(self, apps: ApplicationWorld, wadm: Wadm, servers: Servers) -> None:
        def condition() -> tuple[str, str]:
            return apps.hosts.condition("group", names.CONDITION_APPLICATIONS_SYNCED)[:2]

        there = ("True", "Synced" if self.proves else "DeletionsNotDetected")
        apps.group()
        async with apps.hosts.service(), apps.manager():
            await wadm.put(application("web", wasm_component("echo", "file:///none-1.wasm"), version="w1"))
            await apps.synced("web", deployed=False)
            await eventually(lambda: condition() == there, "it is said", seconds=PATIENCE)
            await servers.kill_wadm()
            try:
                await eventually(
                    lambda: condition() == ("Unknown", "WadmUnavailable"), "wadm is away", seconds=PATIENCE
                )
            finally:
                await servers.start_wadm()
            await eventually(lambda: condition() == there, "it is there again", seconds=PATIENCE)

    async def test_changes_and_deletions_during_an_outage_of_wadm_are_applied_after_it(
        self, apps: ApplicationWorld, wadm: Wadm, servers: Servers
    ) -> None:
        apps.group()
        async with apps.manager():
            for name in ("changed", "deleted"):
                apps.apply(name, spec())
                await apps.synced(name)
            await servers.kill_wadm()
            try:
                apps.patch("changed", {"spec": spec("file:///none-2.wasm")})
                apps.delete("deleted")
                apps.apply("new", spec())
                for name in ("changed", "new"):
                    await unavailable(apps, name)
                    await newest_is_seen(apps, name)
                await unavailable(apps, "deleted")
                assert apps.find("deleted") is not None
            finally:
                await servers.start_wadm()
            await apps.deleted("deleted")
            await wadm_lacks(wadm, "deleted")
            found = await apps.synced("changed")
            assert image_of(found) == "file:///none-2.wasm"
            await wadm_has(wadm, "changed", deployed_version=found["status"]["synced"]["wadmVersion"])
            await apps.synced("new")

    async def test_during_an_outage_of_nats_nothing_is_deleted_and_changes_of_both_sides_are_found_after_it(
        self, apps: ApplicationWorld, wadm: Wadm, servers: Servers
    ) -> None:
        apps.group()
        async with apps.manager():
            apps.apply("mine", spec())
            await apps.synced("mine")
            await wadm.put(application("theirs", wasm_component("echo", "file:///none-1.wasm"), version="w1"))
            await apps.synced("theirs", deployed=False)
            await servers.kill_nats()
            try:
                await unavailable(apps, "mine")
                await unavailable(apps, "theirs")
                apps.patch("mine", {"spec": spec("file:///none-2.wasm")})
            finally:
                await servers.start_nats()
            assert image_of(await apps.synced("mine")) == "file:///none-2.wasm"
            await equal_again(apps, "mine", "theirs")
            if self.proves:
                await wadm.delete("theirs")
                await apps.deleted("theirs")

    async def test_a_model_lost_from_wadms_storage_is_put_again_and_runs_as_before(
        self, apps: ApplicationWorld, wadm: Wadm, servers: Servers
    ) -> None:
        apps.group()
        async with apps.manager():
            apps.apply("mine", spec())
            await wadm.put(application("theirs", wasm_component("echo", "file:///none-1.wasm"), version="w1"))
            former = (await apps.synced("mine"))["status"]["synced"]["bucket"]
            await apps.synced("theirs", deployed=False)
            await servers.lose_bucket()
            for name, deployed in (("mine", True), ("theirs", False)):
                if self.proves:
                    await apps.until(
                        name, "in another bucket", lambda item: item["status"]["synced"]["bucket"] != former
                    )
                version = apps.status(name)["synced"]["wadmVersion"]
                await wadm_has(wadm, name, deployed_version=version if deployed else None)
                await apps.synced(name, deployed=deployed)
            assert {name: bool(item["deployed_version"]) for name, item in (await models(wadm)).items()} == {
                "mine": True,
                "theirs": False,
            }

    async def test_an_unreachable_lattice_delays_no_other(self, apps: ApplicationWorld, wadm: Wadm) -> None:
        apps.group()
        elsewhere = f"{apps.lattice}-elsewhere"
        apps.group("elsewhere", elsewhere, natsClientPort=1)
        labels = {names.LABEL_LATTICE: apps.lattice}, {names.LABEL_LATTICE: elsewhere}
        async with apps.manager():
            apps.apply("nowhere", spec(), labels=labels[1])
            apps.apply("web", spec(), labels=labels[0])
            await apps.synced("web")
            await unavailable(apps, "nowhere")
            apps.patch("web", {"spec": spec("file:///none-2.wasm")})
            await apps.synced("web")
            await wadm_has(wadm, "web")
            apps.delete("web")
            await apps.deleted("web")
            assert apps.find("nowhere") is not None
            await eventually(
                lambda: UNAVAILABLE.items() <= apps.conditions("nowhere").items(), "still away", seconds=PATIENCE
            )
