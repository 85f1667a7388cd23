"""A SecretGrant that goes with its CRD, or that may not be listed any more, does not open the namespace it closed."""

from __future__ import annotations

import asyncio
import http
import time
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from dataclasses import replace
from datetime import datetime
from pathlib import Path

import pytest

from support.cluster.api_proxy import ApiProxy
from support.cluster.crd_deletion import delete_definition
from support.cluster.grants import SYSTEM, granted, manifests
from support.lattices.host_world import PATIENCE
from support.nodes.fleet import eventually
from support.secrets.secrets_host import Host, value
from support.secrets.secrets_world import QUICK, SecretsWorld, define_grants
from support.suite import planted
from support.suite.tiers import first_of
from trellis import names
from trellis.kube.resources import CLUSTER_ROLES, DEFINITIONS, SECRET_GRANTS, SECRETS
from trellis.runtime.run import Service
from trellis_dev.localcluster import ClusterInfo

pytestmark = [pytest.mark.cluster, pytest.mark.nats]

DEFINITION = DEFINITIONS.path(None, f"{SECRET_GRANTS.plural}.{SECRET_GRANTS.group}")
READS = [
    (SECRET_GRANTS.plural, SECRET_GRANTS.group, "list", ""),
    (DEFINITIONS.plural, DEFINITIONS.group, "get", f"{SECRET_GRANTS.plural}.{SECRET_GRANTS.group}"),
]
CLOSES = "closes"
HELD = "held"


def close(world: SecretsWorld) -> None:
    """Let no account be used for the Secrets of the namespace: its owner's SecretGrant names none."""
    world.grant(CLOSES, **{"from": [{"namespace": world.namespace}], "serviceAccounts": []})


async def answer(host: Host, world: SecretsWorld) -> str:
    """Return the name of the error that a request is refused with, "" if it gets the Secret."""
    received = value(await host.get("db", "password", namespace=world.namespace))
    return "" if received == planted.VALUE else next(iter(received)) if isinstance(received, dict) else str(received)


async def answers(host: Host, world: SecretsWorld, error: str) -> None:
    """Ask until a request is refused so; none of those before may have got the Secret, unless that is waited for."""
    async with asyncio.timeout(PATIENCE):
        while (received := await answer(host, world)) != error:
            assert received, "it got the Secret of a namespace that is closed"


@pytest.fixture(autouse=True)
def _defined_again(secret_world: SecretsWorld) -> Iterator[None]:
    """Create the CRD again for the tests that follow."""
    yield
    define_grants(secret_world.api)


@asynccontextmanager
async def definition_held_back(world: SecretsWorld) -> AsyncIterator[None]:
    """Delete the CRD; for the time of the block a foreign finalizer holds one of its objects, then the CRD is gone."""
    path = SECRET_GRANTS.path(world.namespace, HELD)
    world.grant(HELD, **{"from": [{"namespace": "elsewhere"}], "serviceAccounts": []})
    world.api.call("PATCH", path, {"metadata": {"finalizers": ["example.com/held"]}})
    delete_definition(world.api, SECRET_GRANTS)
    try:
        yield
    finally:
        world.api.call("PATCH", path, {"metadata": {"finalizers": None}})
    await eventually(lambda: is_deleted(world, DEFINITION), "the CRD is gone", seconds=PATIENCE)


def is_deleted(world: SecretsWorld, path: str) -> bool:
    return world.api.call("GET", path)[0] == http.HTTPStatus.NOT_FOUND


def unready(service: Service, *expected_text: str) -> bool:
    return any(all(word in reason for word in expected_text) for reason in service.health.readiness().reasons)


async def withdrawn(world: SecretsWorld, user: str, resource: str) -> None:
    """Wait until the API server has noticed that an account may not read a kind any more."""
    [(group, verb, name)] = [read[1:] for read in READS if read[0] == resource]
    requested = {"group": group, "resource": resource, "verb": verb, "name": name}
    body = {"spec": {"user": user, "resourceAttributes": requested}}

    def refused() -> bool:
        found = world.api.call("POST", "/apis/authorization.k8s.io/v1/subjectaccessreviews", body)[1]
        return not found["status"]["allowed"]

    await eventually(refused, "the right is gone", seconds=PATIENCE)


