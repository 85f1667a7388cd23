"""Two tenants of one installation: each a namespace in which its account may do everything, and an account of NATS.

Their lattices have one name, their objects too; the namespace and the NATS account alone tell the tenants apart.
"""

from __future__ import annotations

import contextlib
import http
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

from support.cluster.grants import until_bound
from support.lattices.host_world import HostWorld
from support.nats.tenants import from_own_account, url_of
from support.wadm.application_world import QUICK, ApplicationWorld, application_world
from trellis import names
from trellis.kube.resources import NAMESPACES, ROLE_BINDINGS, ROLES, SECRETS, SERVICE_ACCOUNTS, Resource
from trellis_dev.localcluster import ClusterInfo
from trellis_dev.localcluster.api import Api
from trellis_dev.localcluster.nats import NatsServer

Manifest = dict[str, Any]
EVERYTHING: Manifest = {"apiGroups": ["*"], "resources": ["*"], "verbs": ["*"]}


@dataclass
class Side:
    """One tenant. ``api``: calls as its own account; ``value``: what its Secret ``db`` holds."""

    hosts: HostWorld
    apps: ApplicationWorld
    api: Api
    account: str
    url: str
    value: str

    @property
    def namespace(self) -> str:
        """Its namespace."""
        return self.hosts.namespace

    def call(self, method: str, res: Resource, name: str = "", body: Manifest | None = None) -> tuple[int, Manifest]:
        """Return the answer to its own account, about its own namespace."""
        typed = None if body is None else {"apiVersion": res.api_version, "kind": res.kind} | body
        return self.api.call(method, res.path(self.namespace, name or None), typed)


def _make(api: Api, path: str, body: Manifest) -> Manifest:
    status, answer = api.call("POST", path, body)
    assert status == http.HTTPStatus.CREATED, answer
    return answer


def _bind(api: Api, binding: Manifest) -> None:
    _make(api, ROLE_BINDINGS.path(binding["metadata"]["namespace"]), binding)
    until_bound(api, binding)


def own_account(cluster: ClusterInfo, api: Api, namespace: str) -> Api:
    """Make the account of a tenant, which may do everything in its namespace; return calls as it."""
    _make(api, SERVICE_ACCOUNTS.path(namespace), {"metadata": {"name": "tenant"}})
    _make(api, ROLES.path(namespace), {"metadata": {"name": "tenant"}, "rules": [EVERYTHING]})
    subject = {"kind": "ServiceAccount", "name": "tenant", "namespace": namespace}
    ref = {"apiGroup": "rbac.authorization.k8s.io", "kind": "Role", "name": "tenant"}
    _bind(api, {"metadata": {"name": "tenant", "namespace": namespace}, "roleRef": ref, "subjects": [subject]})
    requested = {"apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest", "spec": {"expirationSeconds": 3600}}
    answer = _make(api, f"{SERVICE_ACCOUNTS.path(namespace, 'tenant')}/token", requested)
    config = yaml.safe_load(Path(cluster.kubeconfig).read_text(encoding="utf-8"))
    config["users"][0]["user"] = {"token": answer["status"]["token"]}
    written = Path(cluster.kubeconfig).parent / f"kubeconfig-of-tenant-{namespace}"
    written.write_text(yaml.safe_dump(config), encoding="utf-8")
    return Api.of_kubeconfig(written)


def reader(api: Api, namespace: str, value: str) -> None:
    """Make a Secret ``db``, and the account that is meant if a policy names none, which may read it."""
    _make(api, SECRETS.path(namespace), {"metadata": {"name": "db"}, "stringData": {"password": value}})
    _make(api, SERVICE_ACCOUNTS.path(namespace), {"metadata": {"name": names.SECRETS_ACCOUNT}})
    rule = {"apiGroups": [""], "resources": ["secrets"], "resourceNames": ["db"], "verbs": ["get"]}
    _make(api, ROLES.path(namespace), {"metadata": {"name": "reads"}, "rules": [rule]})
    subject = {"kind": "ServiceAccount", "name": names.SECRETS_ACCOUNT, "namespace": namespace}
    ref = {"apiGroup": "rbac.authorization.k8s.io", "kind": "Role", "name": "reads"}
    _bind(api, {"metadata": {"name": "reads", "namespace": namespace}, "roleRef": ref, "subjects": [subject]})


@contextlib.contextmanager
def side(hosts: HostWorld, cluster: ClusterInfo, server: NatsServer, account: str, lattice: str) -> Iterator[Side]:
    """Have a tenant in the namespace of a world, for the time of a block."""
    value = f"of-{account}-{hosts.namespace}"
    with application_world(hosts, server.port, lattice, from_own_account(account), QUICK) as apps:
        reader(hosts.api, hosts.namespace, value)
        api = own_account(cluster, hosts.api, hosts.namespace)
        try:
            yield Side(hosts, apps, api, account, url_of(server.port, account), value)
        finally:
            api.close()


@contextlib.contextmanager
def second_namespace(hosts: HostWorld) -> Iterator[HostWorld]:
    """Have a world of another namespace, for the time of a block."""
    other = f"{hosts.namespace}-other"
    _make(hosts.api, NAMESPACES.path(), {"metadata": {"name": other}})
    made = HostWorld(hosts.fleet, other)
    try:
        yield made
    finally:
        made.clean_up()
        hosts.api.call("DELETE", NAMESPACES.path(None, other))
