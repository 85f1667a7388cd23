"""The permissions of a service by the manifests under ``deploy/rbac``, and the ones that the API server saw it use.

Called by tests that run a service with exactly these rights. A right is (verb, resource, namespace); the resource has
its group and subresource (``pods/log``, ``deployments.apps``), the namespace is "" for a right in all of them.
"""

from __future__ import annotations

import contextlib
import http
import itertools
import time
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

import yaml

from trellis.kube.resources import (
    CLUSTER_ROLE_BINDINGS,
    CLUSTER_ROLES,
    NAMESPACES,
    ROLE_BINDINGS,
    ROLES,
    SERVICE_ACCOUNTS,
    Resource,
)
from trellis_dev.localcluster import ClusterInfo
from trellis_dev.localcluster.api import Api

Manifest = dict[str, Any]
Right = tuple[str, str, str]
RBAC = Path(__file__).parents[3] / "deploy" / "rbac"
SYSTEM = "trellis-system"
PATIENCE_SECONDS = 30.0
_REVIEWS = "/apis/authorization.k8s.io/v1/subjectaccessreviews"
_KINDS: Mapping[str, Resource] = {
    item.kind: item for item in (SERVICE_ACCOUNTS, ROLES, ROLE_BINDINGS, CLUSTER_ROLES, CLUSTER_ROLE_BINDINGS)
}
RBAC_KINDS = frozenset(_KINDS)


def manifests(name: str, namespace: str | None = None) -> list[Manifest]:
    """Return what a file has, as ``kubectl -n <namespace> apply`` would send it."""
    found = list(yaml.safe_load_all((RBAC / name).read_text(encoding="utf-8")))
    for item in found:
        if namespace is not None:
            item["metadata"]["namespace"] = namespace
    return found


def given(found: Iterable[Manifest]) -> set[Right]:
    """Return the permissions that Roles and ClusterRoles give."""
    return {
        (verb, _named(resource, group), item["metadata"].get("namespace", ""))
        for item in found
        for rule in item.get("rules", ())
        for group in rule["apiGroups"]
        for resource in rule["resources"]
        for verb in rule["verbs"]
    }


def user_of(record: Manifest) -> str:
    """Return the user of an audit record, "" if the API server did not learn it: a 401, or a call that was cut off."""
    return str(record["user"].get("username", ""))


def used(records: Iterable[Manifest], user: str) -> set[Right]:
    """Return the permissions that a user's calls needed; an apply that made something needed ``create`` too."""
    permissions: set[Right] = set()
    for record in records:
        ref = record.get("objectRef")
        if user_of(record) != user or not ref:
            continue
        resource = ref["resource"] + (f"/{ref['subresource']}" if ref.get("subresource") else "")
        named = _named(resource, ref.get("apiGroup", ""))
        permissions.add((record["verb"], named, ref.get("namespace", "")))
        if record["verb"] == "patch" and record["responseStatus"]["code"] == http.HTTPStatus.CREATED:
            permissions.add(("create", named, ref.get("namespace", "")))
    return permissions


def elsewhere(records: Iterable[Manifest], user: str) -> set[str]:
    """Return the paths of a user's calls that were about no resource."""
    return {
        str(record["requestURI"]).partition("?")[0]
        for record in records
        if user_of(record) == user and not record.get("objectRef")
    }


def refused(records: Iterable[Manifest], user: str) -> list[str]:
    """Return the calls of a user that were not allowed."""
    return [
        f"{record['verb']} {record['requestURI']}: {record['responseStatus'].get('message', '')}"
        for record in records
        if user_of(record) == user and record["responseStatus"]["code"] == http.HTTPStatus.FORBIDDEN
    ]


def _named(resource: str, group: str) -> str:
    plural, _, subresource = resource.partition("/")
    return (f"{plural}.{group}" if group else plural) + (f"/{subresource}" if subresource else "")


def until_bound(api: Api, binding: Manifest) -> None:
    """Wait until the API server gives what a binding gives: its authorizer has its own copies, by a watch."""
    for requested in _bound(api, binding):
        _until_reviewed(api, requested, allowed=True)


def until_unbound(api: Api, binding: Manifest) -> None:
    """Wait until the API server no longer gives what a deleted binding gave; nothing else may give it."""
    for requested in _bound(api, binding):
        _until_reviewed(api, requested, allowed=False)


def _until_reviewed(api: Api, requested: Manifest, *, allowed: bool) -> None:
    deadline = time.monotonic() + PATIENCE_SECONDS
    while bool(api.call("POST", _REVIEWS, {"spec": requested})[1].get("status", {}).get("allowed")) is not allowed:
        assert time.monotonic() < deadline, f"allowed is not {allowed}: {requested}"
        time.sleep(0.02)


