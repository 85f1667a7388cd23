"""A host of controllers, and namespaces for them."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from support.guests.controllers_world import Host, Tenant, own_namespace, tenancy
from trellis_dev.localcluster import ClusterInfo
from trellis_dev.localcluster.api import Api
from trellis_dev.localcluster.nats import NatsServer


@pytest.fixture
def host(cluster: ClusterInfo, cluster_api: Api, nats_server: NatsServer, tmp_path: Path) -> Iterator[Host]:
    with own_namespace(cluster_api, Host(cluster, nats_server.url, tmp_path)) as made:
        yield made


@pytest.fixture
def tenants(cluster_api: Api) -> Iterator[Callable[[], Tenant]]:
    with tenancy(cluster_api) as make:
        yield make


@pytest.fixture
def tenant(tenants: Callable[[], Tenant]) -> Tenant:
    return tenants()


@pytest.fixture
def target(tenants: Callable[[], Tenant]) -> Tenant:
    return tenants()
