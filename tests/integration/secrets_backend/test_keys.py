"""``trellis secrets rotate`` and ``drop-previous`` on a real API server: no key is lost, and no seed is shown."""

from __future__ import annotations

import asyncio
import base64
import http
import json
import secrets
from collections.abc import Iterator
from datetime import datetime, timedelta
from typing import Any
from urllib.parse import quote

import pytest

from host_manager.watches import POD_SELECTOR
from secrets_backend.domain.key_secret import data_of, read_ring
from secrets_backend.domain.keys import CurveKey, KeyRing
from secrets_backend.timings import KeyTimings, Timings
from support.cluster.kube_world import eventually
from support.secrets.secrets_command import SecretsCommand
from support.secrets.secrets_host import value
from support.secrets.secrets_world import SecretsWorld
from trellis import names
from trellis.kube.resources import NAMESPACES, PODS, SECRETS
from trellis_dev.localcluster import ClusterInfo
from trellis_dev.localcluster.api import Api

pytestmark = pytest.mark.cluster


class Installation:
    """A namespace that secrets_backend is installed in, and the commands of a person there."""

    def __init__(self, api: Api, info: ClusterInfo, namespace: str) -> None:
        self.api = api
        self.namespace = namespace
        self.run = SecretsCommand(info.kubeconfig, namespace).run

    def make(self, ring: KeyRing, **metadata: Any) -> None:
        body = {"metadata": {"name": names.SECRETS_KEY, **metadata}, "type": "Opaque", "data": data_of(ring)}
        status, answer = self.api.call("POST", SECRETS.path(self.namespace), body)
        assert status == http.HTTPStatus.CREATED, answer

    def secret(self) -> dict[str, Any]:
        status, answer = self.api.call("GET", SECRETS.path(self.namespace, names.SECRETS_KEY))
        assert status == http.HTTPStatus.OK
        return answer

    def ring(self) -> KeyRing:
        return read_ring(self.secret())

    async def host_pod(self, started: str) -> None:
        """Have one pod of a host, the only one of the cluster: some of a former test may still be ending."""
        chosen = f"{PODS.path()}?labelSelector={quote(POD_SELECTOR)}"

        async def none_left() -> bool:
            return self.api.call("GET", chosen)[1]["items"] == []

        await eventually(none_left, "no other pod of a host is left", deadline=60)
        # On no node: the pods of one that is not there are deleted by Kubernetes.
        body = {
            "metadata": {"name": "host", "labels": {names.LABEL_MANAGED_BY: names.WADM_OPERATOR}},
            "spec": {"schedulerName": "nobody", "containers": [{"name": "host", "image": "example.com/host"}]},
        }
        assert self.api.call("POST", PODS.path(self.namespace), body)[0] == http.HTTPStatus.CREATED
        status = {"containerStatuses": [_running(started)], "phase": "Running"}
        path = PODS.path(self.namespace, "host", "status")
        assert self.api.call("PATCH", path, {"status": status})[0] == http.HTTPStatus.OK


def _running(started: str) -> dict[str, Any]:
    return {
        "name": "host",
        "image": "example.com/host",
        "imageID": "",
        "ready": True,
        "restartCount": 0,
        "state": {"running": {"startedAt": started}},
    }


@pytest.fixture
def installed(cluster: ClusterInfo, cluster_api: Api) -> Iterator[Installation]:
    namespace = f"test-{secrets.token_hex(4)}"
    assert cluster_api.call("POST", NAMESPACES.path(), {"metadata": {"name": namespace}})[0] == http.HTTPStatus.CREATED
    found = Installation(cluster_api, cluster, namespace)
    yield found
    cluster_api.call("DELETE", PODS.path(namespace, "host"), {"gracePeriodSeconds": 0})
    cluster_api.call("DELETE", NAMESPACES.path(name=namespace))


async def test_a_rotation_is_announced_before_the_new_key_is_given_out(installed: Installation) -> None:
    old, older = CurveKey.make(), CurveKey.make()
    installed.make(KeyRing(old, (older,)), labels={"mine": "stays"})
    running = asyncio.create_task(installed.run("rotate", "--wait", "4s", "-o", "json"))

    async def announced() -> bool:
        return len(installed.ring().previous) == 2

    await eventually(announced, "the new key opens", deadline=60)
    between = installed.ring()
    assert between.current == old, "hosts are still given a key that every replica knows"
    new = between.previous[0]
    done = await running
    assert done.returncode == 0, done.stderr
    assert installed.ring() == KeyRing(new, (old, older))
    assert installed.secret()["metadata"]["labels"] == {"mine": "stays"}
    found = json.loads(done.stdout)
    assert (found["changed"], found["public_key"], found["previous"]) == (True, new.public, 2)


async def test_former_keys_are_dropped_once_no_host_is_older_than_the_rotation(installed: Installation) -> None:
    installed.make(KeyRing(CurveKey.make()))
    await installed.host_pod("2020-01-01T00:00:00Z")
    assert (await installed.run("rotate", "--wait", "0")).returncode == 0
    refused = await installed.run("drop-previous")
    assert refused.returncode == 1
    assert f"{installed.namespace}/host" in refused.stderr
    assert len(installed.ring().previous) == 1
    status = {"status": {"containerStatuses": [_running("2999-01-01T00:00:00Z")]}}
    installed.api.call("PATCH", PODS.path(installed.namespace, "host", "status"), status)
    done = await installed.run("drop-previous")
    assert f"{installed.namespace}/host" not in done.stderr
    if done.returncode:  # hosts of another test, which the command sees as well
        assert (await installed.run("drop-previous", "--force")).returncode == 0
    assert installed.ring().previous == ()
    again = await installed.run("drop-previous", "-o", "json")
    assert json.loads(again.stdout)["changed"] is False


