"""The services of the integration tests have the rights of ``deploy/rbac`` and no others, whatever the test is about.

In: a service that a test runs in its own process as the cluster's administrator. Out: the same service as an account of
its own; at the end, what these accounts used and were refused. Called by the fixture ``cluster``. A test that gives a
service another account, or another client, keeps it. Whom a service is given to act as, what controllers may watch, and
which Secrets of lattices are read is for people to say; here it is given to all tests alike.
"""

from __future__ import annotations

import asyncio
import contextlib
import copy
import http
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import pytest
import yaml

from support.grants import Manifest, manifests
from trellis.kube.resources import (
    CLUSTER_ROLE_BINDINGS,
    CLUSTER_ROLES,
    NAMESPACES,
    ROLE_BINDINGS,
    ROLES,
    SERVICE_ACCOUNTS,
)
from trellis.localcluster import ClusterInfo
from trellis.localcluster.api import Api
from trellis.service import Service

HOME: Final = "trellis-system"
INSTALLERS: Final = "trellis-installers"
SUFFIX: Final = "-suite"
PLACES: Final = (HOME, INSTALLERS)
CONFINED: Final = ("host-manager-confined.yaml", "host-manager-watched.yaml")
PATIENCE_SECONDS: Final = 30.0
_DAY: Final = 24 * 3600
_REVIEWS: Final = "/apis/authorization.k8s.io/v1/subjectaccessreviews"
_KINDS: Final = {
    one.kind: one for one in (SERVICE_ACCOUNTS, ROLES, ROLE_BINDINGS, CLUSTER_ROLES, CLUSTER_ROLE_BINDINGS)
}
_FOR_PEOPLE_TO_SAY: Final[dict[str, list[Manifest]]] = {
    "secrets_backend": [
        {"apiGroups": [""], "resources": ["users", "serviceaccounts"], "verbs": ["impersonate"]},
        {"apiGroups": [""], "resources": ["secrets"], "verbs": ["get"]},
    ],
    "controller_host": [{"apiGroups": [""], "resources": ["users", "serviceaccounts"], "verbs": ["impersonate"]}],
}


class SuiteAccounts:
    """The accounts of a cluster's services, each made when it is first needed."""

    def __init__(self, cluster: ClusterInfo, directory: Path) -> None:
        self._cluster = cluster
        self._directory = directory
        self._administrator = _token(Path(cluster.kubeconfig))
        self._tokens: dict[str, str] = {}
        self._done: set[tuple[str, ...]] = set()
        self._lock = threading.Lock()

    def concerns(self, service: Service) -> bool:
        """Say whether a service is about to come as this cluster's administrator."""
        kubeconfig = service.settings.kubeconfig
        return service.kube is None and kubeconfig is not None and _token(kubeconfig) == self._administrator

    def kubeconfig(self, service: Service) -> Path:
        """Return the file with which a service comes as its account, the way to the server being as it was."""
        settings = service.settings
        home, installers = settings.namespace, getattr(settings, "installer_namespace", INSTALLERS)
        watched = tuple(getattr(settings, "watch_namespaces", ()))
        resources = tuple(getattr(settings, "controller_resources", ()))
        with self._lock, contextlib.closing(Api.of_kubeconfig(Path(self._cluster.kubeconfig))) as api:
            token = self._account(api, service.name, home, installers, watched, resources)
        config = yaml.safe_load(settings.kubeconfig.read_text(encoding="utf-8"))
        config["users"][0]["user"] = {"token": token}
        path = self._directory / f"{service.name}-{len(list(self._directory.iterdir()))}"
        path.write_text(yaml.safe_dump(config), encoding="utf-8")
        return path

    def _account(
        self,
        api: Api,
        service: str,
        home: str,
        installers: str,
        watched: tuple[str, ...],
        resources: tuple[str, ...],
    ) -> str:
        stem = service.replace("_", "-")
        key = (service, home, installers, ",".join(watched), ",".join(resources))
        account = f"trellis-{stem}{'-confined' if watched else ''}{SUFFIX}"
        if key in self._done:
            return self._tokens[account]
        found = manifests(f"{stem}{'-confined' if watched else ''}.yaml")
        wanted = [_placed(one, account, {HOME: home, INSTALLERS: installers}) for one in found]
        for namespace in watched:
            wanted += [_placed(one, account, {HOME: home}, namespace) for one in manifests(CONFINED[1], namespace)]
        wanted += _given_by_people(service, account, resources)
        for one in wanted:
            self._ensure(api, one)
        if account not in self._tokens:
            path = f"{SERVICE_ACCOUNTS.path(HOME, account)}/token"
            body = {"apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest"}
            status, answer = api.call("POST", path, body | {"spec": {"expirationSeconds": _DAY}})
            assert status == http.HTTPStatus.CREATED, answer
            self._tokens[account] = answer["status"]["token"]
        for one in wanted:
            _until_given(api, f"system:serviceaccount:{HOME}:{account}", one)
        self._done.add(key)
        return self._tokens[account]

    def _ensure(self, api: Api, one: Manifest) -> None:
        resource, metadata = _KINDS[one["kind"]], one["metadata"]
        namespace = metadata.get("namespace")
        if namespace is not None:
            api.call("POST", NAMESPACES.path(), {"metadata": {"name": namespace}})
        status, answer = api.call("POST", resource.path(namespace), one)
        assert status in {http.HTTPStatus.CREATED, http.HTTPStatus.CONFLICT}, answer