def _bound(api: Api, binding: Manifest) -> Iterator[Manifest]:
    """Yield what to request in order to see that a binding is known."""
    namespace, role = binding["metadata"].get("namespace", ""), binding["roleRef"]
    path = _KINDS[role["kind"]].path(namespace if role["kind"] == ROLES.kind else None, role["name"])
    rules = api.call("GET", path)[1].get("rules")
    for subject in binding.get("subjects") or ():
        for attributes in _attributes(rules, namespace):
            yield _subject(subject, namespace) | {"resourceAttributes": attributes}


def _attributes(rules: Iterable[Manifest] | None, namespace: str) -> Iterator[Manifest]:
    for rule in rules or ():
        for group, named, verb in itertools.product(
            rule.get("apiGroups", ()), rule.get("resources", ()), rule["verbs"]
        ):
            resource, _, subresource = named.partition("/")
            yield {
                "group": group,
                "resource": resource,
                "subresource": subresource,
                "verb": verb,
                "name": (rule.get("resourceNames") or [""])[0],
                "namespace": namespace,
            }


def _subject(subject: Manifest, namespace: str) -> Manifest:
    if subject["kind"] == SERVICE_ACCOUNTS.kind:
        return {"user": f"system:serviceaccount:{subject.get('namespace', namespace)}:{subject['name']}"}
    return {"groups": [subject["name"]]} if subject["kind"] == "Group" else {"user": subject["name"]}


class Granted:
    """The account of a service where it is installed, with the permissions of files that are applied one by one."""

    def __init__(self, cluster: ClusterInfo, api: Api, account: str, directory: Path) -> None:
        self._api = api
        self._account = account
        self._made: list[tuple[Resource, str, str | None]] = []
        self._cluster = cluster
        self.user = f"system:serviceaccount:{SYSTEM}:{account}"
        self.kubeconfig = directory / f"kubeconfig-of-{account}"
        answer = api.call("POST", NAMESPACES.path(), {"metadata": {"name": SYSTEM}})
        assert answer[0] in {http.HTTPStatus.CREATED, http.HTTPStatus.CONFLICT}, answer

    def apply(self, found: Iterable[Manifest]) -> None:
        """Create what manifests have, and wait until the API server gives the permissions."""
        found = list(found)
        for item in found:
            res, metadata = _KINDS[item["kind"]], item["metadata"]
            status, answer = self._api.call("POST", res.path(metadata.get("namespace")), item)
            assert status == http.HTTPStatus.CREATED, answer
            self._made.append((res, metadata["name"], metadata.get("namespace")))
            if res is SERVICE_ACCOUNTS:
                self.log_in()
        self._until_bound(found)

    def restore(self, found: Iterable[Manifest]) -> None:
        """Create again what went with its namespace, which is there again."""
        found = list(found)
        for item in found:
            res, namespace = _KINDS[item["kind"]], item["metadata"].get("namespace")
            status, answer = self._api.call("POST", res.path(namespace), item)
            assert status == http.HTTPStatus.CREATED, answer
        self._until_bound(found)

    def withdraw(self, res: Resource, name: str, namespace: str | None) -> None:
        """Delete one of them."""
        self._api.call("DELETE", res.path(namespace, name))
        self._made.remove((res, name, namespace))

    def remove(self) -> None:
        """Delete all of them."""
        for made in list(self._made):
            self.withdraw(*made)

    def _until_bound(self, found: Iterable[Manifest]) -> None:
        for item in found:
            if "roleRef" in item:
                until_bound(self._api, item)

    def log_in(self) -> None:
        """Write the kubeconfig of the account, which is there."""
        path = f"{SERVICE_ACCOUNTS.path(SYSTEM, self._account)}/token"
        body = {"apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest", "spec": {"expirationSeconds": 3600}}
        status, answer = self._api.call("POST", path, body)
        assert status == http.HTTPStatus.CREATED, answer
        config = yaml.safe_load(Path(self._cluster.kubeconfig).read_text(encoding="utf-8"))
        config["users"][0]["user"] = {"token": answer["status"]["token"]}
        self.kubeconfig.write_text(yaml.safe_dump(config), encoding="utf-8")


@contextlib.contextmanager
def granted(cluster: ClusterInfo, api: Api, account: str, directory: Path) -> Iterator[Granted]:
    """Make an account of a service for the time of a block, and its namespace, which stays."""
    made = Granted(cluster, api, account, directory)
    try:
        yield made
    finally:
        made.remove()