async def test_former_keys_are_dropped_at_once_on_a_users_request(installed: Installation) -> None:
    installed.make(KeyRing(CurveKey.make(), (CurveKey.make(),)))
    await installed.host_pod("2020-01-01T00:00:00Z")
    assert (await installed.run("drop-previous", "--force")).returncode == 0
    assert installed.ring().previous == ()


@pytest.mark.parametrize("command", ["rotate", "drop-previous"])
async def test_without_a_key_the_error_names_the_service_that_creates_it(installed: Installation, command: str) -> None:
    done = await installed.run(command)
    assert done.returncode == 1
    for named in (f'Secret "{names.SECRETS_KEY}"', installed.namespace, "secrets_backend", "TRELLIS_NAMESPACE"):
        assert named in done.stderr


@pytest.mark.parametrize("command", ["rotate", "drop-previous"])
async def test_a_secret_that_holds_something_else_is_left_alone(installed: Installation, command: str) -> None:
    key = CurveKey.make()
    data = {"seed": base64.b64encode(key.seed()[:-1].encode()).decode()}
    body = {"metadata": {"name": names.SECRETS_KEY}, "data": data}
    assert installed.api.call("POST", SECRETS.path(installed.namespace), body)[0] == http.HTTPStatus.CREATED
    done = await installed.run(command)
    assert done.returncode == 1
    assert f"entry {names.SECRETS_SEED} " in done.stderr
    assert installed.secret()["data"] == data


async def test_a_wait_that_is_none_is_refused(installed: Installation) -> None:
    done = await installed.run("rotate", "--wait", "soon")
    assert done.returncode == 2
    assert "--wait: has 'soon'" in done.stderr


@pytest.mark.thorough
async def test_while_two_replicas_rotate_every_host_is_answered(
    secret_world: SecretsWorld, cluster: ClusterInfo, cluster_api: Api
) -> None:
    """A host that asks one replica for the key and the other for a secret, at any moment of it."""
    secret_world.ready_to_ask()
    person = Installation(cluster_api, cluster, secret_world.system)
    requested: list[tuple[str, object]] = []

    async def new_hosts(over: asyncio.Event) -> None:
        while not over.is_set():
            async with secret_world.host() as host:
                key = await host.ask_key()
                requested.append((key, value(await host.get("db", "password", namespace=secret_world.namespace))))

    async with secret_world.backend(), secret_world.backend(), secret_world.asking() as old:
        former = old.server
        over = asyncio.Event()
        asking = [asyncio.create_task(new_hosts(over)) for _ in range(3)]
        done = await person.run("rotate", "--wait", "4s", "-o", "json")
        assert done.returncode == 0, done.stderr
        new = json.loads(done.stdout)["public_key"]

        async def given_out() -> bool:
            return [key for key, _ in requested[-6:]] == [new] * 6

        await eventually(given_out, "both replicas give the new key out", deadline=30)
        over.set()
        await asyncio.gather(*asking)
        assert {answer for _, answer in requested} == {"hunter2"}
        assert {key for key, _ in requested} == {former, new}
        assert value(await old.get("db", "password", namespace=secret_world.namespace)) == "hunter2"

        assert (await person.run("drop-previous", "--force")).returncode == 0

        async def refused() -> bool:
            answers = [await old.get("db", "password", namespace=secret_world.namespace) for _ in range(4)]
            return {value(item) for item in answers} == {"DecryptionError"}

        await eventually(refused, "the former key opens nothing", deadline=30)


async def test_a_rotated_key_is_given_to_the_next_host_that_asks(
    secret_world: SecretsWorld, cluster: ClusterInfo, cluster_api: Api
) -> None:
    """Not at the replica's next look: a host keeps what it is given, and drop-previous counts it as a new one."""
    secret_world.ready_to_ask()
    person = Installation(cluster_api, cluster, secret_world.system)
    seldom = Timings(key=KeyTimings(look=3600), other=0.5, probe=3600, changes=3600)
    async with secret_world.backend(seldom), secret_world.asking() as host:
        done = await person.run("rotate", "--wait", "0", "-o", "json")
        new = json.loads(done.stdout)["public_key"]

        async def given_out() -> bool:
            return await host.ask_key() == new

        await eventually(given_out, "the new key is given out", deadline=60)
        assert value(await host.get("db", "password", namespace=secret_world.namespace)) == "hunter2"


@pytest.mark.thorough
async def test_a_host_that_started_in_the_second_of_the_rotation_counts_as_older(installed: Installation) -> None:
    """Times have whole seconds, replicas look once a second, and clocks differ."""
    installed.make(KeyRing(CurveKey.make()))
    assert (await installed.run("rotate", "--wait", "0")).returncode == 0
    rotated = datetime.fromisoformat(installed.secret()["metadata"]["annotations"][names.ANNOTATION_ROTATED])
    await installed.host_pod((rotated + timedelta(seconds=2)).strftime("%Y-%m-%dT%H:%M:%SZ"))
    refused = await installed.run("drop-previous")
    assert refused.returncode == 1
    assert f"{installed.namespace}/host" in refused.stderr
    assert len(installed.ring().previous) == 1