async def test_a_grant_that_is_deleted_with_its_crd_does_not_open_its_namespace(secret_world: SecretsWorld) -> None:
    world = secret_world
    world.ready_to_ask()
    close(world)
    async with world.backend() as service, world.asking() as host:
        await answers(host, world, "PolicyError")
        async with definition_held_back(world):
            await eventually(
                lambda: is_deleted(world, SECRET_GRANTS.path(world.namespace, CLOSES)), "deleted with the CRD"
            )
            await answers(host, world, "UpstreamError")
            await eventually(lambda: unready(service, f"CRD {SECRET_GRANTS.definition}: "), "reported")
        assert await answer(host, world) == "UpstreamError"
        define_grants(world.api)
        await eventually(lambda: service.health.readiness().ok, "ready again", seconds=PATIENCE)
        assert await answer(host, world) == "UpstreamError"
        close(world)
        await answers(host, world, "PolicyError")


@pytest.mark.thorough
async def test_a_start_after_the_crd_was_created_again_opens_nothing(secret_world: SecretsWorld) -> None:
    """All replicas are restarted after the CRD is back, as an upgrade does that creates it again."""
    world = secret_world
    world.ready_to_ask()
    close(world)
    async with world.backend(), world.asking() as host:
        await answers(host, world, "PolicyError")
    async with definition_held_back(world):
        pass
    key = world.api.call("GET", SECRETS.path(world.system, names.SECRETS_KEY))[1]["metadata"]["creationTimestamp"]
    # Times of the API server have whole seconds.
    await eventually(lambda: time.time() >= datetime.fromisoformat(key).timestamp() + 1, "the key is older")
    define_grants(world.api)
    async with world.backend() as service, world.asking() as host:
        await eventually(lambda: service.health.readiness().ok, "ready", seconds=PATIENCE)
        assert await answer(host, world) == "UpstreamError"
        assert any("secretgrants" in note for note in service.health.notes())
        close(world)
        await answers(host, world, "PolicyError")


@pytest.mark.thorough
async def test_a_grant_that_is_deleted_alone_closes_its_namespace_no_more(secret_world: SecretsWorld) -> None:
    world = secret_world
    world.ready_to_ask()
    close(world)
    async with world.backend() as service, world.asking() as host:
        await answers(host, world, "PolicyError")
        world.hosts.call("DELETE", SECRET_GRANTS, CLOSES)
        async with asyncio.timeout(PATIENCE):
            while await answer(host, world):
                assert service.health.readiness().ok


@pytest.mark.thorough
async def test_a_start_while_the_crd_is_being_deleted_opens_nothing(secret_world: SecretsWorld) -> None:
    world = secret_world
    world.ready_to_ask()
    close(world)
    async with definition_held_back(world):
        await eventually(lambda: is_deleted(world, SECRET_GRANTS.path(world.namespace, CLOSES)), "deleted with the CRD")
        async with world.backend(replace(QUICK, settle=0.1)) as service, world.asking() as host:
            assert await answer(host, world) == "UpstreamError"
            await eventually(lambda: unready(service, f"CRD {SECRET_GRANTS.definition}: "), "reported")


@pytest.mark.parametrize("right", first_of(["secretgrants", "customresourcedefinitions"]))
async def test_without_the_right_to_read_grants_nothing_is_opened(
    secret_world: SecretsWorld, cluster: ClusterInfo, tmp_path: Path, right: str
) -> None:
    world = secret_world
    world.ready_to_ask()
    close(world)
    applied = manifests("secrets-backend.yaml")
    with granted(cluster, world.api, "trellis-secrets-backend", tmp_path) as account:
        account.apply(applied)
        async with ApiProxy(account.kubeconfig, tmp_path) as proxy:
            kubeconfig = proxy.kubeconfig(proxy.port, tmp_path / "proxied")
            settings = {"kubeconfig": kubeconfig, "namespace": SYSTEM}
            [role] = [item for item in applied if item["kind"] == CLUSTER_ROLES.kind]
            path = CLUSTER_ROLES.path(None, role["metadata"]["name"])
            rules = [rule for rule in role["rules"] if right not in rule["resources"]]
            async with world.backend(**settings) as service, world.asking() as host:
                await answers(host, world, "PolicyError")
                world.api.call("PATCH", path, {"rules": rules})
                await withdrawn(world, account.user, right)
                proxy.cut_watches()
                if right == "customresourcedefinitions":
                    world.hosts.call("DELETE", SECRET_GRANTS, CLOSES)
                await answers(host, world, "UpstreamError")
                await eventually(lambda: unready(service, right), "reported")
            async with world.backend(**settings) as service:
                await eventually(lambda: unready(service, right), "reported")
                world.api.call("PATCH", path, {"rules": role["rules"]})
                await eventually(lambda: service.health.readiness().ok, "ready again", seconds=PATIENCE)
