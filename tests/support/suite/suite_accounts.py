"""The services of the integration tests have the rights of ``deploy/rbac`` and no others, whatever the test is about.

In: a service that a test runs, in its own process or in another one, as the cluster's administrator. Out: the same
service as an account of its own. Called by the fixture ``cluster``, and in processes that tests start by
``suite_site/sitecustomize.py``. A test that gives a service another account, or another client, keeps it. Whom a
service is given to act as, what controllers may watch, and which Secrets of lattices are read is for people to say;
here it is given to all tests alike.
"""

from __future__ import annotations

import asyncio
import contextlib
import copy
import hashlib
import http
import os
import tempfile
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import yaml

from support.cluster.grants import Manifest, manifests, until_bound
from support.suite.suite_permissions import FILES
from trellis.kube.resources import (
    CLUSTER_ROLE_BINDINGS,
    CLUSTER_ROLES,
    NAMESPACES,
    ROLE_BINDINGS,
    ROLES,
    SERVICE_ACCOUNTS,
)
from trellis.names import CLAIM_NAMESPACE
from trellis.runtime.service import Service
from trellis_dev.localcluster.api import Api

HOME: Final = "trellis-system"
INSTALLERS: Final = "trellis-installers"
SUFFIX: Final = "-suite"
PLACES: Final = (HOME, INSTALLERS)
SITE: Final = Path(__file__).parent / "suite_site"
KUBECONFIG_VARIABLE: Final = "SUITE_KUBECONFIG"
DIRECTORY_VARIABLE: Final = "SUITE_ACCOUNTS"
"""How processes that tests start know the administrator, and where the accounts' tokens are."""
CONFINED: Final = ("host-manager-confined.yaml", "host-manager-watched.yaml")
_DAY: Final = 24 * 3600
_KINDS: Final = {
    item.kind: item for item in (SERVICE_ACCOUNTS, ROLES, ROLE_BINDINGS, CLUSTER_ROLES, CLUSTER_ROLE_BINDINGS)
}
_GRANTED_BY_USERS: Final[dict[str, list[Manifest]]] = {
    "secrets_backend": [
        {"apiGroups": [""], "resources": ["users", "serviceaccounts"], "verbs": ["impersonate"]},
        {"apiGroups": [""], "resources": ["secrets"], "verbs": ["get"]},
    ],
    "controller_host": [{"apiGroups": [""], "resources": ["users", "serviceaccounts"], "verbs": ["impersonate"]}],
}


class SuiteAccounts:
    """The accounts of a cluster's services, each made when it is first needed; ``directory`` is for all processes."""

    def __init__(self, kubeconfig: Path, directory: Path) -> None:
        self._kubeconfig = kubeconfig
        self._directory = directory
        self._administrator = _token(kubeconfig)
        self._lock = threading.Lock()

    def concerns(self, service: Service) -> bool:
        """Say whether a service with permissions of its own is about to come as this cluster's administrator."""
        kubeconfig = service.settings.kubeconfig
        if service.kube is not None or kubeconfig is None or f"{_stem(service)}.yaml" not in FILES:
            return False
        try:
            return _token(kubeconfig) == self._administrator
        except (OSError, yaml.YAMLError):
            return False  # what the service says of it is for its test

    def kubeconfig(self, service: Service) -> Path:
        """Return the file with which a service comes as its account, the way to the server being as it was."""
        settings = service.settings
        home, installers = settings.namespace, getattr(settings, "installer_namespace", INSTALLERS)
        claims = getattr(settings, "claim_namespace", CLAIM_NAMESPACE)
        watched = tuple(getattr(settings, "watch_namespaces", ()))
        resources = tuple(getattr(settings, "controller_resources", ()))
        with self._lock, contextlib.closing(Api.of_kubeconfig(self._kubeconfig)) as api:
            token = self._account(api, service, (home, installers, claims), watched, resources)
        config = yaml.safe_load(settings.kubeconfig.read_text(encoding="utf-8"))
        config["users"][0]["user"] = {"token": token}
        return self._written(config, f"{service.name}-")

    def _account(
        self,
        api: Api,
        service: Service,
        places: tuple[str, str, str],
        watched: tuple[str, ...],
        resources: tuple[str, ...],
    ) -> str:
        stem, (home, installers, claims) = _stem(service), places
        account = f"trellis-{stem}{'-confined' if watched else ''}{SUFFIX}"
        key = "\n".join((account, *places, *watched, *resources))
        kept = self._directory / hashlib.sha256(key.encode()).hexdigest()
        if kept.exists():
            return kept.read_text(encoding="utf-8")
        found = manifests(f"{stem}{'-confined' if watched else ''}.yaml")
        wanted = [_placed(item, account, {HOME: home, INSTALLERS: installers}) for item in found]
        if claims != CLAIM_NAMESPACE:
            claim = [item for item in found if item["metadata"].get("namespace") == CLAIM_NAMESPACE]
            wanted += [_placed(item, account, {CLAIM_NAMESPACE: claims}) for item in claim]
        for namespace in watched:
            wanted += [
                _placed(manifest, account, {HOME: home}, namespace) for manifest in manifests(CONFINED[1], namespace)
            ]
        wanted += _given_by_users(service.name, account, resources)
        for item in wanted:
            self._ensure(api, item)
        path = f"{SERVICE_ACCOUNTS.path(HOME, account)}/token"
        body = {"apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest"}
        status, answer = api.call("POST", path, body | {"spec": {"expirationSeconds": _DAY}})
        assert status == http.HTTPStatus.CREATED, answer
        for item in wanted:
            if "roleRef" in item:
                until_bound(api, item)
        token = str(answer["status"]["token"])
        self._written(token, "token-").replace(kept)
        return token

    def _written(self, content: object, prefix: str) -> Path:
        """Return a new file, that no other process has."""
        with tempfile.NamedTemporaryFile("w", prefix=prefix, dir=self._directory, delete=False) as file:
            file.write(content if isinstance(content, str) else yaml.safe_dump(content))
        return Path(file.name)

    def _ensure(self, api: Api, one: Manifest) -> None:
        resource, metadata = _KINDS[one["kind"]], one["metadata"]
        namespace = metadata.get("namespace")
        if namespace is not None:
            api.call("POST", NAMESPACES.path(), {"metadata": {"name": namespace}})
        status, answer = api.call("POST", resource.path(namespace), one)
        assert status in {http.HTTPStatus.CREATED, http.HTTPStatus.CONFLICT}, answer