def _given_by_people(service: str, account: str, resources: tuple[str, ...]) -> list[Manifest]:
    """Return what values of the chart give: whom to act as, what controllers may watch."""
    rules = [*_FOR_PEOPLE_TO_SAY.get(service, ())]
    for one in resources:
        version, _, kind = one.rpartition("/")
        group = version.rpartition("/")[0]
        rules.append({"apiGroups": [group], "resources": [plural(kind)], "verbs": ["list", "watch"]})
    if not rules:
        return []
    name = f"{account}-by-people"
    if resources:
        name += "-" + "-".join(sorted(one.replace("/", ".").lower() for one in resources))
    group = "rbac.authorization.k8s.io"
    role: Manifest = {"apiVersion": f"{group}/v1", "kind": "ClusterRole", "metadata": {"name": name}, "rules": rules}
    binding = {
        "apiVersion": f"{group}/v1",
        "kind": "ClusterRoleBinding",
        "metadata": {"name": name},
        "roleRef": {"apiGroup": group, "kind": "ClusterRole", "name": name},
        "subjects": [{"kind": "ServiceAccount", "name": account, "namespace": HOME}],
    }
    return [role, binding]


def plural(kind: str) -> str:
    """Return a kind's name in rules, where it is made as most are."""
    small = kind.lower()
    if small.endswith(("s", "x", "ch")):
        return f"{small}es"
    return f"{small[:-1]}ies" if small.endswith("y") else f"{small}s"


def _placed(found: Manifest, account: str, places: dict[str, str], namespace: str | None = None) -> Manifest:
    """Return a manifest of ``deploy/rbac`` for an account, with its Roles where a test has what they are about.

    ClusterRoles are one for all tests, so that of namespaces they may read every one; what of the cluster's rules is
    used is compared without names.
    """
    one = copy.deepcopy(found)
    metadata = one["metadata"]
    metadata["name"] = account if one["kind"] == "ServiceAccount" else f"{metadata['name']}{SUFFIX}"
    if one["kind"] != "ServiceAccount" and "namespace" in metadata:
        metadata["namespace"] = namespace or places.get(metadata["namespace"], metadata["namespace"])
    for rule in one.get("rules", ()):
        names = rule.get("resourceNames")
        if names and rule["resources"] == ["namespaces"]:
            if one["kind"] == "ClusterRole":
                del rule["resourceNames"]
            else:
                rule["resourceNames"] = [places.get(name, name) for name in names]
    if "roleRef" in one:
        one["roleRef"]["name"] += SUFFIX
        one["subjects"] = [{"kind": "ServiceAccount", "name": account, "namespace": HOME}]
    return one


def _until_given(api: Api, user: str, role: Manifest) -> None:
    """Wait until the API server has heard of a Role: its authorizer has its own copy, by a watch."""
    if not role.get("rules"):
        return
    rule = role["rules"][0]
    resource, _, subresource = rule["resources"][0].partition("/")
    asked = {
        "group": rule["apiGroups"][0],
        "resource": resource,
        "subresource": subresource,
        "verb": rule["verbs"][0],
        "name": (rule.get("resourceNames") or [""])[0],
        "namespace": role["metadata"].get("namespace", ""),
    }
    body = {"spec": {"user": user, "resourceAttributes": asked}}
    deadline = time.monotonic() + PATIENCE_SECONDS
    while not api.call("POST", _REVIEWS, body)[1].get("status", {}).get("allowed"):
        assert time.monotonic() < deadline, f"{user} does not get {asked}"
        time.sleep(0.02)


def _token(kubeconfig: Path) -> str | None:
    users = yaml.safe_load(kubeconfig.read_text(encoding="utf-8")).get("users") or [{}]
    token = (users[0].get("user") or {}).get("token")
    return str(token) if token else None


async def _when_it_answers(accounts: SuiteAccounts, service: Service, stop: asyncio.Event) -> Path | None:
    """Return the file of a service's account, once the API server is there to make it: some tests begin without."""
    while True:
        with contextlib.suppress(OSError):
            return await asyncio.to_thread(accounts.kubeconfig, service)
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(stop.wait(), 0.2)
            return service.settings.kubeconfig


@contextlib.contextmanager
def suite_accounts(cluster: ClusterInfo, directory: Path) -> Iterator[None]:
    """Have every service of this process that would come as the administrator come as its account."""
    accounts = SuiteAccounts(cluster, directory)
    run = Service.run

    async def run_as_account(self: Service, stop: asyncio.Event) -> None:
        if await asyncio.to_thread(accounts.concerns, self):
            kubeconfig = await _when_it_answers(accounts, self, stop)
            self.settings = self.settings.model_copy(update={"kubeconfig": kubeconfig})
        await run(self, stop)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Service, "run", run_as_account)
        yield
