"""Which users Secrets were read as by secrets-kubernetes, and the line that each needs to be one for Trellis.

Pure: raw objects in, steps out, none of which writes anything. Called by ``migrate_wasmcloud``.
Invariants: what a policy of a known application names is told as needed, any other user only as one that may be; users
that may read Secrets in the whole cluster, and users of Kubernetes itself, are left out.
Source: secrets-kubernetes impersonates the policy's ``impersonate`` as a user, whatever its namespace; here that is a
ServiceAccount, and a user only where a SecretGrant and TRELLIS_SECRETS_USERS name it.
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
    """A binding that lets a user read Secrets of a namespace, "" for all; ``what``: which."""

    binding: Manifest
    user: str
    namespace: str
    what: str


@dataclass(frozen=True, slots=True)
class _Given:
    """What SecretGrants have, by namespace, and what is open without: ``homes`` have host groups."""

    users: frozenset[tuple[str, str]]
    accounts: frozenset[tuple[str, str]]
    governed: frozenset[str]
    homes: frozenset[str]

    @classmethod
    def of(cls, former: Former) -> _Given:
        return cls(
            frozenset(_granted(former.grants, "users")),
            frozenset(_granted(former.grants, "serviceAccounts")),
            frozenset(one["metadata"]["namespace"] for one in former.grants),
            frozenset(one.manifest["metadata"]["namespace"] for one in former.groups),
        )

    def is_account(self, namespace: str, name: str) -> bool:
        """Say whether a grant takes a name for that of a ServiceAccount already."""
        return (namespace, name) not in self.users and not self.accounts.isdisjoint(
            {(namespace, name), (namespace, _ANY)}
        )


def plan_secrets(former: Former) -> list[Step]:
    """Return each binding, or policy, by which a user reads Secrets, with what it takes to go on so."""
    named = _named(former.apps)
    readings = list(_readings(former.rights))
    given = _Given.of(former)
    hosts = sorted(given.homes)
    steps = []
    for one in readings:
        asking = [(namespace, apps) for (user, namespace), apps in named.items() if user == one.user]
        asking = [(namespace, apps) for namespace, apps in asking if one.namespace in {"", namespace}]
        what = f"lets user {one.user} read {one.what}"
        for namespace, apps in sorted(asking):
            steps.append(_needed(place_of(one.binding), what, one.user, namespace, apps, given))
        if not asking and one.namespace:
            why = f"no policy of a known application names {one.user}; if one does: " + _line(
                one.user, one.namespace, hosts[:_NAMED] or ["NAMESPACE-OF-THE-HOSTS"], given
            )
            steps.append(Step(place_of(one.binding), what, Doing.LEAVE, why))
    steps += _unbound(named, readings, given)
    return sorted(steps, key=lambda step: (step.object, step.what, step.why))


def _unbound(named: Mapping[tuple[str, str], set[str]], readings: Iterable[_Reading], given: _Given) -> Iterator[Step]:
    """Yield what policies name and no binding lets read: perhaps a group does, or an account of that name is meant."""
    bound = {(one.user, namespace) for one in readings for _, namespace in named if one.namespace in {"", namespace}}
    for (user, namespace), apps in named.items():
        if (user, namespace) not in bound and not given.is_account(namespace, user):
            what = f"reads Secrets of namespace {namespace} as user {user}, whom no binding lets do so"
            yield _needed(f"Application {min(apps)}", what, user, namespace, apps, given)


def _needed(place: str, what: str, user: str, namespace: str, apps: Iterable[str], given: _Given) -> Step:
    found = sorted(apps)
    told = ", ".join(found[:_NAMED]) + (f" and {len(found) - _NAMED} more" if len(found) > _NAMED else "")
    sources = sorted({one.partition("/")[0] for one in found})
    return Step(place, what, Doing.LEAVE, f"policies of {told} name it: {_line(user, namespace, sources, given)}")


def _line(user: str, namespace: str, sources: list[str], given: _Given) -> str:
    """Return what is to be added, as commands and a setting."""
    account = account_of(user)
    if account is not None and account[0] == namespace:
        return (
            f"it is a ServiceAccount, and stays one: `trellis secrets roles -n {namespace} -a {account[1]} | "
            "kubectl apply -f -`"
        )
    roles = f"`trellis secrets roles -n {namespace} --user {shlex.quote(user)} | kubectl apply -f -`"
    setting = f"{user} in {USERS_SETTING} of secrets_backend"
    if (namespace, user) in given.users:
        return f"a SecretGrant has it; also {setting}, and {roles}"
    spec: dict[str, Any] = {"from": [{"namespace": one} for one in sources], "users": [user]}
    if namespace in given.homes - given.governed:
        # The first grant of a namespace of hosts ends what is open there by default.
        spec["serviceAccounts"] = [_ANY]
    grant = {
        "apiVersion": SECRET_GRANTS.api_version,
        "kind": SECRET_GRANTS.kind,
        "metadata": {"name": names.reader_role(f"user:{user}"), "namespace": namespace},
        "spec": spec,
    }
    return f"{setting}, {roles}, and `kubectl apply -f - <<< {shlex.quote(json.dumps(grant, ensure_ascii=False))}`"


def _named(apps: Iterable[Manifest]) -> dict[tuple[str, str], set[str]]:
    """Return by user and namespace, as policies of secrets name them, the applications that do."""
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
    """Yield namespace and name of all that a list of every SecretGrant has."""
    for one in grants:
        for name in (one.get("spec") or {}).get(field) or ():
            yield one["metadata"]["namespace"], str(name)


def _readings(rights: Iterable[Manifest]) -> Iterator[_Reading]:
    rights = tuple(rights)
    roles = {_key(one): one for one in rights if one["kind"] in {"Role", "ClusterRole"}}
    for binding in rights:
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
    """Return which Secrets a role lets be read, in words, "" for none."""
    place = f"namespace {namespace}" if namespace else "every namespace"
    rules = [rule for rule in (role or {}).get("rules") or () if _reads(rule)]
    if not rules:
        return ""
    if any(not rule.get("resourceNames") for rule in rules):
        return f"all Secrets of {place}"
    listed = sorted({str(one) for rule in rules for one in rule["resourceNames"]})
    return f"Secret {', '.join(listed)} of {place}"


def _reads(rule: Mapping[str, Any]) -> bool:
    wanted = (("apiGroups", ""), ("resources", "secrets"), ("verbs", "get"))
    return all({value, _ANY}.intersection(rule.get(name) or ()) for name, value in wanted)
