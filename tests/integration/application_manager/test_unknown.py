"""Kinds that the API server does not serve for a while are unknown: nothing is taken away for want of their objects."""

from __future__ import annotations

import contextlib
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from support.cluster.api_proxy import ApiProxy
from support.lattices.host_world import PATIENCE
from support.lattices.real_lattice import Wadm
from support.nodes.fleet import eventually
from support.wadm.application_behaviour import wadm_has, wadm_lacks
from support.wadm.application_world import ApplicationWorld, spec
from trellis import names
from trellis.kube.resources import APPLICATIONS, HOST_CONFIGS, Resource
from trellis.runtime.run import LedService

pytestmark = [pytest.mark.cluster, pytest.mark.nats]


@contextlib.asynccontextmanager
async def manager_without(
    apps: ApplicationWorld, folder: Path, kind: Resource
) -> AsyncIterator[tuple[LedService, ApiProxy]]:
    """Start application_manager while a kind is not served."""
    async with ApiProxy(Path(apps.hosts.fleet.info.kubeconfig), folder) as proxy:
        proxy.withheld = f"/apis/{kind.api_version}/"
        async with apps.manager(kubeconfig=proxy.kubeconfig(proxy.port, folder / "kubeconfig")) as service:
            yield service, proxy


async def not_ready_for(service: LedService, kind: Resource) -> None:
    await eventually(
        lambda: any(f"watch {kind.plural}" in reason for reason in service.health.readiness().reasons),
        f"not ready for want of {kind.plural}",
        seconds=PATIENCE,
    )


async def test_host_groups_that_are_not_served_let_no_application_go(
    apps: ApplicationWorld, wadm: Wadm, tmp_path: Path
) -> None:
    """Without a lattice to tell, the finalizer of a deleted Application is removed and wadm keeps its model."""
    apps.group()
    apps.apply("web", spec())
    async with apps.manager():
        await apps.synced("web")
    async with manager_without(apps, tmp_path, HOST_CONFIGS) as (service, proxy):
        await not_ready_for(service, HOST_CONFIGS)
        apps.delete("web")
        found = await apps.condition("web", "Synced", "Unknown", "WadmUnavailable")
        assert names.FINALIZER_APPLICATIONS in found["metadata"]["finalizers"]
        await wadm_has(wadm, "web")
        proxy.withheld = ""
        await apps.deleted("web")
        await wadm_lacks(wadm, "web")
        await eventually(lambda: service.health.readiness().ok, "ready again", seconds=PATIENCE)


async def test_applications_that_are_not_served_are_not_published_as_deleted(
    apps: ApplicationWorld, wadm: Wadm, tmp_path: Path
) -> None:
    apps.group()
    apps.apply("web", spec())
    async with apps.manager():
        synced = await apps.synced("web")
    async with manager_without(apps, tmp_path, APPLICATIONS) as (service, proxy):
        await not_ready_for(service, APPLICATIONS)
        proxy.withheld = ""
        await eventually(lambda: service.health.readiness().ok, "ready again", seconds=PATIENCE)
        apps.apply("later", spec())
        await apps.synced("later")
    events = await apps.hosts.fleet.published_events(2)
    published = [(event.event_name, event.key[-1]) for event in events if event.noun == "application"]
    assert published == [("synced", "web"), ("synced", "later")]
    assert apps.find("web")["metadata"]["uid"] == synced["metadata"]["uid"]  # type: ignore[index]
    await wadm_has(wadm, "web")
