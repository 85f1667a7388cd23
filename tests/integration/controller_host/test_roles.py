"""With the rights under deploy/rbac, and what `trellis controllers roles` prints, controllers see and act: no more."""

from __future__ import annotations

import contextlib
import os
import secrets
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
import yaml

from controller_host.domain.resources import ACCOUNT
from controller_host.permissions import impersonation_message
from controller_host.watches.reviews import Reviews
from support.cluster.grants import SYSTEM, granted, manifests
from support.cluster.kube_world import eventually
from support.suite.typed import typed
from trellis.kube.access import Access
from trellis.kube.client import Kube
from trellis.kube.errors import Forbidden
from trellis.kube.resources import CONFIGMAPS, JOBS, NODES, SECRETS
from trellis.telemetry import setup
from trellis.telemetry.health import Health
from trellis_dev.localcluster import ClusterInfo
from trellis_dev.localcluster.api import Api

pytestmark = pytest.mark.cluster


@contextlib.asynccontextmanager
async def connected(kubeconfig: Path) -> AsyncIterator[Kube]:
    name = f"test_{secrets.token_hex(4)}"
    kube = await Kube.connect(Access(kubeconfig), telemetry=setup(name), health=Health(name))
    try:
        yield kube
    finally:
        await kube.close()


def printed(*arguments: str) -> str:
    done = typed(os.environ, "controllers", "roles", *arguments)
    assert done.returncode == 0, done.stderr
    return done.stdout


async def test_an_account_is_acted_as_once_its_role_is_there_and_no_other_is(
    cluster: ClusterInfo, cluster_api: Api, namespace: str, tmp_path: Path
) -> None:
    user = f"system:serviceaccount:{namespace}:ttl"
    with granted(cluster, cluster_api, ACCOUNT, tmp_path) as account:
        account.apply(manifests("controller-host.yaml"))
        async with connected(account.kubeconfig) as kube:
            acting = kube.acting_as(user)
            with pytest.raises(Forbidden) as refused:
                await acting.list(JOBS, namespace)
            advice = f"trellis controllers roles -n {namespace} -a ttl"
            assert f"`{advice} | kubectl apply -f -`" in impersonation_message(refused.value, user)
            account.apply(yaml.safe_load_all(printed(*advice.split()[3:])))
            await eventually(lambda: _says(kube, user, namespace, user, " list jobs.batch"), "it is the account")
            assert await Reviews(kube).allowed(user, JOBS, namespace) is False
            account.apply(list(yaml.safe_load_all(printed("-n", namespace, "-a", "ttl", "--watch", "jobs.batch")))[2:])
            await eventually(lambda: _says(kube, user, namespace), "it sees Jobs")
            assert await Reviews(kube).allowed(user, JOBS, namespace) is True
            assert await Reviews(kube).allowed(user, CONFIGMAPS, namespace) is False
            for other in (f"system:serviceaccount:{namespace}:other", "system:admin", "jane"):
                with pytest.raises(Forbidden, match="cannot impersonate"):
                    await kube.acting_as(other).list(JOBS, namespace)


async def test_the_service_itself_reads_what_is_listed_and_nothing_more(
    cluster: ClusterInfo, cluster_api: Api, namespace: str, tmp_path: Path
) -> None:
    with granted(cluster, cluster_api, ACCOUNT, tmp_path) as account:
        account.apply(manifests("controller-host.yaml"))
        async with connected(account.kubeconfig) as kube:
            for resource in (CONFIGMAPS, JOBS):
                await kube.list(resource)
            for resource in (SECRETS, NODES):
                with pytest.raises(Forbidden):
                    await kube.list(resource)
            with pytest.raises(Forbidden):
                await kube.get(SECRETS, "any", SYSTEM)
            with pytest.raises(Forbidden):
                await kube.create(CONFIGMAPS, {"metadata": {"name": "x", "namespace": namespace}})


async def _says(kube: Kube, user: str, namespace: str, *named: str) -> bool:
    """Say whether listing Jobs as the account is refused with these names, or, without any, works."""
    try:
        await kube.acting_as(user).list(JOBS, namespace)
    except Forbidden as error:
        return bool(named) and all(item in impersonation_message(error, user) for item in named)
    return not named
