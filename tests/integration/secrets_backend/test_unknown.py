"""SecretGrants that the API server does not serve for a while are unknown: nothing is granted for want of one."""

from __future__ import annotations

from pathlib import Path

import pytest

from support.api_proxy import ApiProxy
from support.fleet import eventually
from support.host_world import PATIENCE
from support.secrets_host import value
from support.secrets_world import SecretsWorld
from trellis.kube.resources import SECRET_GRANTS

pytestmark = [pytest.mark.cluster, pytest.mark.nats]


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
        async with secret_world.backend(kubeconfig=kubeconfig) as service, secret_world.asking() as host:
            told = value(await host.get("db", "password", namespace=secret_world.namespace))
            assert "UpstreamError" in str(told)
            await eventually(
                lambda: any("watch secretgrants" in reason for reason in service.health.readiness().reasons),
                "not ready for want of SecretGrants",
                seconds=PATIENCE,
            )
            proxy.withheld = ""
            await eventually(lambda: service.health.readiness().ok, "ready again", seconds=PATIENCE)
            assert "PolicyError" in str(value(await host.get("db", "password", namespace=secret_world.namespace)))