def _given_by_users(service: str, account: str, resources: tuple[str, ...]) -> list[Manifest]:
    """Return what values of the chart give: whom to act as, what controllers may watch."""
    rules = [*_GRANTED_BY_USERS.get(service, ())]
    for resource in resources:
        version, _, kind = resource.rpartition("/")
        group = version.rpartition("/")[0]
        rules.append({"apiGroups": [group], "resources": [plural(kind)], "verbs": ["list", "watch"]})
    if not rules:
        return []
    name = f"{account}-by-people"
    if resources:
        name += "-" + "-".join(sorted(resource.replace("/", ".").lower() for resource in resources))
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
    item = copy.deepcopy(found)
    metadata = item["metadata"]
    # Two places may be one here, and each has a Role of its own.
    suffix = SUFFIX if metadata.get("namespace") in {None, HOME} else f"{SUFFIX}-{metadata['namespace']}"
    metadata["name"] = account if item["kind"] == "ServiceAccount" else f"{metadata['name']}{suffix}"
    if item["kind"] != "ServiceAccount" and "namespace" in metadata:
        metadata["namespace"] = namespace or places.get(metadata["namespace"], metadata["namespace"])
    for rule in item.get("rules", ()):
        names = rule.get("resourceNames")
        if names and rule["resources"] == ["namespaces"]:
            if item["kind"] == "ClusterRole":
                del rule["resourceNames"]
            else:
                rule["resourceNames"] = [places.get(name, name) for name in names]
    if "roleRef" in item:
        item["roleRef"]["name"] += suffix if item["roleRef"]["kind"] == "Role" else SUFFIX
        item["subjects"] = [{"kind": "ServiceAccount", "name": account, "namespace": HOME}]
    return item


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
def suite_accounts(kubeconfig: Path, directory: Path) -> Iterator[None]:
    """Have every service that would come as the administrator come as its account, in processes of tests, too."""
    run = Service.run
    environment = {
        KUBECONFIG_VARIABLE: str(kubeconfig),
        DIRECTORY_VARIABLE: str(directory),
        "PYTHONPATH": os.pathsep.join(filter(None, (str(SITE), os.environ.get("PYTHONPATH")))),
    }
    before = {name: os.environ.get(name) for name in environment}
    os.environ.update(environment)
    come_as_accounts(kubeconfig, directory)
    try:
        yield
    finally:
        Service.run = run  # type: ignore[method-assign]
        for name, value in before.items():
            os.environ.pop(name) if value is None else os.environ.update({name: value})


def come_as_accounts(kubeconfig: Path, directory: Path) -> None:
    """Have every service of this process that would come as the administrator come as its account."""
    accounts = SuiteAccounts(kubeconfig, directory)
    run = Service.run

    async def run_as_account(self: Service, stop: asyncio.Event) -> None:
        if await asyncio.to_thread(accounts.concerns, self):
            kubeconfig = await _when_it_answers(accounts, self, stop)
            self.settings = self.settings.model_copy(update={"kubeconfig": kubeconfig})
        await run(self, stop)

    Service.run = run_as_account  # type: ignore[method-assign]


def _stem(service: Service) -> str:
    return service.name.replace("_", "-")
