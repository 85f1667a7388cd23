"""`trellis migrate to-v2` on a real API server: what it writes, what it never touches, which permissions it needs."""

from __future__ import annotations

import asyncio
import copy
import json
import secrets
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest

from support.cluster.definitions import ensure_served
from support.cluster.grants import SYSTEM, granted
from support.v2.definitions import wasmcloud_v2
from support.wadm.applications_kind import ApplicationsKind
from support.wadm.manifests import manifest
from support.wadm.migration_page import nats_permissions, role
from support.wadm.wadm_stand_in import WadmStandIn
from trellis import names
from trellis.kube.access import Access
from trellis.kube.client import Kube
from trellis.kube.errors import Conflict
from trellis.kube.resources import (
    APPLICATIONS,
    CONFIGMAPS,
    HOST_CONFIGS,
    ROLES,
    SECRET_GRANTS,
    SERVICES,
    WORKLOAD_DEPLOYMENTS,
    Manifest,
    Resource,
)
from trellis.lattice.connection.address import LatticeAddress, NatsAddress
from trellis.telemetry import setup
from trellis.telemetry.health import Health
from trellis_cli.apps.ask import asking
from trellis_cli.common.errors import CommandError
from trellis_cli.migrate.model.to_v2.convert import Source, convert
from trellis_cli.migrate.model.to_v2.owners import Target, targets_of
from trellis_cli.migrate.model.to_v2.report import Conversion
from trellis_cli.migrate.to_v2.apply import apply
from trellis_cli.migrate.to_v2.check import check
from trellis_cli.migrate.to_v2.read import read
from trellis_dev.localcluster import ClusterInfo
from trellis_dev.localcluster.api import Api
from trellis_dev.localcluster.nats import NatsServer

pytestmark = pytest.mark.cluster

KINDS = (CONFIGMAPS, SERVICES, WORKLOAD_DEPLOYMENTS)
MANAGERS = 6


@pytest.fixture(autouse=True)
def served(cluster_api: Api) -> Iterator[None]:
    with wasmcloud_v2(cluster_api):
        yield


@pytest.fixture
async def kube(cluster: ClusterInfo) -> AsyncIterator[Kube]:
    name = f"test_{secrets.token_hex(4)}"
    found = await Kube.connect(Access(Path(cluster.kubeconfig)), telemetry=setup(name), health=Health(name))
    yield found
    await found.close()


def conversion(namespace: str, **texts: str) -> Conversion:
    """Return the conversion of an application with an object of each kind."""
    found = manifest()
    found["spec"]["components"][0]["properties"]["config"] = [{"name": "texts", "properties": texts}]
    return convert(Source(found, "shop", namespace))


def target(namespace: str, res: Resource) -> Target:
    return next(item for item in targets_of([conversion(namespace, A="1")]) if item.res is res)


async def results(kube: Kube, namespace: str, **texts: str) -> set[str]:
    return {
        item.done for item in (await apply(kube, [conversion(namespace, **texts)], namespace, complete=True)).applied
    }


async def test_a_second_run_changes_nothing_and_a_removed_entry_goes(kube: Kube, namespace: str) -> None:
    """Fields of a create belong to the applies that follow: otherwise no entry would ever go."""
    assert await results(kube, namespace, A="1", B="2") == {"created"}
    assert await results(kube, namespace, A="1", B="2") == {"unchanged"}
    await results(kube, namespace, A="1")
    written = target(namespace, CONFIGMAPS)
    assert (await kube.get(CONFIGMAPS, written.name, namespace))["data"] == {"A": "1"}


@pytest.mark.parametrize("res", KINDS, ids=lambda res: res.kind)
async def test_an_object_that_appears_after_the_check_is_not_changed(
    kube: Kube, namespace: str, res: Resource, monkeypatch: pytest.MonkeyPatch
) -> None:
    wanted = target(namespace, res)
    foreign = copy.deepcopy(wanted.manifest)
    foreign["metadata"]["labels"] = {"team": "other"}
    made: list[Manifest] = []
    write = kube.apply_unless_owned

    async def after_another(res_: Resource, item: Manifest, *, field_manager: str) -> Manifest:
        if res_ is res:
            made.append(await kube.create(res, foreign))
        return await write(res_, item, field_manager=field_manager)

    monkeypatch.setattr(kube, "apply_unless_owned", after_another)
    with pytest.raises(CommandError) as refused:
        await apply(kube, [conversion(namespace, A="1")], namespace, complete=True)
    assert wanted.key in str(refused.value)
    found = await kube.get(res, wanted.name, namespace)
    assert found["metadata"]["resourceVersion"] == made[0]["metadata"]["resourceVersion"]
    assert names.LABEL_MIGRATED_FROM not in found["metadata"]["labels"]


