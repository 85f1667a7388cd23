"""SecretGrants that the API server does not serve for a while are unknown: nothing is granted for want of one."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from pathlib import Path

import pytest

from support.cluster.api_proxy import ApiProxy
from support.lattices.host_world import PATIENCE
from support.nodes.fleet import eventually
from support.secrets.secrets_host import value
from support.secrets.secrets_world import QUICK, SecretsWorld
from support.suite import planted
from support.suite.tiers import first_of
from trellis.kube.resources import HOST_CONFIGS, SECRET_GRANTS, Resource

pytestmark = [pytest.mark.cluster, pytest.mark.nats]

UNSETTLED = replace(QUICK, settle=0.1)
"""For a service whose grants are not whole as long as the test says so."""


@pytest.mark.thorough
async def test_a_grant_that_cannot_be_listed_does_not_open_its_namespace(
    secret_world: SecretsWorld, tmp_path: Path
) -> None:
    """The owner lets no account be used; without the grant any ServiceAccount of the hosts' namespace could be."""
    secret_world.ready_to_ask()
    source = {"namespace": secret_world.namespace}
    secret_world.grant("nobody", **{"from": [source], "serviceAccounts": []})
    async with ApiProxy(Path(secret_world.hosts.fleet.info.kubeconfig), tmp_path) as proxy:
        proxy.withheld = f"/apis/{SECRET_GRANTS.api_version}/"
        kubeconfig = proxy.kubeconfig(proxy.port, tmp_path / "kubeconfig")
        async with secret_world.backend(UNSETTLED, kubeconfig=kubeconfig) as service, secret_world.asking() as host:
            answer = value(await host.get("db", "password", namespace=secret_world.namespace))
            assert "UpstreamError" in str(answer)
            await eventually(
                lambda: any("watch secretgrants" in reason for reason in service.health.readiness().reasons),
                "not ready for want of SecretGrants",
                seconds=PATIENCE,
            )
            proxy.withheld = ""
            await eventually(lambda: service.health.readiness().ok, "ready again", seconds=PATIENCE)
            assert "PolicyError" in str(value(await host.get("db", "password", namespace=secret_world.namespace)))


@pytest.mark.parametrize("kind", first_of([SECRET_GRANTS, HOST_CONFIGS]), ids=["grants", "host-groups"])
async def test_stale_objects_of_an_unreadable_kind_grant_access_only_for_a_short_time(
    secret_world: SecretsWorld, tmp_path: Path, kind: Resource
) -> None:
    """Its conversion webhook fails, for example: the service does not learn that a namespace was closed meanwhile."""
    world = secret_world
    world.ready_to_ask()
    timings = replace(QUICK, stale=1.0)
    async with ApiProxy(Path(world.hosts.fleet.info.kubeconfig), tmp_path) as proxy:
        kubeconfig = proxy.kubeconfig(proxy.port, tmp_path / "kubeconfig")
        async with world.backend(timings, kubeconfig=kubeconfig) as service, world.asking() as host:

            async def answered(what: str) -> None:
                async with asyncio.timeout(PATIENCE):
                    while what not in str(value(await host.get("db", "password", namespace=world.namespace))):
                        pass

            await answered(planted.VALUE)
            proxy.broken = f"{kind.path(None, None)}"
            proxy.cut_watches()
            await answered("UpstreamError")
            assert any(f"watch {kind.plural}" in reason for reason in service.health.readiness().reasons)
            proxy.broken = ""
            await answered(planted.VALUE)
