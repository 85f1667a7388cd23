"""Rights that let a Secret be read as an account: ours to be that account, and the account's to read.

Pure: arguments in, manifests out. Called by ``trellis secrets roles``; the service itself grants no permissions.
Invariant: each rule names what it is about (``resourceNames``): nothing gives a whole namespace, and only users, who
belong to none, are impersonated by a ClusterRole.
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
"""ServiceAccount of secrets_backend, as ``deploy/rbac/secrets-backend.yaml`` has it."""
ACCOUNT_PREFIX: Final = "system:serviceaccount:"
"""Of the users that ServiceAccounts are: ``system:serviceaccount:<namespace>:<name>``."""
_GROUP: Final = "rbac.authorization.k8s.io"
_LABELS: Final = {"app.kubernetes.io/name": "trellis", "app.kubernetes.io/component": "secrets-backend"}


@dataclass(frozen=True, slots=True)
class Reader:
    """Whom Secrets of ``namespace`` are read as: one of its ServiceAccounts, or a user by its whole name."""

    namespace: str
    name: str
    is_user: bool = False

    @property
    def mark(self) -> str:
        """What the names of its roles are made of: no ServiceAccount has a colon in its name."""
        return f"user:{self.name}" if self.is_user else self.name

    @property
    def account(self) -> tuple[str, str] | None:
        """Namespace and name of the ServiceAccount that it is, None for a user who is none."""
        return account_of(self.name) if self.is_user else (self.namespace, self.name)

    def subject(self) -> Manifest:
        """Return it as the subject of a binding."""
        if self.account is None:
            return {"apiGroup": _GROUP, "kind": "User", "name": self.name}
        return {"kind": "ServiceAccount", "name": self.account[1], "namespace": self.account[0]}


def account_of(user: str) -> tuple[str, str] | None:
    """Return namespace and name of the ServiceAccount that a user is, None if it is none."""
    namespace, _, name = user.removeprefix(ACCOUNT_PREFIX).partition(":")
    return (namespace, name) if user.startswith(ACCOUNT_PREFIX) and namespace and name else None


def make_impersonation(reader: Reader, home: str) -> list[Manifest]:
    """Return the role and the binding that let secrets_backend, installed in namespace ``home``, be a reader."""
    kind, resource, namespace, who = "ClusterRole", "users", "", reader.name
    if reader.account is not None:
        kind, resource, (namespace, who) = "Role", "serviceaccounts", reader.account
    name = names.impersonation_role(reader.mark)
    rule = {"apiGroups": [""], "resources": [resource], "resourceNames": [who], "verbs": ["impersonate"]}
    subject = {"kind": "ServiceAccount", "name": ACCOUNT, "namespace": home}
    return [_role(kind, name, namespace, rule), _binding(kind, name, namespace, subject)]


def make_reading(reader: Reader, secrets: Sequence[str]) -> list[Manifest]:
    """Return the role and the binding that let a reader read these Secrets of its namespace, and no other."""
    name = names.reader_role(reader.mark)
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
