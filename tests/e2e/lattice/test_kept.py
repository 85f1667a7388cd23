"""kubectl and wash agree on Applications: a real API server, a real wadm."""

from __future__ import annotations

import asyncio

import pytest

from support.fleet import eventually
from support.host_world import PATIENCE
from support.kept import KeptWorld, spec
from support.kept_behaviour import KeptBehaviour, image_of, wadm_has
from support.real_lattice import RealLattice, Wadm, wasm_component

pytestmark = [pytest.mark.cluster, pytest.mark.xdist_group("cluster")]


class TestWadm(KeptBehaviour):
    """With the real one; the stand-in is held to the same."""


async def test_what_wadm_refuses_is_told_in_its_words_and_mended_by_another_manifest(
    kept: KeptWorld, wadm: Wadm
) -> None:
    kept.group()
    async with kept.manager():
        target = {"namespace": "wasi", "package": "http", "interfaces": ["x"], "target": "nobody"}
        broken = wasm_component("echo", "file:///none-1.wasm")
        broken["traits"] = [*broken["traits"], {"type": "link", "properties": target}]
        kept.apply("web", {"components": [broken]})
        found = await kept.condition("web", "Rejected", "True", "Rejected")
        assert "nobody" in str(found["status"]["conditions"])
        assert kept.said("web")["Stalled"][0] == "True"
        await eventually(lambda: "Rejected" in kept.warnings(), "an Event", seconds=PATIENCE)
        kept.patch("web", {"spec": spec()})
        await kept.synced("web")
        assert "Rejected" not in kept.said("web")
        await wadm_has(wadm, "web")


async def test_while_wadm_is_away_nothing_is_lost_and_changes_go_on_when_it_is_back(
    kept: KeptWorld, wadm: Wadm, real_lattice: RealLattice
) -> None:
    kept.group()
    async with kept.manager():
        kept.apply("web", spec())
        await kept.synced("web")
        await asyncio.to_thread(real_lattice.kill_wadm)
        try:
            kept.patch("web", {"spec": spec("file:///none-2.wasm")})
            await kept.condition("web", "Synced", "Unknown", "WadmAway")
        finally:
            await asyncio.to_thread(real_lattice.start_wadm)
        found = await kept.synced("web")
        await wadm_has(wadm, "web", deployed_version=found["status"]["synced"]["wadmVersion"])
        assert image_of(found) == "file:///none-2.wasm"
