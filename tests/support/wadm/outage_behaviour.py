"""The behaviour of Applications while servers are unavailable: a suite for the real wadm and for the stand-in.

A class of tests has the fixtures ``kept`` and ``wadm`` of one lattice, and ``servers``, which takes them away.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Any, ClassVar

import nats

from support.lattices.host_world import PATIENCE
from support.lattices.real_lattice import Wadm, application, wasm_component
from support.nodes.fleet import eventually
from support.wadm.kept import KeptWorld, spec
from support.wadm.kept_behaviour import image_of, models, wadm_has, wadm_lacks
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


async def unavailable(kept: KeptWorld, name: str) -> Manifest:
    """Wait until an Application says that wadm is unavailable."""
    return await kept.until(name, "away", lambda _: kept.conditions(name).items() >= UNAVAILABLE.items())


async def newest_is_seen(kept: KeptWorld, name: str) -> Manifest:
    """Wait until what an Application says is about its newest version."""
    return await kept.until(
        name, "seen", lambda found: found["status"]["observedGeneration"] == found["metadata"]["generation"]
    )


async def equal_again(kept: KeptWorld, *applications: str) -> None:
    """Wait until nothing says any more that wadm is unavailable."""
    for name in applications:
        await kept.condition(name, "Synced", "True")


class OutageBehaviour:
    """Nothing is lost, nothing is undeployed, and unknown state is reported.

    ``proves``: wadm's storage can be read, and proves what wash deletes.
    """

    proves: ClassVar[bool] = True

    async def test_a_dead_wadm_is_reported_without_any_change(
        self, kept: KeptWorld, wadm: Wadm, servers: Servers
    ) -> None:
        kept.group()
        async with kept.manager():
            kept.apply("mine", spec(), annotations={"version": "v1"})
            await wadm.put(application("theirs", wasm_component("echo", "file:///none-1.wasm"), version="w1"))
            before = await kept.synced("mine", version="v1")
            await kept.synced("theirs", deployed=False)
            await servers.kill_wadm()
            try:
                found = await unavailable(kept, "mine")
                await unavailable(kept, "theirs")
                for field in ("phase", "versions", "deployedVersion", "synced"):
                    assert found["status"][field] == before["status"][field]
                assert found["status"]["observedGeneration"] == found["metadata"]["generation"]
                assert kept.conditions("mine")["Stalled"][0] == "False"
            finally:
                await servers.start_wadm()
            await equal_again(kept, "mine", "theirs")
            assert set(await models(wadm)) == {"mine", "theirs"}

    async def test_a_host_group_reports_a_dead_wadm(self, kept: KeptWorld, wadm: Wadm, servers: Servers) -> None:
        def condition() -> tuple[str, str]:
            return kept.hosts.condition("group", names.CONDITION_APPLICATIONS_SYNCED)[:2]

        there = ("True", "Synced" if self.proves else "DeletionsNotProved")
        kept.group()
        async with kept.hosts.service(), kept.manager():
            await wadm.put(application("web", wasm_component("echo", "file:///none-1.wasm"), version="w1"))
            await kept.synced("web", deployed=False)
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
        self, kept: KeptWorld, wadm: Wadm, servers: Servers
    ) -> None:
        kept.group()
        async with kept.manager():
            for name in ("changed", "deleted"):
                kept.apply(name, spec())
                await kept.synced(name)
            await servers.kill_wadm()
            try:
                kept.patch("changed", {"spec": spec("file:///none-2.wasm")})
                kept.delete("deleted")
                kept.apply("new", spec())
                for name in ("changed", "new"):
                    await unavailable(kept, name)
                    await newest_is_seen(kept, name)
                await unavailable(kept, "deleted")
                assert kept.find("deleted") is not None
            finally:
                await servers.start_wadm()
            await kept.deleted("deleted")
            await wadm_lacks(wadm, "deleted")
            found = await kept.synced("changed")
            assert image_of(found) == "file:///none-2.wasm"
            await wadm_has(wadm, "changed", deployed_version=found["status"]["synced"]["wadmVersion"])
            await kept.synced("new")

    async def test_during_an_outage_of_nats_nothing_is_deleted_and_changes_of_both_sides_are_found_after_it(
        self, kept: KeptWorld, wadm: Wadm, servers: Servers
    ) -> None:
        kept.group()
        async with kept.manager():
            kept.apply("mine", spec())
            await kept.synced("mine")
            await wadm.put(application("theirs", wasm_component("echo", "file:///none-1.wasm"), version="w1"))
            await kept.synced("theirs", deployed=False)
            await servers.kill_nats()
            try:
                await unavailable(kept, "mine")
                await unavailable(kept, "theirs")
                kept.patch("mine", {"spec": spec("file:///none-2.wasm")})
            finally:
                await servers.start_nats()
            assert image_of(await kept.synced("mine")) == "file:///none-2.wasm"
            await equal_again(kept, "mine", "theirs")
            if self.proves:
                await wadm.delete("theirs")
                await kept.deleted("theirs")

    async def test_a_model_lost_from_wadms_storage_is_put_again_and_runs_as_before(
        self, kept: KeptWorld, wadm: Wadm, servers: Servers
    ) -> None:
        kept.group()
        async with kept.manager():
            kept.apply("mine", spec())
            await wadm.put(application("theirs", wasm_component("echo", "file:///none-1.wasm"), version="w1"))
            former = (await kept.synced("mine"))["status"]["synced"]["bucket"]
            await kept.synced("theirs", deployed=False)
            await servers.lose_bucket()
            for name, deployed in (("mine", True), ("theirs", False)):
                if self.proves:
                    await kept.until(
                        name, "in another bucket", lambda item: item["status"]["synced"]["bucket"] != former
                    )
                version = kept.status(name)["synced"]["wadmVersion"]
                await wadm_has(wadm, name, deployed_version=version if deployed else None)
                await kept.synced(name, deployed=deployed)
            assert {name: bool(item["deployed_version"]) for name, item in (await models(wadm)).items()} == {
                "mine": True,
                "theirs": False,
            }

    async def test_an_unreachable_lattice_delays_no_other(self, kept: KeptWorld, wadm: Wadm) -> None:
        kept.group()
        elsewhere = f"{kept.lattice}-elsewhere"
        kept.group("elsewhere", elsewhere, natsClientPort=1)
        labels = {names.LABEL_LATTICE: kept.lattice}, {names.LABEL_LATTICE: elsewhere}
        async with kept.manager():
            kept.apply("nowhere", spec(), labels=labels[1])
            kept.apply("web", spec(), labels=labels[0])
            await kept.synced("web")
            await unavailable(kept, "nowhere")
            kept.patch("web", {"spec": spec("file:///none-2.wasm")})
            await kept.synced("web")
            await wadm_has(wadm, "web")
            kept.delete("web")
            await kept.deleted("web")
            assert kept.find("nowhere") is not None
            await eventually(
                lambda: UNAVAILABLE.items() <= kept.conditions("nowhere").items(), "still away", seconds=PATIENCE
            )
