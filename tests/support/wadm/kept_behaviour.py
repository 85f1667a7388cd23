"""The behaviour of Applications with any wadm: a suite for the real one and for the stand-in.

A class of tests has the fixtures ``kept`` and ``wadm`` of one lattice.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any, ClassVar

import pytest

from support.lattices.host_world import PATIENCE
from support.lattices.real_lattice import Wadm, application, wasm_component
from support.nodes.fleet import eventually, is_ours
from support.wadm.kept import KeptWorld, spec
from trellis import names
from trellis.kube.resources import APPLICATIONS

Manifest = dict[str, Any]


def image_of(manifest: Manifest) -> str:
    return str(manifest["spec"]["components"][0]["properties"]["image"])


async def models(wadm: Wadm) -> dict[str, Manifest]:
    """Return wadm's applications by name."""
    return {model["name"]: model for model in (await wadm._ask("get", None))["models"]}


async def wadm_has(wadm: Wadm, name: str, **fields: str | None) -> Manifest:
    """Wait until wadm's list shows an application with these fields."""
    found: dict[str, Manifest] = {}
    async with asyncio.timeout(PATIENCE):
        while True:
            found = await models(wadm)
            if name in found and all(found[name].get(key) == value for key, value in fields.items()):
                return found[name]
            await asyncio.sleep(0.1)


async def wadm_lacks(wadm: Wadm, name: str) -> None:
    """Wait until wadm's list does not show an application."""
    async with asyncio.timeout(PATIENCE):
        while True:
            if name not in await models(wadm):
                return
            await asyncio.sleep(0.1)


