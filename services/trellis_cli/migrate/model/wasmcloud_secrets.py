"""Lists the users as which secrets-kubernetes read Secrets, with the configuration that Trellis needs for each.

Pure: raw objects in, steps out, which write nothing. Called by ``migrate.wasmcloud``.
Invariants: users in policies of known applications are reported as needed, and the rest as possible; users that may
read Secrets in the whole cluster, and users of Kubernetes itself, are omitted.
Source: secrets-kubernetes impersonates ``impersonate`` of a policy as a user, in any namespace; in Trellis that is a
ServiceAccount, and a user only if a SecretGrant and TRELLIS_SECRETS_USERS name it.
"""

from __future__ import annotations

import json
import shlex
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Final

from secrets_backend.domain.decide import USERS_SETTING
from secrets_backend.domain.resources import account_of
from trellis import names
from trellis.kube.resources import SECRET_GRANTS
from trellis_cli.migrate.model.plan import Doing, Step
from trellis_cli.migrate.model.wasmcloud import Former, Manifest, place_of
from trellis_cli.secrets.model import POLICY_TYPE

_DEFAULT_NAMESPACE: Final = "default"
_ANY: Final = "*"
_NAMED: Final = 3


@dataclass(frozen=True, slots=True)
class _Reading:
    """A binding that permits a user to read Secrets of a namespace, "" for all; ``what``: the Secrets."""

    binding: Manifest
    user: str
    namespace: str
    what: str


@dataclass(frozen=True, slots=True)
class _Given:
    """Contents of SecretGrants by namespace, and namespaces that need none: ``homes`` have host groups."""

    users: frozenset[tuple[str, str]]
    accounts: frozenset[tuple[str, str]]
    governed: frozenset[str]
    homes: frozenset[str]

    @classmethod
    def of(cls, former: Former) -> _Given:
        return cls(
            frozenset(_granted(former.grants, "users")),
            frozenset(_granted(former.grants, "serviceAccounts")),
            frozenset(grant["metadata"]["namespace"] for grant in former.grants),
            frozenset(group.manifest["metadata"]["namespace"] for group in former.groups),
        )

    def is_account(self, namespace: str, name: str) -> bool:
        """Return whether a grant already covers a name as a ServiceAccount."""
        return (namespace, name) not in self.users and not self.accounts.isdisjoint(
            {(namespace, name), (namespace, _ANY)}
        )


def plan_secrets(former: Former) -> list[Step]:
    """Return a step for each binding or policy by which a user reads Secrets, with the required configuration."""
    named = _named(former.apps)
    readings = list(_readings(former.rbac))
    given = _Given.of(former)
    hosts = sorted(given.homes)
    steps = []
    for reading in readings:
        asking = [(namespace, apps) for (user, namespace), apps in named.items() if user == reading.user]
        asking = [(namespace, apps) for namespace, apps in asking if reading.namespace in {"", namespace}]
        what = f"permits user {reading.user} to read {reading.what}"
        for namespace, apps in sorted(asking):
            steps.append(_needed(place_of(reading.binding), what, reading.user, namespace, apps, given))
        if not asking and reading.namespace:
            reason = f"no policy of a known application names {reading.user}; otherwise: " + _line(
                reading.user, reading.namespace, hosts[:_NAMED] or ["NAMESPACE-OF-THE-HOSTS"], given
            )
            steps.append(Step(place_of(reading.binding), what, Doing.LEAVE, reason))
    steps += _unbound(named, readings, given)
    return sorted(steps, key=lambda step: (step.object, step.what, step.reason))


def _unbound(named: Mapping[tuple[str, str], set[str]], readings: Iterable[_Reading], given: _Given) -> Iterator[Step]:
    """Yield the users in policies without a binding: a group can permit it, or an account of that name is meant."""
    bound = {
        (reading.user, namespace)
        for reading in readings
        for _, namespace in named
        if reading.namespace in {"", namespace}
    }
    for (user, namespace), apps in named.items():
        if (user, namespace) not in bound and not given.is_account(namespace, user):
            what = f"reads Secrets of namespace {namespace} as user {user} without a binding"
            yield _needed(f"Application {min(apps)}", what, user, namespace, apps, given)


