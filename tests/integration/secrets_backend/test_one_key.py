"""Several replicas on one key: no creation, change or damage of it leads to an answer of DecryptionError."""

from __future__ import annotations

import asyncio
import base64
from collections import Counter
from typing import Any

import pytest

from secrets_backend.domain.key_secret import data_of, promoted, read_ring, without_previous
from secrets_backend.domain.keys import CurveKey
from support.nodes.fleet import eventually
from support.secrets.secrets_host import Host, value
from support.secrets.secrets_world import SecretsWorld, served
from trellis import names
from trellis.kube.resources import SECRETS
from trellis.runtime.run import Service

pytestmark = pytest.mark.cluster


async def request(host: Host, world: SecretsWorld, times: int, at_once: int = 16) -> Counter[str]:
    """Ask many times, some at once; return how often each value or error came."""
    found: Counter[str] = Counter()
    todo = iter(range(times))

    async def some() -> None:
        for _ in todo:
            found[str(value(await host.get("db", "password", namespace=world.namespace)))] += 1

    await asyncio.gather(*(some() for _ in range(at_once)))
    return found


def change_key(world: SecretsWorld, data: dict[str, Any]) -> None:
    world.api.call("PATCH", SECRETS.path(world.system, names.SECRETS_KEY), {"data": data})


def reasons(service: Service) -> str:
    return " ".join(service.health.readiness().reasons)


@pytest.mark.thorough
async def test_replicas_that_begin_together_share_one_key_and_open_every_request(secret_world: SecretsWorld) -> None:
    secret_world.ready_to_ask()
    async with secret_world.backend(), secret_world.backend(), secret_world.backend(), secret_world.asking() as host:
        keys = {await host.ask_key() for _ in range(30)}
        assert len(keys) == 1
        assert await request(host, secret_world, 3000) == {"hunter2": 3000}


@pytest.mark.thorough
async def test_a_host_that_is_older_than_a_rotation_goes_on_until_the_former_key_is_dropped(
    secret_world: SecretsWorld,
) -> None:
    secret_world.ready_to_ask()
    async with secret_world.backend(), secret_world.backend(), secret_world.asking() as old:
        ring = read_ring(secret_world.key_secret() or {})
        new = promoted(ring, CurveKey.make())
        change_key(secret_world, data_of(new))
        # Without the step that `trellis secrets rotate` takes first: one replica gives the new key before the other
        # knows it, and that one reads the Secret when it cannot open a request.
        async with secret_world.host() as young:
            while await young.ask_key() != new.current.public:  # noqa: ASYNC110 - another process' state
                await asyncio.sleep(0.02)
            assert await request(young, secret_world, 200) == {"hunter2": 200}
            assert await request(old, secret_world, 200) == {"hunter2": 200}
            change_key(secret_world, data_of(without_previous(new)) | {names.SECRETS_PREVIOUS: None})

            async def dropped() -> bool:
                return set(await request(old, secret_world, 8)) == {"DecryptionError"}

            async with asyncio.timeout(20):
                while not await dropped():  # noqa: ASYNC110 - another process' state
                    await asyncio.sleep(0.1)
            assert await request(young, secret_world, 100) == {"hunter2": 100}


async def test_a_key_that_is_deleted_while_it_is_used_comes_back_the_same(secret_world: SecretsWorld) -> None:
    secret_world.ready_to_ask()
    async with secret_world.backend(), secret_world.asking() as host:
        before = read_ring(secret_world.key_secret() or {})
        secret_world.api.call("DELETE", SECRETS.path(secret_world.system, names.SECRETS_KEY))
        made = await eventually(secret_world.key_secret, "the key is there again")
        assert read_ring(made) == before
        assert await request(host, secret_world, 20) == {"hunter2": 20}


@pytest.mark.thorough
async def test_a_key_that_is_spoilt_is_reported_and_left_alone_and_the_one_before_counts(
    secret_world: SecretsWorld,
) -> None:
    secret_world.ready_to_ask()
    async with secret_world.backend() as service, secret_world.asking() as host:
        good = (secret_world.key_secret() or {})["data"]
        spoilt = base64.b64encode(b"no seed").decode()
        change_key(secret_world, {names.SECRETS_SEED: spoilt})
        await eventually(lambda: f"entry {names.SECRETS_SEED} " in reasons(service), "it is told")
        assert await request(host, secret_world, 20) == {"hunter2": 20}
        assert (secret_world.key_secret() or {})["data"][names.SECRETS_SEED] == spoilt
        change_key(secret_world, good)
        await eventually(lambda: not reasons(service), "it is well again")


@pytest.mark.thorough
async def test_nothing_is_served_with_a_key_that_was_never_good(secret_world: SecretsWorld) -> None:
    secret_world.ready_to_ask()
    body = {"metadata": {"name": names.SECRETS_KEY}, "data": {names.SECRETS_SEED: base64.b64encode(b"x").decode()}}
    secret_world.api.call("POST", SECRETS.path(secret_world.system), body)
    async with secret_world.backend() as service, secret_world.host() as host:
        await eventually(lambda: f"entry {names.SECRETS_SEED} " in reasons(service), "it is told")
        with pytest.raises(Exception, match="no responders"):
            await host.ask_key(1)
        secret_world.api.call("DELETE", SECRETS.path(secret_world.system, names.SECRETS_KEY))
        await served(host)


@pytest.mark.thorough
async def test_a_stopping_replica_answers_accepted_requests_and_the_other_continues(secret_world: SecretsWorld) -> None:
    secret_world.ready_to_ask()
    async with secret_world.backend(), secret_world.asking() as host:
        async with secret_world.backend() as second:
            await eventually(lambda: second.health.readiness().ok, "the second replica is there")
            asking = asyncio.create_task(request(host, secret_world, 2000))
            started = host.client.stats["in_msgs"]
            await eventually(lambda: host.client.stats["in_msgs"] > started + 200, "answers come")
            assert not asking.done()
        assert await asking == {"hunter2": 2000}
