"""deploy/examples/secret: secrets_backend, with the rights that it has where installed, gives what the policy names.

A stand-in asks as a host does, over the encrypted protocol; a real host asks in tests/e2e/lattice/test_secrets.py.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from support.cluster.grants import SYSTEM, Granted, granted, manifests
from support.examples.applied_examples import Kubectl, trellis
from support.examples.folders import manifest
from support.lattices.host_world import PATIENCE, HostWorld
from support.secrets.secrets_host import Host, value
from support.secrets.secrets_world import SecretsWorld
from trellis.kube.resources import SECRETS
from trellis.names import SECRETS_KEY
from trellis_cli.secrets.model import uses_of
from trellis_dev.localcluster.nats import NatsServer

pytestmark = [pytest.mark.cluster, pytest.mark.nats]

ACCOUNT = "trellis-secrets-backend"
HELLO = "hello"


@pytest.fixture
def world(elsewhere: HostWorld, nats_server: NatsServer) -> SecretsWorld:
    return SecretsWorld(elsewhere, nats_server)


@pytest.fixture
def account(world: SecretsWorld, tmp_path: Path) -> Iterator[Granted]:
    with granted(world.hosts.fleet.info, world.api, ACCOUNT, tmp_path) as made:
        made.apply(manifests("secrets-backend.yaml"))
        yield made
    world.api.call("DELETE", SECRETS.path(SYSTEM, SECRETS_KEY))


async def test_the_component_is_given_its_secret_and_no_other_and_nothing_once_that_is_removed(
    world: SecretsWorld, account: Granted, kubectl: Kubectl
) -> None:
    application = manifest("secret", "Application")
    [use] = uses_of(application)
    [policy] = application["spec"]["policies"]

    async def requested(host: Host, name: str) -> Any:
        return value(await host.get(name, use.entry, **policy["properties"]))

    async def until(host: Host, text: str) -> None:
        async with asyncio.timeout(PATIENCE):
            while text not in str(await requested(host, use.secret)):  # noqa: ASYNC110 - of the API server
                await asyncio.sleep(0.1)

    async with world.backend(kubeconfig=account.kubeconfig, namespace=SYSTEM), world.asking() as host:
        kubectl.apply("secret")
        await until(host, manifest("secret", "Secret")["stringData"]["text"])
        cluster = world.hosts.fleet.info
        output = await asyncio.to_thread(trellis, cluster, "secrets", "check", "--app", "greeter", "-n", HELLO)
        assert "SecretGrant hello/greeter" in output
        kubectl("create", "secret", "generic", "other", "-n", HELLO, f"--from-literal={use.entry}=x")
        refused = str(await requested(host, "other"))
        assert "UpstreamError" in refused, "nobody gave the account that one"
        await asyncio.to_thread(kubectl.delete, "secret")
        await until(host, "UpstreamError")
