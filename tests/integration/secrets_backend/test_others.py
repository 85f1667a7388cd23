"""Other clients on a lattice's NATS: another backend, another cluster, another account, and none for a while."""

from __future__ import annotations

import asyncio
import contextlib
import http
import secrets
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import nats
import pytest

from support.cluster.grants import until_bound
from support.lattices.host_world import PATIENCE
from support.nodes.fleet import eventually
from support.secrets.secrets_host import CURVE, nkey, value
from support.secrets.secrets_world import SecretsWorld, served
from support.suite.settling import settle
from trellis.kube.resources import HOST_CONFIGS, NAMESPACES, ROLE_BINDINGS, ROLES, SECRETS
from trellis.runtime.run import Service
from trellis_dev.localcluster.nats import NatsServer

pytestmark = pytest.mark.cluster

ACCOUNTS = """
accounts {
  A { users: [
    {user: one, password: pw}, {user: two, password: pw},
    {user: shy, password: pw, permissions: {publish: {deny: ["_INBOX_trellis.>"]}}},
    {user: mute, password: pw, permissions: {subscribe: {deny: ["wasmcloud.secrets.>"]}}}
  ] }
  B { users: [{user: three, password: pw}] }
}
"""


@contextlib.asynccontextmanager
async def peer(url: str) -> AsyncIterator[str]:
    """A backend with a key of its own, in the queue group that secrets-kubernetes is in."""
    client = await nats.connect(url)
    key = nkey(CURVE, secrets.token_bytes(32))

    async def answer(message: Any) -> None:
        await message.respond(key.encode() if message.subject.endswith("server_xkey") else b'{"error":"Unauthorized"}')

    await client.subscribe("wasmcloud.secrets.v1alpha1.kube.>", queue="wasmcloud.secrets.kube", cb=answer)
    await settle(client)
    try:
        yield key
    finally:
        await client.close()


def notes(service: Service) -> str:
    return " ".join(service.health.notes())


@pytest.mark.thorough
async def test_a_backend_that_was_there_first_is_left_alone_until_it_goes(secret_world: SecretsWorld) -> None:
    secret_world.ready_to_ask()
    async with peer(secret_world.server.url) as theirs, secret_world.backend() as service:
        await eventually(lambda: "'kube'" in notes(service), "it is told")
        assert service.health.readiness().ok
        async with secret_world.host() as host:
            assert {await host.ask_key() for _ in range(20)} == {theirs}
    async with secret_world.backend() as service, secret_world.asking() as host:
        assert value(await host.get("db", "password", namespace=secret_world.namespace)) == "hunter2"
        async with peer(secret_world.server.url) as theirs:
            await eventually(lambda: "TRELLIS_SECRETS_BACKEND" in notes(service), "it gives way")

            async def requested() -> set[str]:
                return {await host.ask_key() for _ in range(5)}

            async with asyncio.timeout(PATIENCE):
                while await requested() != {theirs}:  # noqa: ASYNC110 - another process' state
                    await asyncio.sleep(0.05)
        await eventually(lambda: not notes(service), "it serves again")
        assert await host.ask_key() != theirs


async def test_of_two_clusters_on_one_nats_the_second_stays_out(secret_world: SecretsWorld) -> None:
    secret_world.ready_to_ask()
    elsewhere = f"{secret_world.system}-two"
    secret_world.api.call("POST", NAMESPACES.path(), {"metadata": {"name": elsewhere}})
    async with secret_world.backend(), secret_world.asking() as host:
        first = await host.ask_key()
        async with secret_world.backend(namespace=elsewhere) as second:
            await eventually(lambda: "TRELLIS_SECRETS_BACKEND" in notes(second), "the second stays out")
            assert {await host.ask_key() for _ in range(20)} == {first}
            named = secret_world.backend(namespace=elsewhere, secrets_backend="kube-two")
            async with named, secret_world.host(backend="kube-two") as other:
                await served(other)
                assert value(await other.get("db", "password", namespace=secret_world.namespace)) == "hunter2"
    secret_world.api.call("DELETE", NAMESPACES.path(None, elsewhere))


