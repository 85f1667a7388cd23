"""The output of ``trellis secrets roles`` lets secrets_backend read these Secrets as these accounts, and nothing else.

Read with the token of its ServiceAccount, by impersonation headers, on a real API server.
"""

from __future__ import annotations

import base64
import http.client
import json
import os
import secrets
import ssl
from collections.abc import Iterator
from typing import Any

import pytest
import yaml

from support.cluster.grants import Granted, granted
from support.suite.typed import typed
from trellis.kube.resources import NAMESPACES, SECRETS
from trellis_dev.localcluster import ClusterInfo
from trellis_dev.localcluster.api import Api

pytestmark = pytest.mark.cluster

ACCOUNT = "trellis-secrets-backend"
JANE = "jane@example.com"
FORBIDDEN, OK = http.HTTPStatus.FORBIDDEN, http.HTTPStatus.OK


class World:
    """Two namespaces with two Secrets each, and an account that has what the test applies."""

    def __init__(self, api: Api, account: Granted, namespaces: tuple[str, str]) -> None:
        self.api = api
        self.account = account
        self.mine, self.other = namespaces

    def apply(self, *arguments: str) -> None:
        """Apply what the command prints."""
        done = typed(os.environ, "secrets", "roles", *arguments)
        assert done.returncode == 0, done.stderr
        self.account.apply(yaml.safe_load_all(done.stdout))

    def read(self, secret: str, *, user: str, namespace: str | None = None, verb: str = "GET") -> int:
        """Return the status of a call for a Secret as another user."""
        config = yaml.safe_load(self.account.kubeconfig.read_text())
        cluster = config["clusters"][0]["cluster"]
        tls = ssl.create_default_context(cadata=base64.b64decode(cluster["certificate-authority-data"]).decode())
        host, _, port = cluster["server"].removeprefix("https://").rpartition(":")
        connection = http.client.HTTPSConnection(host, int(port), context=tls, timeout=30)
        headers = {"Authorization": f"Bearer {config['users'][0]['user']['token']}", "Impersonate-User": user}
        connection.request(verb, SECRETS.path(namespace or self.mine, secret), headers=headers)
        answer = connection.getresponse()
        content = json.loads(answer.read())
        connection.close()
        assert content["kind"] == ("Secret" if answer.status == OK else "Status")
        return answer.status

    def be(self, name: str, namespace: str | None = None) -> str:
        return f"system:serviceaccount:{namespace or self.mine}:{name}"


@pytest.fixture
def world(cluster: ClusterInfo, cluster_api: Api, tmp_path: Any) -> Iterator[World]:
    mark = secrets.token_hex(4)
    namespaces = (f"test-{mark}-a", f"test-{mark}-b")
    for name in namespaces:
        assert cluster_api.call("POST", NAMESPACES.path(), {"metadata": {"name": name}})[0] == http.HTTPStatus.CREATED
        for secret in ("db", "api"):
            body = {"metadata": {"name": secret}, "stringData": {"password": "x"}}
            assert cluster_api.call("POST", SECRETS.path(name), body)[0] == http.HTTPStatus.CREATED
    with granted(cluster, cluster_api, ACCOUNT, tmp_path) as account:
        account.apply([{"kind": "ServiceAccount", "metadata": {"name": ACCOUNT, "namespace": "trellis-system"}}])
        yield World(cluster_api, account, namespaces)
    for name in namespaces:
        cluster_api.call("DELETE", NAMESPACES.path(name=name))


def test_only_the_secret_that_is_named_is_read_only_as_the_account_that_is_named(world: World) -> None:
    reader = world.be("reader")
    assert world.read("db", user=reader) == FORBIDDEN, "nothing is given yet"
    world.apply("-n", world.mine, "-a", "reader", "-s", "db")
    assert world.read("db", user=reader) == OK, "the ServiceAccount itself need not exist"
    assert world.read("api", user=reader) == FORBIDDEN
    assert world.read("db", user=reader, verb="DELETE") == FORBIDDEN
    assert world.read("db", user=reader, namespace=world.other) == FORBIDDEN
    assert world.read("", user=reader) == FORBIDDEN, "nothing is listed"
    assert world.read("db", user=world.be("writer")) == FORBIDDEN
    assert world.read("db", user=world.be("reader", world.other)) == FORBIDDEN
    assert world.read("db", user="reader") == FORBIDDEN
    assert world.read("db", user="system:admin") == FORBIDDEN


def test_a_secret_that_is_missing_looks_like_one_that_is_forbidden(world: World) -> None:
    world.apply("-n", world.mine, "-a", "reader", "-s", "db")
    assert world.read("api", user=world.be("reader")) == world.read("none", user=world.be("reader")) == FORBIDDEN


def test_to_be_an_account_gives_no_right_to_read(world: World) -> None:
    world.apply("-n", world.mine, "-a", "reader")
    assert world.read("db", user=world.be("reader")) == FORBIDDEN


def test_to_read_gives_no_right_to_be_the_account(world: World) -> None:
    world.apply("-n", world.mine, "-a", "reader", "-s", "db", "-s", "api")
    world.apply("-n", world.other, "-a", "writer", "-s", "db")
    assert world.read("api", user=world.be("reader")) == OK
    assert world.read("db", user=world.be("writer", world.other), namespace=world.other) == OK
    assert world.read("db", user=world.be("writer", world.other)) == FORBIDDEN


def test_a_user_reads_what_it_was_given_in_the_namespace(world: World) -> None:
    world.apply("-n", world.mine, "--user", JANE, "-s", "db")
    assert world.read("db", user=JANE) == OK
    assert world.read("api", user=JANE) == FORBIDDEN
    assert world.read("db", user=JANE, namespace=world.other) == FORBIDDEN
    assert world.read("db", user="john@example.com") == FORBIDDEN
