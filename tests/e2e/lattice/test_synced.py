"""kubectl and wash agree on Applications: a real API server, a real wadm."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest

from support.lattices.host_world import PATIENCE
from support.lattices.real_lattice import RealLattice, Wadm, wasm_component
from support.nodes.fleet import eventually
from support.wadm.application_behaviour import ApplicationBehaviour, image_of, wadm_has
from support.wadm.application_world import ApplicationWorld, spec

pytestmark = pytest.mark.cluster

EMPTY_COMPONENT = bytes.fromhex("0061736d0d000100")
READY = ("Ready", "True")


class TestWadm(ApplicationBehaviour):
    """With the real one; the stand-in is held to the same."""


async def test_a_refusal_of_wadm_is_reported_in_its_words_and_resolved_by_another_manifest(
    apps: ApplicationWorld, wadm: Wadm
) -> None:
    apps.group()
    async with apps.manager():
        target = {"namespace": "wasi", "package": "http", "interfaces": ["x"], "target": "nobody"}
        broken = wasm_component("echo", "file:///none-1.wasm")
        broken["traits"] = [*broken["traits"], {"type": "link", "properties": target}]
        apps.apply("web", {"components": [broken]})
        found = await apps.condition("web", "Rejected", "True", "Rejected")
        assert "nobody" in str(found["status"]["conditions"])
        assert apps.conditions("web")["Stalled"][0] == "True"
        await eventually(lambda: "Rejected" in apps.warnings(), "an Event", seconds=PATIENCE)
        apps.patch("web", {"spec": spec()})
        await apps.synced("web")
        assert "Rejected" not in apps.conditions("web")
        await wadm_has(wadm, "web")


async def test_while_wadm_is_unavailable_nothing_is_lost_and_changes_go_on_when_it_is_back(
    apps: ApplicationWorld, wadm: Wadm, real_lattice: RealLattice
) -> None:
    apps.group()
    async with apps.manager():
        apps.apply("web", spec())
        await apps.synced("web")
        await asyncio.to_thread(real_lattice.kill_wadm)
        try:
            apps.patch("web", {"spec": spec("file:///none-2.wasm")})
            await apps.condition("web", "Synced", "Unknown", "WadmUnavailable")
        finally:
            await asyncio.to_thread(real_lattice.start_wadm)
        found = await apps.synced("web")
        await wadm_has(wadm, "web", deployed_version=found["status"]["synced"]["wadmVersion"])
        assert image_of(found) == "file:///none-2.wasm"


async def test_a_version_that_fails_is_never_ready_with_the_word_about_the_one_before(
    apps: ApplicationWorld, wadm: Wadm, real_lattice: RealLattice, tmp_path: Path
) -> None:
    good = tmp_path / "good.wasm"
    good.write_bytes(EMPTY_COMPONENT)
    apps.group()
    async with real_lattice.hosts(apps.lattice), apps.manager():
        apps.apply("web", spec(f"file://{good}"))
        await apps.condition("web", "Ready", "True", "Deployed")
        changed = apps.patch("web", {"spec": spec(f"file://{tmp_path}/none.wasm")})
        ready: list[Any] = []

        def failed(one: dict[str, Any]) -> bool:
            status = one["status"]
            if status["observedGeneration"] == changed["metadata"]["generation"]:
                ready.extend(each for each in status["conditions"] if (each["type"], each["status"]) == READY)
            return bool(status["phase"] == "Failed" and status["observedGeneration"] > 1)

        found = await apps.until("web", "failed", failed)
        assert ready == []
        assert "failed to fetch component" in found["status"]["scalers"][0]["message"]
        await wadm_has(wadm, "web", deployed_version=found["status"]["synced"]["wadmVersion"])
