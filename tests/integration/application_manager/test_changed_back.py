"""Changes that users take back before wadm has them, and changes by wash while no controller runs."""

from __future__ import annotations

import pytest

from support.lattices.host_world import PATIENCE
from support.lattices.real_lattice import Wadm, application, wasm_component
from support.nodes.fleet import eventually
from support.wadm.application_behaviour import image_of, wadm_has, wadm_lacks
from support.wadm.application_world import ApplicationWorld, spec
from support.wadm.wadm_stand_in import WadmStandIn

pytestmark = [pytest.mark.cluster, pytest.mark.nats]


async def test_an_application_deployed_again_during_its_undeployment_runs(
    apps: ApplicationWorld, wadm: Wadm, stand_in: WadmStandIn
) -> None:
    apps.group()
    apps.apply("web", spec())
    async with apps.manager():
        await apps.synced("web")
        async with stand_in.thinking():
            apps.undeploy("web")
            await eventually(lambda: "undeploy" in stand_in.requested, "wadm is told", seconds=PATIENCE)
            apps.undeploy("web", None)
        await eventually(lambda: stand_in.requested.count("deploy") >= 2, "wadm is told again", seconds=PATIENCE)
        synced = await apps.synced("web")
        await wadm_has(wadm, "web", deployed_version=synced["status"]["synced"]["wadmVersion"])


async def test_a_manifest_reverted_while_it_is_sent_to_wadm_does_not_return(
    apps: ApplicationWorld, wadm: Wadm, stand_in: WadmStandIn
) -> None:
    apps.group()
    apps.apply("web", spec(), annotations={"version": "v1"})
    async with apps.manager():
        await apps.synced("web", version="v1")
        async with stand_in.thinking():
            apps.patch("web", {"metadata": {"annotations": {"version": "v2"}}, "spec": spec("file:///none-2.wasm")})
            await eventually(lambda: stand_in.requested.count("put") == 2, "wadm is told", seconds=PATIENCE)
            apps.patch("web", {"metadata": {"annotations": {"version": "v1"}}, "spec": spec()})
        await wadm_has(wadm, "web", deployed_version="v1")
        assert image_of(await apps.synced("web", version="v1")) == "file:///none-1.wasm"


async def test_an_application_that_wadm_stores_and_does_not_list_is_listed_again(
    apps: ApplicationWorld, wadm: Wadm, stand_in: WadmStandIn
) -> None:
    """wadm's second write was lost: it refuses the same version from then on, and shows the application to nobody."""
    apps.group()
    stand_in.unlisted.add("web")
    await wadm.put(application("web", wasm_component("echo", "file:///none-1.wasm"), version="v1"))
    await wadm_lacks(wadm, "web")
    async with apps.manager():
        await apps.synced("web", deployed=False, version="v1")
        await wadm_has(wadm, "web", deployed_version=None)
        again = await apps.synced("web", deployed=False, version="v1")
        assert image_of(again) == "file:///none-1.wasm"


@pytest.mark.thorough
async def test_changes_made_with_wash_while_the_controller_is_down_are_shown(
    apps: ApplicationWorld, wadm: Wadm
) -> None:
    """Of the first of these steps the status was written, as if the new version was passed over."""
    first, second = (wasm_component("echo", f"file:///none-{number}.wasm") for number in (1, 2))
    apps.group()
    await wadm.put(application("web", first, version="v1"))
    await wadm.deploy("web", "v1")
    async with apps.manager():
        await apps.synced("web", version="v1")
        await wadm.put(application("web", second, version="v2"))
        await apps.until("web", "both versions", lambda item: len(item["status"].get("versions", ())) == 2)
    await wadm.deploy("web", "v2")
    await wadm.undeploy("web")
    async with apps.manager():
        assert image_of(await apps.synced("web", deployed=False, version="v2")) == "file:///none-2.wasm"
