"""The behaviour of Applications with any wadm: a suite for the real one and for the stand-in.

A class of tests has the fixtures ``apps`` and ``wadm`` of one lattice.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any, ClassVar

import pytest

from support.lattices.host_world import PATIENCE
from support.lattices.real_lattice import Wadm, application, wasm_component
from support.nodes.fleet import eventually, is_ours
from support.wadm.application_world import ApplicationWorld, spec
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


class ApplicationBehaviour:
    """Both sides, as people see them. ``proves``: wadm's storage can be read, and proves what wash deletes."""

    proves: ClassVar[bool] = True

    async def delete_with_wash(self, apps: ApplicationWorld, wadm: Wadm, name: str) -> None:
        """Delete with wash what does not run, and see what that means; it is deleted on both sides then."""
        await wadm.delete(name)
        if not self.proves:
            await wadm_has(wadm, name)
            await apps.synced(name, deployed=False)
            await eventually(
                lambda: "not confirmed" in apps.warnings().get("Restored", ""), "an Event", seconds=PATIENCE
            )
            apps.delete(name)
        await apps.deleted(name)

    async def test_changes_by_kubectl_are_applied_to_wadm(self, apps: ApplicationWorld, wadm: Wadm) -> None:
        apps.group()
        async with apps.manager():
            apps.apply("web", spec(), annotations={"version": "v1"})
            await apps.synced("web", version="v1")
            await wadm_has(wadm, "web", deployed_version="v1")
            assert names.FINALIZER_APPLICATIONS in apps.find("web")["metadata"]["finalizers"]  # type: ignore[index]

            apps.patch("web", {"spec": spec("file:///none-2.wasm")})
            found = await apps.until("web", "a new version", lambda item: len(item["status"].get("versions", ())) == 2)
            await apps.synced("web")
            found = await apps.synced("web")
            newest = found["status"]["synced"]["wadmVersion"]
            assert newest.startswith("v1-")
            await wadm_has(wadm, "web", deployed_version=newest)

            apps.undeploy("web")
            await apps.synced("web", deployed=False)
            await wadm_has(wadm, "web", deployed_version=None)
            assert (await apps.condition("web", "Ready", "True", "Undeployed"))["status"]["phase"] == "Undeployed"

            apps.undeploy("web", None)
            await apps.synced("web")
            await wadm_has(wadm, "web", deployed_version=newest)

            apps.delete("web")
            await apps.deleted("web")
            await wadm_lacks(wadm, "web")

    async def test_applying_an_equal_manifest_writes_nothing(self, apps: ApplicationWorld, wadm: Wadm) -> None:
        apps.group()
        async with apps.manager():
            apps.apply("web", spec())
            before = await apps.synced("web")
            await wadm_has(wadm, "web", deployed_version=before["status"]["synced"]["wadmVersion"])
            offset = apps.hosts.fleet.audit_offset()
            for _ in range(5):
                apps.patch("web", {"spec": spec()})
            apps.patch("web", {"metadata": {"annotations": {"kubectl.kubernetes.io/last-applied-configuration": "{}"}}})
            apps.patch("web", {"metadata": {"labels": {"app.kubernetes.io/managed-by": "Helm"}}})
            apps.apply("later", spec())  # what comes after has been seen, so what came before has
            await apps.synced("later")
            writes = [
                write["verb"]
                for write in apps.hosts.fleet.writes(offset)
                if is_ours(write)
                and (write["objectRef"].get("resource"), write["objectRef"].get("name")) == (APPLICATIONS.plural, "web")
                and write["objectRef"].get("namespace") == apps.namespace
            ]
            assert writes == []
            assert len(apps.status("web")["versions"]) == 1

    async def test_changes_by_wash_are_applied_to_kubernetes(self, apps: ApplicationWorld, wadm: Wadm) -> None:
        apps.group()
        async with apps.manager():
            await wadm.put(application("web", wasm_component("echo", "file:///none-1.wasm"), version="w1"))
            found = await apps.synced("web", deployed=False, version="w1")
            assert found["metadata"]["labels"] == {names.LABEL_LATTICE: apps.lattice}
            assert {
                managed_field["manager"]
                for managed_field in found["metadata"]["managedFields"]
                if "f:spec" in managed_field["fieldsV1"]
            } == {names.FIELD_MANAGER_WADM}
            await wadm.deploy("web", "w1")
            await apps.synced("web", version="w1")

            await wadm.put(application("web", wasm_component("echo", "file:///none-2.wasm"), version="w2"))
            await apps.until("web", "two versions", lambda item: len(item["status"]["versions"]) == 2)
            assert image_of(apps.find("web") or {}) == "file:///none-1.wasm"
            await wadm.deploy("web", "w2")
            assert image_of(await apps.synced("web", version="w2")) == "file:///none-2.wasm"

            await wadm.undeploy("web")
            await apps.synced("web", deployed=False)
            await self.delete_with_wash(apps, wadm, "web")
            await wadm_lacks(wadm, "web")

    async def test_a_name_that_kubernetes_refuses_is_escaped_and_leads_back(
        self, apps: ApplicationWorld, wadm: Wadm
    ) -> None:
        apps.group()
        async with apps.manager():
            await wadm.put(application("Web_1", wasm_component("echo", "file:///none-1.wasm"), version="w1"))
            name = names.application_object("Web_1")
            found = await apps.synced(name, deployed=False)
            assert found["metadata"]["annotations"][names.ANNOTATION_APP_NAME] == "Web_1"
            apps.patch(name, {"spec": spec("file:///none-2.wasm")})
            await apps.until(name, "two versions", lambda item: len(item["status"]["versions"]) == 2)
            assert set(await models(wadm)) == {"Web_1"}
            apps.delete(name)
            await apps.deleted(name)
            await wadm_lacks(wadm, "Web_1")

    async def test_changes_made_with_wash_while_the_controller_is_down_are_found_at_start(
        self, apps: ApplicationWorld, wadm: Wadm
    ) -> None:
        apps.group()
        async with apps.manager():
            apps.apply("kept", spec())
            await wadm.put(application("theirs", wasm_component("echo", "file:///none-1.wasm"), version="w1"))
            await apps.synced("kept")
            await apps.synced("theirs", deployed=False)
        await wadm.delete("theirs")
        await wadm.undeploy("kept")
        await wadm.put(application("new", wasm_component("echo", "file:///none-1.wasm"), version="w1"))
        apps.apply("mine", spec())
        async with apps.manager():
            if self.proves:
                await apps.deleted("theirs")
            else:
                await wadm_has(wadm, "theirs")
                await apps.synced("theirs", deployed=False)
            await apps.synced("kept", deployed=False)
            await apps.synced("new", deployed=False)
            await apps.synced("mine")

    async def test_a_version_named_by_wash_does_not_stay_on_a_manifest_applied_over_it(
        self, apps: ApplicationWorld, wadm: Wadm
    ) -> None:
        apps.group()
        async with apps.manager():
            apps.apply("web", spec())
            first = (await apps.synced("web"))["status"]["synced"]["wadmVersion"]
            await wadm.put(application("web", wasm_component("echo", "file:///none-2.wasm"), version="w1"))
            await wadm.deploy("web", "w1")
            found = await apps.synced("web", version="w1")
            assert found["metadata"]["annotations"]["version"] == "w1"
            apps.patch("web", {"spec": spec()})  # as what reconciles it with a repository does
            found = await apps.synced("web", version=first)
            assert "version" not in found["metadata"].get("annotations", {})
            assert [version["version"] for version in found["status"]["versions"]] == [first, "w1"]
            await wadm_has(wadm, "web", deployed_version=first)

    async def test_a_manifest_too_large_for_nats_is_reported_with_its_size_and_affects_no_other(
        self, apps: ApplicationWorld, wadm: Wadm
    ) -> None:
        apps.group()
        async with apps.manager():
            apps.apply("large", spec("file:///" + "x" * 1_100_000))
            found = await apps.condition("large", "Rejected", "True", "TooLarge")
            expected_text = next(
                condition["message"] for condition in found["status"]["conditions"] if condition["type"] == "Ready"
            )
            assert "1,048,576" in expected_text
            assert {kind: item[0] for kind, item in apps.conditions("large").items()} == {
                "Ready": "False",
                "Reconciling": "False",
                "Stalled": "True",
                "Synced": "False",
                "Rejected": "True",
            }
            apps.apply("web", spec())
            await apps.synced("web")
            assert set(await models(wadm)) == {"web"}
            apps.patch("large", {"spec": spec()})
            await apps.synced("large")
            assert "Rejected" not in apps.conditions("large")

    async def test_versions_that_do_not_fit_into_one_entry_of_wadms_storage_are_reported(
        self, apps: ApplicationWorld, wadm: Wadm
    ) -> None:
        apps.group()
        async with apps.manager():
            apps.apply("web", spec("file:///" + "x" * 600_000))
            first = (await apps.synced("web"))["status"]["synced"]["wadmVersion"]
            apps.patch("web", {"spec": spec("file:///" + "y" * 600_000)})
            found = await apps.condition("web", "Rejected", "True", "TooLarge")
            expected_text = next(
                condition["message"] for condition in found["status"]["conditions"] if condition["type"] == "Ready"
            )
            assert " 2 versions" in expected_text
            assert "wash app delete" in expected_text
            await wadm_has(wadm, "web", deployed_version=first)
            apps.patch("web", {"spec": spec()})
            await apps.synced("web")

    @pytest.mark.thorough
    async def test_fifty_at_once_come_from_both_sides_and_go_from_the_other(
        self, apps: ApplicationWorld, wadm: Wadm
    ) -> None:
        applied = [f"applied-{number}" for number in range(25)]
        put = [f"put-{number}" for number in range(25)]

        async def with_kubectl(call: Callable[[str], object], names_: list[str]) -> None:
            for name in names_:
                call(name)
                await asyncio.sleep(0)  # wash's turn

        async def deploy(name: str) -> None:
            await wadm.put(application(name, wasm_component("echo", "file:///none-1.wasm"), version="w1"))
            await wadm.deploy(name, "w1")

        apps.permit_deletions()
        apps.group()
        async with apps.manager():
            await asyncio.gather(with_kubectl(lambda name: apps.apply(name, spec()), applied), *map(deploy, put))
            for name in applied + put:
                await apps.synced(name)
            assert {name for name, item in (await models(wadm)).items() if item["deployed_version"]} == {*applied, *put}
            if self.proves:
                await asyncio.gather(with_kubectl(apps.delete, put), *map(wadm.delete, applied))
            else:
                await with_kubectl(apps.delete, put + applied)
            for name in applied + put:
                await apps.deleted(name)
            assert await models(wadm) == {}