def _needed(place: str, what: str, user: str, namespace: str, apps: Iterable[str], given: _Given) -> Step:
    found = sorted(apps)
    apps_text = ", ".join(found[:_NAMED]) + (f" and {len(found) - _NAMED} more" if len(found) > _NAMED else "")
    sources = sorted({item.partition("/")[0] for item in found})
    return Step(place, what, Doing.LEAVE, f"policies of {apps_text} name it: {_line(user, namespace, sources, given)}")


def _line(user: str, namespace: str, sources: list[str], given: _Given) -> str:
    """Return the additions as commands and a setting."""
    account = account_of(user)
    if account is not None and account[0] == namespace:
        return f"it stays a ServiceAccount: `trellis secrets roles -n {namespace} -a {account[1]} | kubectl apply -f -`"
    roles = f"`trellis secrets roles -n {namespace} --user {shlex.quote(user)} | kubectl apply -f -`"
    setting = f"{user} in {USERS_SETTING} of secrets_backend"
    if (namespace, user) in given.users:
        return f"a SecretGrant names it; also {setting}, and {roles}"
    spec: dict[str, Any] = {"from": [{"namespace": source} for source in sources], "users": [user]}
    if namespace in given.homes - given.governed:
        # The first grant of a namespace with hosts disables the default access there.
        spec["serviceAccounts"] = [_ANY]
    grant = {
        "apiVersion": SECRET_GRANTS.api_version,
        "kind": SECRET_GRANTS.kind,
        "metadata": {"name": names.reader_role(f"user:{user}"), "namespace": namespace},
        "spec": spec,
    }
    return f"{setting}, {roles}, and `kubectl apply -f - <<< {shlex.quote(json.dumps(grant, ensure_ascii=False))}`"


def _named(apps: Iterable[Manifest]) -> dict[tuple[str, str], set[str]]:
    """Return the applications by user and namespace in their secret policies."""
    found: dict[tuple[str, str], set[str]] = {}
    for app in apps:
        for policy in (app.get("spec") or {}).get("policies") or ():
            properties = policy.get("properties") or {}
            user = str(properties.get("impersonate") or "")
            if policy.get("type") == POLICY_TYPE and user:
                namespace = str(properties.get("namespace") or _DEFAULT_NAMESPACE)
                metadata = app["metadata"]
                found.setdefault((user, namespace), set()).add(f"{metadata['namespace']}/{metadata['name']}")
    return found


def _granted(grants: Iterable[Manifest], field: str) -> Iterator[tuple[str, str]]:
    """Yield namespace and name of all items in a list field of the SecretGrants."""
    for grant in grants:
        for name in (grant.get("spec") or {}).get(field) or ():
            yield grant["metadata"]["namespace"], str(name)


def _readings(rbac: Iterable[Manifest]) -> Iterator[_Reading]:
    rbac = tuple(rbac)
    roles = {_key(right): right for right in rbac if right["kind"] in {"Role", "ClusterRole"}}
    for binding in rbac:
        if binding["kind"] not in {"RoleBinding", "ClusterRoleBinding"}:
            continue
        namespace = str(binding["metadata"].get("namespace") or "")
        ref = binding.get("roleRef") or {}
        role = roles.get((ref.get("kind"), namespace if ref.get("kind") == "Role" else "", ref.get("name")))
        what = _secrets_of(role, namespace)
        for subject in (binding.get("subjects") or ()) if what else ():
            user = str(subject.get("name") or "")
            own = user.startswith("system:") and account_of(user) is None
            if subject.get("kind") == "User" and user and not own:
                yield _Reading(binding, user, namespace, what)


def _key(role: Manifest) -> tuple[Any, Any, Any]:
    metadata = role["metadata"]
    return role["kind"], metadata.get("namespace") or "", metadata["name"]


def _secrets_of(role: Manifest | None, namespace: str) -> str:
    """Return the Secrets that a role permits to read, as text, "" for none."""
    place = f"namespace {namespace}" if namespace else "every namespace"
    rules = [rule for rule in (role or {}).get("rules") or () if _reads(rule)]
    if not rules:
        return ""
    if any(not rule.get("resourceNames") for rule in rules):
        return f"all Secrets of {place}"
    listed = sorted({str(resource_name) for rule in rules for resource_name in rule["resourceNames"]})
    return f"Secret {', '.join(listed)} of {place}"


def _reads(rule: Mapping[str, Any]) -> bool:
    wanted = (("apiGroups", ""), ("resources", "secrets"), ("verbs", "get"))
    return all({value, _ANY}.intersection(rule.get(name) or ()) for name, value in wanted)
