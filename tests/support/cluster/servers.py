"""Real servers for tests: a nats-server, and a control plane without nodes.

One of each per test process (pytest-xdist worker), started on first use. They end with the process, even if it is
killed. A test that stops a server must start it again before it ends; a test works in a namespace of its own.
"""

from __future__ import annotations

import http
import os
import secrets
from collections.abc import Iterator
from pathlib import Path

import pytest

from support.nodes.installers import INSTALLER_STAGES
from support.suite.suite_accounts import suite_accounts
from support.suite.suite_permissions import FOLDER_VARIABLE, write_seen
from trellis_dev.localcluster import ClusterInfo, owned_cluster
from trellis_dev.localcluster.api import Api
from trellis_dev.localcluster.nats import NatsServer


@pytest.fixture(scope="session")
def nats_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[NatsServer]:
    """A nats-server with JetStream: ``url``, and ``stop``, ``kill``, ``start``, ``pause``, ``resume``."""
    with NatsServer(tmp_path_factory.mktemp("nats") / "server") as server:
        yield server


@pytest.fixture(scope="session")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ClusterInfo]:
    """A control plane with kwok and no nodes. It has a NATS of its own, and an audit log of all writes.

    Services that tests run in it come as accounts with the permissions of ``deploy/rbac``.
    """
    with owned_cluster(audit=True, kwok_stages=INSTALLER_STAGES) as info:
        with suite_accounts(Path(info.kubeconfig), tmp_path_factory.mktemp("accounts")):
            yield info
        if (folder := os.environ.get(FOLDER_VARIABLE)) is not None:
            assert info.audit_log is not None
            write_seen(Path(info.audit_log), Path(folder))


@pytest.fixture(scope="session")
def cluster_api(cluster: ClusterInfo) -> Iterator[Api]:
    """Synchronous calls to the cluster as its administrator, for arranging and asserting."""
    api = Api.of_kubeconfig(Path(cluster.kubeconfig))
    yield api
    api.close()


@pytest.fixture
def namespace(cluster_api: Api) -> Iterator[str]:
    """A namespace for one test."""
    name = f"test-{secrets.token_hex(4)}"
    manifest = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}}
    assert cluster_api.call("POST", "/api/v1/namespaces", manifest)[0] == http.HTTPStatus.CREATED
    yield name
    cluster_api.call("DELETE", f"/api/v1/namespaces/{name}")