class KeptBehaviour:
    """Both sides, as people see them. ``proves``: wadm's storage can be read, and proves what wash deletes."""

    proves: ClassVar[bool] = True

    async def delete_with_wash(self, kept: KeptWorld, wadm: Wadm, name: str) -> None:
        """Delete with wash what does not run, and see what that means; it is deleted on both sides then."""
        await wadm.delete(name)
        if not self.proves:
            await wadm_has(wadm, name)
            await kept.synced(name, deployed=False)
            await eventually(
                lambda: "nothing proves" in kept.warnings().get("Restored", ""), "an Event", seconds=PATIENCE
            )
            kept.delete(name)
        await kept.deleted(name)

    async def test_changes_by_kubectl_are_applied_to_wadm(self, kept: KeptWorld, wadm: Wadm) -> None:
        kept.group()
        async with kept.manager():
            kept.apply("web", spec(), annotations={"version": "v1"})
            await kept.synced("web", version="v1")
            await wadm_has(wadm, "web", deployed_version="v1")
            assert names.FINALIZER_APPLICATIONS in kept.find("web")["metadata"]["finalizers"]  # type: ignore[index]

            kept.patch("web", {"spec": spec("file:///none-2.wasm")})
            found = await kept.until("web", "a new version", lambda item: len(item["status"].get("versions", ())) == 2)
            await kept.synced("web")
            found = await kept.synced("web")
            newest = found["status"]["synced"]["wadmVersion"]
            assert newest.startswith("v1-")
            await wadm_has(wadm, "web", deployed_version=newest)

            kept.undeploy("web")
            await kept.synced("web", deployed=False)
            await wadm_has(wadm, "web", deployed_version=None)
            assert (await kept.condition("web", "Ready", "True", "Undeployed"))["status"]["phase"] == "Undeployed"

            kept.undeploy("web", None)
            await kept.synced("web")
            await wadm_has(wadm, "web", deployed_version=newest)

            kept.delete("web")
            await kept.deleted("web")
            await wadm_lacks(wadm, "web")

    async def test_applying_an_equal_manifest_writes_nothing(self, kept: KeptWorld, wadm: Wadm) -> None:
        kept.group()
        async with kept.manager():
            kept.apply("web", spec())
            before = await kept.synced("web")
            await wadm_has(wadm, "web", deployed_version=before["status"]["synced"]["wadmVersion"])
            offset = kept.hosts.fleet.audit_offset()
            for _ in range(5):
                kept.patch("web", {"spec": spec()})
            kept.patch("web", {"metadata": {"annotations": {"kubectl.kubernetes.io/last-applied-configuration": "{}"}}})
            kept.patch("web", {"metadata": {"labels": {"app.kubernetes.io/managed-by": "Helm"}}})
            kept.apply("later", spec())  # what comes after has been seen, so what came before has
            await kept.synced("later")
            writes = [
                write["verb"]
                for write in kept.hosts.fleet.writes(offset)
                if is_ours(write)
                and (write["objectRef"].get("resource"), write["objectRef"].get("name")) == (APPLICATIONS.plural, "web")
                and write["objectRef"].get("namespace") == kept.namespace
            ]
            assert writes == []
            assert len(kept.status("web")["versions"]) == 1

    async def test_changes_by_wash_are_applied_to_kubernetes(self, kept: KeptWorld, wadm: Wadm) -> None:
        kept.group()
        async with kept.manager():
            await wadm.put(application("web", wasm_component("echo", "file:///none-1.wasm"), version="w1"))
            found = await kept.synced("web", deployed=False, version="w1")
            assert found["metadata"]["labels"] == {names.LABEL_LATTICE: kept.lattice}
            assert {
                managed_field["manager"]
                for managed_field in found["metadata"]["managedFields"]
                if "f:spec" in managed_field["fieldsV1"]
            } == {names.FIELD_MANAGER_WADM}
            await wadm.deploy("web", "w1")
            await kept.synced("web", version="w1")

            await wadm.put(application("web", wasm_component("echo", "file:///none-2.wasm"), version="w2"))
            await kept.until("web", "two versions", lambda item: len(item["status"]["versions"]) == 2)
            assert image_of(kept.find("web") or {}) == "file:///none-1.wasm"
            await wadm.deploy("web", "w2")
            assert image_of(await kept.synced("web", version="w2")) == "file:///none-2.wasm"

            await wadm.undeploy("web")
            await kept.synced("web", deployed=False)
            await self.delete_with_wash(kept, wadm, "web")
            await wadm_lacks(wadm, "web")

    async def test_a_name_that_kubernetes_refuses_is_escaped_and_leads_back(self, kept: KeptWorld, wadm: Wadm) -> None:
        kept.group()
        async with kept.manager():
            await wadm.put(application("Web_1", wasm_component("echo", "file:///none-1.wasm"), version="w1"))
            name = names.application_object("Web_1")
            found = await kept.synced(name, deployed=False)
            assert found["metadata"]["annotations"][names.ANNOTATION_APP_NAME] == "Web_1"
            kept.patch(name, {"spec": spec("file:///none-2.wasm")})
            await kept.until(name, "two versions", lambda item: len(item["status"]["versions"]) == 2)
            assert set(await models(wadm)) == {"Web_1"}
            kept.delete(name)
            await kept.deleted(name)
            await wadm_lacks(wadm, "Web_1")

    async def test_changes_made_with_wash_while_the_controller_is_down_are_found_at_start(
        self, kept: KeptWorld, wadm: Wadm
    ) -> None:
        kept.group()
        async with kept.manager():
            kept.apply("kept", spec())
            await wadm.put(application("theirs", wasm_component("echo", "file:///none-1.wasm"), version="w1"))
            await kept.synced("kept")
            await kept.synced("theirs", deployed=False)
        await wadm.delete("theirs")
        await wadm.undeploy("kept")
        await wadm.put(application("new", wasm_component("echo", "file:///none-1.wasm"), version="w1"))
        kept.apply("mine", spec())
        async with kept.manager():
            if self.proves:
                await kept.deleted("theirs")
            else:
                await wadm_has(wadm, "theirs")
                await kept.synced("theirs", deployed=False)
            await kept.synced("kept", deployed=False)
            await kept.synced("new", deployed=False)
            await kept.synced("mine")

    async def test_a_version_named_by_wash_does_not_stay_on_a_manifest_applied_over_it(
        self, kept: KeptWorld, wadm: Wadm
    ) -> None:
        kept.group()
        async with kept.manager():
            kept.apply("web", spec())
            first = (await kept.synced("web"))["status"]["synced"]["wadmVersion"]
            await wadm.put(application("web", wasm_component("echo", "file:///none-2.wasm"), version="w1"))
            await wadm.deploy("web", "w1")
            found = await kept.synced("web", version="w1")
            assert found["metadata"]["annotations"]["version"] == "w1"
            kept.patch("web", {"spec": spec()})  # as what reconciles it with a repository does
            found = await kept.synced("web", version=first)
            assert "version" not in found["metadata"].get("annotations", {})
            assert [version["version"] for version in found["status"]["versions"]] == [first, "w1"]
            await wadm_has(wadm, "web", deployed_version=first)

    async def test_a_manifest_too_large_for_nats_is_reported_with_its_size_and_affects_no_other(
        self, kept: KeptWorld, wadm: Wadm
    ) -> None:
        kept.group()
        async with kept.manager():
            kept.apply("large", spec("file:///" + "x" * 1_100_000))
            found = await kept.condition("large", "Rejected", "True", "TooLarge")
            expected_text = next(
                condition["message"] for condition in found["status"]["conditions"] if condition["type"] == "Ready"
            )
            assert "1,048,576" in expected_text
            assert {kind: item[0] for kind, item in kept.conditions("large").items()} == {
                "Ready": "False",
                "Reconciling": "False",
                "Stalled": "True",
                "Synced": "False",
                "Rejected": "True",
            }
            kept.apply("web", spec())
            await kept.synced("web")
            assert set(await models(wadm)) == {"web"}
            kept.patch("large", {"spec": spec()})
            await kept.synced("large")
            assert "Rejected" not in kept.conditions("large")

    async def test_versions_that_do_not_fit_into_one_entry_of_wadms_storage_are_reported(
        self, kept: KeptWorld, wadm: Wadm
    ) -> None:
        kept.group()
        async with kept.manager():
            kept.apply("web", spec("file:///" + "x" * 600_000))
            first = (await kept.synced("web"))["status"]["synced"]["wadmVersion"]
            kept.patch("web", {"spec": spec("file:///" + "y" * 600_000)})
            found = await kept.condition("web", "Rejected", "True", "TooLarge")
            expected_text = next(
                condition["message"] for condition in found["status"]["conditions"] if condition["type"] == "Ready"
            )
            assert " 2 versions" in expected_text
            assert "wash app delete" in expected_text
            await wadm_has(wadm, "web", deployed_version=first)
            kept.patch("web", {"spec": spec()})
            await kept.synced("web")

    @pytest.mark.thorough
    async def test_fifty_at_once_come_from_both_sides_and_go_from_the_other(self, kept: KeptWorld, wadm: Wadm) -> None:
        applied = [f"applied-{number}" for number in range(25)]
        put = [f"put-{number}" for number in range(25)]

        async def with_kubectl(call: Callable[[str], object], names_: list[str]) -> None:
            for name in names_:
                call(name)
                await asyncio.sleep(0)  # wash's turn

        async def deploy(name: str) -> None:
            await wadm.put(application(name, wasm_component("echo", "file:///none-1.wasm"), version="w1"))
            await wadm.deploy(name, "w1")

        kept.permit_deletions()
        kept.group()
        async with kept.manager():
            await asyncio.gather(with_kubectl(lambda name: kept.apply(name, spec()), applied), *map(deploy, put))
            for name in applied + put:
                await kept.synced(name)
            assert {name for name, item in (await models(wadm)).items() if item["deployed_version"]} == {*applied, *put}
            if self.proves:
                await asyncio.gather(with_kubectl(kept.delete, put), *map(wadm.delete, applied))
            else:
                await with_kubectl(kept.delete, put + applied)
            for name in applied + put:
                await kept.deleted(name)
            assert await models(wadm) == {}