@pytest.mark.thorough
async def test_it_answers_again_after_the_nats_of_a_lattice_was_unavailable(secret_world: SecretsWorld) -> None:
    secret_world.ready_to_ask()
    async with secret_world.backend() as service:
        async with secret_world.asking():
            pass
        secret_world.server.stop()
        await eventually(lambda: notes(service), "it is told")
        assert service.health.readiness().ok  # other lattices are as before
        secret_world.server.start()
        async with secret_world.asking() as host:
            assert value(await host.get("db", "password", namespace=secret_world.namespace)) == "hunter2"


class Tenants:
    """Groups in namespaces of their own, on a NATS with accounts."""

    def __init__(self, world: SecretsWorld, server: NatsServer) -> None:
        self.world = world
        self.server = server

    def group(self, user: str) -> str:
        """Make a namespace with a group that comes as a user, and a Secret that its accounts may read."""
        namespace = f"{self.world.namespace}-{user}"
        api, call = "rbac.authorization.k8s.io", self.world.api.call
        group = {"kind": "Group", "apiGroup": api, "name": f"system:serviceaccounts:{namespace}"}
        rules = [{"apiGroups": [""], "resources": ["secrets"], "resourceNames": ["db"], "verbs": ["get"]}]
        ref = {"kind": "Role", "apiGroup": api, "name": "read"}
        spec = {"lattice": "default", "version": "1.9.2", "natsAddress": f"nats://{user}:pw@127.0.0.1"}
        for path, body in (
            (NAMESPACES.path(), {"metadata": {"name": namespace}}),
            (SECRETS.path(namespace), {"metadata": {"name": "db"}, "stringData": {"password": user}}),
            (ROLES.path(namespace), {"metadata": {"name": "read"}, "rules": rules}),
            (ROLE_BINDINGS.path(namespace), {"metadata": {"name": "read"}, "roleRef": ref, "subjects": [group]}),
            (
                HOST_CONFIGS.path(namespace),
                {
                    "apiVersion": HOST_CONFIGS.api_version,
                    "kind": HOST_CONFIGS.kind,
                    "metadata": {"name": "group"},
                    "spec": spec | {"natsClientPort": self.server.port},
                },
            ),
        ):
            status, answer = call("POST", path, body)
            assert status == http.HTTPStatus.CREATED, answer
        binding = {"metadata": {"namespace": namespace}, "roleRef": ref, "subjects": [group]}
        until_bound(self.world.api, binding)
        return namespace

    async def answer(self, user: str, namespace: str) -> Any:
        """Return what a host that comes as a user is answered."""
        async with self.world.host(options={"user": user, "password": "pw"}) as host:
            host.url = self.server.url
            await served(host)
            return value(await host.get("db", "password", namespace=namespace))


@pytest.fixture
async def tenants(secret_world: SecretsWorld, tmp_path: Path) -> AsyncIterator[Tenants]:
    config = tmp_path / "accounts.conf"
    config.write_text(ACCOUNTS)
    with NatsServer(tmp_path / "accounts", config=config) as server:
        secret_world.server = server
        yield Tenants(secret_world, server)
        for user in ("one", "two", "three", "shy", "mute"):
            namespace = f"{secret_world.namespace}-{user}"
            secret_world.api.call("DELETE", HOST_CONFIGS.path(namespace, "group"))
            secret_world.api.call("DELETE", NAMESPACES.path(None, namespace))


@pytest.mark.thorough
async def test_two_users_of_one_account_share_a_grant_and_another_account_has_its_own(tenants: Tenants) -> None:
    item, two, three = (tenants.group(user) for user in ("one", "two", "three"))
    async with tenants.world.backend():
        for user in ("one", "two"):
            for _ in range(8):
                assert await tenants.answer(user, item) == "one"
                assert await tenants.answer(user, two) == "two"
            assert "PolicyError" in str(await tenants.answer(user, three))
        assert await tenants.answer("three", three) == "three"
        for namespace in (item, two):
            assert "PolicyError" in str(await tenants.answer("three", namespace))


@pytest.mark.thorough
async def test_a_user_without_subscribers_forms_its_own_account(tenants: Tenants) -> None:
    shy = tenants.group("shy")
    three = tenants.group("three")
    async with tenants.world.backend():
        assert await tenants.answer("shy", shy) == "shy"
        assert "PolicyError" in str(await tenants.answer("shy", three))


async def test_a_user_that_may_not_subscribe_is_reported(tenants: Tenants) -> None:
    tenants.group("mute")
    async with tenants.world.backend() as service:
        await eventually(lambda: '"wasmcloud.secrets.v1alpha1.' in notes(service), "it names the subject")
