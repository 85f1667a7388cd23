"""Secrets that hosts ask for over NATS, read from a real API server."""

from __future__ import annotations

import pytest

from support.secrets.secrets_host import value
from support.secrets.secrets_world import SecretsWorld

pytestmark = pytest.mark.cluster


async def test_a_component_is_given_an_entry_of_a_secret(secret_world: SecretsWorld) -> None:
    secret_world.ready_to_ask(password="hunter2", empty="")
    async with secret_world.backend(), secret_world.asking() as host:
        answer = await host.get("db", "password", namespace=secret_world.namespace)
        assert value(answer) == "hunter2"
        assert answer["secret"]["version"]
        assert value(await host.get("db", "empty", namespace=secret_world.namespace)) == ""
        assert value(await host.get("db", "none", namespace=secret_world.namespace)) == "SecretNotFound"