@pytest.mark.parametrize("res", KINDS, ids=lambda res: res.kind)
async def test_of_many_that_create_an_object_at_once_one_does(kube: Kube, namespace: str, res: Resource) -> None:
    wanted = copy.deepcopy(target(namespace, res).manifest)
    wanted["metadata"]["resourceVersion"] = "1"
    for at in range(10):
        wanted["metadata"]["name"] = f"shop-{at}"
        found = await asyncio.gather(
            *(kube.apply_unless_owned(res, wanted, field_manager=f"m{number}") for number in range(MANAGERS)),
            return_exceptions=True,
        )
        [written] = [item for item in found if isinstance(item, dict)]
        assert len(written["metadata"]["managedFields"]) == 1
        assert len([item for item in found if isinstance(item, Conflict)]) == MANAGERS - 1


@pytest.fixture
def of_v1(cluster_api: Api) -> Iterator[None]:
    """Serve the kinds of v1 that the command reads."""
    applications = ApplicationsKind(cluster_api)
    ensure_served(cluster_api, HOST_CONFIGS, SECRET_GRANTS)
    made = applications.ensure()
    yield
    if made:
        applications.clear()


@pytest.mark.usefixtures("of_v1")
async def test_the_role_of_the_page_is_sufficient(
    cluster: ClusterInfo, cluster_api: Api, kube: Kube, namespace: str, tmp_path: Path
) -> None:
    application = manifest()
    application["metadata"]["namespace"] = namespace
    application["spec"]["components"][0]["properties"]["config"] = [{"name": "texts", "properties": {"A": "1"}}]
    await kube.create(APPLICATIONS, application)
    account = f"migrates-{namespace}"
    subject = {"kind": "ServiceAccount", "namespace": SYSTEM, "name": account}
    allowed = role()
    allowed["metadata"]["namespace"] = namespace
    reference = {"apiGroup": ROLES.group, "kind": "Role", "name": allowed["metadata"]["name"]}
    bound = {
        "kind": "RoleBinding",
        "metadata": {"name": account, "namespace": namespace},
        "subjects": [subject],
        "roleRef": reference,
    }
    with granted(cluster, cluster_api, account, tmp_path) as user:
        user.apply([{"kind": "ServiceAccount", "metadata": {"namespace": SYSTEM, "name": account}}, allowed, bound])
        limited = await Kube.connect(Access(user.kubeconfig), telemetry=setup(account), health=Health(account))
        try:
            for done in ("created", "unchanged"):
                found = await read(limited, namespace, None, from_wadm=False)
                result = await apply(limited, found.conversions, namespace, complete=True)
                assert [item.done for item in result.applied] == [done] * len(KINDS)
            [compared] = await check(limited, found.conversions, found.services, "/")
            assert compared.difference, "there are no endpoints"
        finally:
            await limited.close()


async def test_the_nats_permissions_of_the_page_are_sufficient(tmp_path: Path) -> None:
    users = [{"user": "wadm", "password": "x"}, {"user": "cli", "password": "x", "permissions": nats_permissions()}]
    config = tmp_path / "nats.conf"
    config.write_text(json.dumps({"authorization": {"users": users}}), encoding="utf-8")
    with NatsServer(tmp_path / "server", config=config) as server:
        async with WadmStandIn(server.url, "default", {"user": "wadm", "password": "x"}) as wadm:
            await wadm.client.request("wadm.api.default.model.put", json.dumps(manifest()).encode(), timeout=20)
            address = NatsAddress(server.url.replace("//", "//cli:x@"))
            async with asking(LatticeAddress(address, "default")) as client:
                assert [model.name for model in await client.models()] == ["shop"]
                assert await client.get("shop", "v1") is not None
