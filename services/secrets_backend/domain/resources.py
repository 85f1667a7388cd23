"""RBAC for the read of a Secret as an account: impersonation by secrets_backend, and the read by the account.

Pure: arguments in, manifests out. Called by ``trellis secrets roles``; the service itself grants no permissions.
Invariant: each rule has ``resourceNames``: none grants a whole namespace, and only users, which have no namespace, are
impersonated with a ClusterRole.
Source: Kubernetes, "User impersonation": the verb ``impersonate`` on ``serviceaccounts`` of a namespace, on ``users``
of the cluster. An account need not exist to be impersonated.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final

from trellis import names

Manifest = dict[str, Any]

ACCOUNT: Final = "trellis-secrets-backend"
"""ServiceAccount of secrets_backend in ``deploy/rbac/secrets-backend.yaml``."""
ACCOUNT_PREFIX: Final = "system:serviceaccount:"
"""Prefix of the user names of ServiceAccounts: ``system:serviceaccount:<namespace>:<name>``."""
_GROUP: Final = "rbac.authorization.k8s.io"
_LABELS: Final = {"app.kubernetes.io/name": "trellis", "app.kubernetes.io/component": "secrets-backend"}


@dataclass(frozen=True, slots=True)
class Reader:
    """The identity for reads of Secrets in ``namespace``: one of its ServiceAccounts, or a user by the full name."""

    namespace: str
    name: str
    is_user: bool = False

    @property
    def role_key(self) -> str:
        """Input of the names of its roles, unique as no ServiceAccount has a colon in its name."""
        return f"user:{self.name}" if self.is_user else self.name

    @property
    def account(self) -> tuple[str, str] | None:
        """Namespace and name of its ServiceAccount, None for any other user."""
        return account_of(self.name) if self.is_user else (self.namespace, self.name)

    def subject(self) -> Manifest:
        """Return the subject of a binding."""
        if self.account is None:
            return {"apiGroup": _GROUP, "kind": "User", "name": self.name}
        return {"kind": "ServiceAccount", "name": self.account[1], "namespace": self.account[0]}


def account_of(user: str) -> tuple[str, str] | None:
    """Return namespace and name of the ServiceAccount of a user, None for any other user."""
    namespace, _, name = user.removeprefix(ACCOUNT_PREFIX).partition(":")
    return (namespace, name) if user.startswith(ACCOUNT_PREFIX) and namespace and name else None


def make_impersonation(reader: Reader, home: str) -> list[Manifest]:
    """Return role and binding with which secrets_backend in namespace ``home`` can impersonate a reader."""
    kind, resource, namespace, identity = "ClusterRole", "users", "", reader.name
    if reader.account is not None:
        kind, resource, (namespace, identity) = "Role", "serviceaccounts", reader.account
    name = names.impersonation_role(reader.role_key)
    rule = {"apiGroups": [""], "resources": [resource], "resourceNames": [identity], "verbs": ["impersonate"]}
    subject = {"kind": "ServiceAccount", "name": ACCOUNT, "namespace": home}
    return [_role(kind, name, namespace, rule), _binding(kind, name, namespace, subject)]


def make_reading(reader: Reader, secrets: Sequence[str]) -> list[Manifest]:
    """Return role and binding with which a reader can read only these Secrets of its namespace."""
    name = names.reader_role(reader.role_key)
    rule = {"apiGroups": [""], "resources": ["secrets"], "resourceNames": [*dict.fromkeys(secrets)], "verbs": ["get"]}
    return [_role("Role", name, reader.namespace, rule), _binding("Role", name, reader.namespace, reader.subject())]


def _role(kind: str, name: str, namespace: str, rule: Manifest) -> Manifest:
    return _made(kind, name, namespace) | {"rules": [rule]}


def _binding(kind: str, name: str, namespace: str, subject: Manifest) -> Manifest:
    role = {"apiGroup": _GROUP, "kind": kind, "name": name}
    return _made(f"{kind}Binding", name, namespace) | {"roleRef": role, "subjects": [subject]}


def _made(kind: str, name: str, namespace: str) -> Manifest:
    metadata: Manifest = {"name": name} | ({"namespace": namespace} if namespace else {}) | {"labels": dict(_LABELS)}
    return {"apiVersion": f"{_GROUP}/v1", "kind": kind, "metadata": metadata}
