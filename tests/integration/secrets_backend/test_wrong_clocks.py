"""secrets_backend whose wall clock is wrong, run under libfaketime: tokens begin and end by the API server's clock."""

from __future__ import annotations

import json
import time
from pathlib import Path
from typing import Any

import pytest

from support.secrets.secrets_host import Host, value
from support.secrets.secrets_world import SecretsWorld
from support.suite import planted
from support.suite.faked_clock import FakedClock
from support.suite.service_process import free_port, running, until_status

pytestmark = [pytest.mark.cluster, pytest.mark.usefixtures("faked_clocks"), pytest.mark.thorough]

FIVE_MINUTES = 300


async def requested(host: Host, namespace: str, **claims: int) -> Any:
    """Return what a component is given whose token begins or ends so many seconds from now."""
    times = {name: int(time.time()) + seconds for name, seconds in claims.items()}
    request = host.request("db", "password", namespace=namespace)
    request["context"]["entity_jwt"] = host.issuer.token(host.entity.public, **times)
    return value(await host.send(json.dumps(request).encode()))


@pytest.mark.parametrize("wrong", [FIVE_MINUTES, -FIVE_MINUTES])
async def test_tokens_begin_and_end_by_the_clock_of_the_api_server(
    secret_world: SecretsWorld, tmp_path: Path, wrong: int
) -> None:
    secret_world.ready_to_ask(password=planted.VALUE)
    port, clock = free_port(), FakedClock(tmp_path / "clock", f"{wrong:+}")
    environment = secret_world.hosts.fleet.environment(health_port=port) | clock.environment()
    async with running(tmp_path / "log", "secrets-backend", forked=False, **environment):
        await until_status(port, "/readyz", 200)
        async with secret_world.asking() as host:
            namespace = secret_world.namespace
            assert await requested(host, namespace) == planted.VALUE
            assert await requested(host, namespace, nbf=-30, exp=60) == planted.VALUE
            for refused in ({"exp": -30}, {"nbf": 60}):
                assert {*await requested(host, namespace, **refused)} == {"InvalidEntityJWT"}
