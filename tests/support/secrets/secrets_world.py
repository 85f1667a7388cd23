"""Secrets for the components of one test, and secrets_backend, on a real API server and a NATS of the test's."""

from __future__ import annotations

import contextlib
import http
import time
from collections.abc import AsyncIterator, Iterator
from contextlib import AbstractAsyncContextManager
from functools import partial
from pathlib import Path
from typing import Any

import pytest

import secrets_backend.app
import secrets_backend.settings
from secrets_backend.timings import KeyTimings, Timings
from support.cluster.definitions import ensure_served
from support.cluster.grants import until_bound
from support.lattices.host_world import PATIENCE, HostWorld
from support.secrets.secrets_host import Host
from support.suite import planted
from support.suite.in_process import serving
from trellis import names
from trellis.kube.resources import (
    NAMESPACES,
    ROLE_BINDINGS,
    ROLES,
    SECRET_GRANTS,
    SECRETS,
    SERVICE_ACCOUNTS,
)
from trellis.kube.watch_timings import WatchTimings
from trellis.runtime.run import Service
from trellis_dev.localcluster.api import Api
from trellis_dev.localcluster.nats import NatsServer

Manifest = dict[str, Any]
QUICK = Timings(
    key=KeyTimings(look=0.1),
    other=0.1,
    probe=0.1,
    changes=0.1,
    definition=0.1,
    recheck=0.1,
    confirm=0.1,
    restart=0.1,
    watch=WatchTimings(absent=0.1, refused=0.1),
)


class SecretsWorld:
    """A namespace with a group of hosts on the test's NATS, its Secrets, and who may read them."""

    def __init__(self, hosts: HostWorld, server: NatsServer) -> None:
        self.hosts = hosts
        self.api = hosts.api
        self.server = server
        self.namespace = hosts.namespace
        self.system = hosts.fleet.system

    def group(self, name: str = "group", lattice: str = "default", **spec: Any) -> Manifest:
        """Create a group of hosts on the test's NATS; nobody makes pods of it."""
        address = {"natsAddress": "nats://127.0.0.1", "natsClientPort": self.server.port}
        return self.hosts.create(name, lattice=lattice, **{**address, **spec})

    def secret(self, name: str, **data: str) -> None:
        """Create a Secret, or change it."""
        self.hosts.secret(name, **data)

    def account(self, name: str = names.SECRETS_ACCOUNT, *, secrets: tuple[str, ...] = ()) -> None:
        """Create a ServiceAccount that may read these Secrets; with none it may read nothing."""
        self.hosts.call("POST", SERVICE_ACCOUNTS, body={"metadata": {"name": name}})
        if secrets:
            rules = [{"apiGroups": [""], "resources": ["secrets"], "resourceNames": [*secrets], "verbs": ["get"]}]
            self.bind(f"reads-{name}", rules, [{"kind": "ServiceAccount", "name": name, "namespace": self.namespace}])

    def bind(self, name: str, rules: list[Manifest], subjects: list[Manifest]) -> None:
        """Create a Role and its binding."""
        self.hosts.call("POST", ROLES, body={"metadata": {"name": name}, "rules": rules})
        ref = {"apiGroup": "rbac.authorization.k8s.io", "kind": "Role", "name": name}
        binding = {"metadata": {"name": name}, "roleRef": ref, "subjects": subjects}
        self.hosts.call("POST", ROLE_BINDINGS, body=binding)
        until_bound(self.api, binding | {"metadata": {"name": name, "namespace": self.namespace}})

    def grant(self, name: str, namespace: str = "", **spec: Any) -> None:
        """Create a SecretGrant."""
        body: Manifest = {"apiVersion": SECRET_GRANTS.api_version, "kind": SECRET_GRANTS.kind}
        body |= {"metadata": {"name": name}, "spec": spec}
        status, answer = self.api.call("POST", SECRET_GRANTS.path(namespace or self.namespace), body)
        assert status == http.HTTPStatus.CREATED, answer

    def grant_reason(self, name: str) -> str:
        """Return the reason of a SecretGrant's condition Ready, "" if it has none yet."""
        conditions = (self.hosts.call("GET", SECRET_GRANTS, name).get("status") or {}).get("conditions") or ()
        return next((str(condition["reason"]) for condition in conditions if condition["type"] == "Ready"), "")

    def ready_to_ask(self, **data: str) -> None:
        """Have a group, a Secret ``db``, and the account that is meant if a policy names none."""
        self.group()
        self.secret("db", **(data or {"password": planted.VALUE}))
        self.account(secrets=("db",))

    def host(self, **options: Any) -> Host:
        """Return a host on the test's NATS."""
        return Host(self.server.url, **options)

    def key_secret(self) -> Manifest | None:
        """Return the Secret with the key."""
        status, found = self.api.call("GET", SECRETS.path(self.system, names.SECRETS_KEY))
        return found if status == http.HTTPStatus.OK else None

    def backend(self, timings: Timings = QUICK, **changes: Any) -> AbstractAsyncContextManager[Service]:
        """Run secrets_backend in this process for the time of a block."""
        settings = {"sources_interval": 0.2} | self.hosts.fleet.settings(**changes)
        create = partial(secrets_backend.app.create_app, timings=timings)
        return serving(create, secrets_backend.settings.Settings, settings)

    @contextlib.asynccontextmanager
    async def asking(self, **options: Any) -> AsyncIterator[Host]:
        """Have a host that knows the backend's key for the time of a block."""
        async with self.host(**options) as host:
            await served(host)
            yield host


async def served(host: Host) -> None:
    """Wait until a host is given a key."""
    deadline = time.monotonic() + PATIENCE
    while not host.server:
        with contextlib.suppress(Exception):  # nobody answers yet
            await host.ask_key(1)
        assert time.monotonic() < deadline, "no backend answers"


def define_grants(api: Api) -> None:
    """Have the kind defined and served."""
    ensure_served(api, SECRET_GRANTS)


@pytest.fixture
def secret_world(hosts: HostWorld, tmp_path: Path) -> Iterator[SecretsWorld]:
    """A world of one test."""
    define_grants(hosts.api)
    with NatsServer(tmp_path / "nats") as server:
        made = SecretsWorld(hosts, server)
        made.api.call("POST", NAMESPACES.path(), {"metadata": {"name": made.system}})
        yield made


__all__ = ["SecretsWorld", "secret_world"]
