"""RBAC for controllers: permission of the platform to impersonate an account, and of the account to read its watches.

Pure: arguments in, manifests out. Called by ``trellis controllers roles``, which prints them; the service itself does
not write RBAC objects. Invariant: a Role covers exactly one account of one namespace.
Source: Kubernetes, "User impersonation": the verb ``impersonate`` on ``serviceaccounts`` of a namespace.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, Final

from trellis import names

Manifest = dict[str, Any]

ACCOUNT: Final = "trellis-controller-host"
"""ServiceAccount of controller_host in ``deploy/rbac/controller-host.yaml``."""
_GROUP: Final = "rbac.authorization.k8s.io"
_LABELS: Final = {"app.kubernetes.io/name": "trellis", "app.kubernetes.io/component": "controller-host"}
_SEEING: Final = ["get", "list", "watch"]


@dataclass(frozen=True, slots=True)
class Actor:
    """The ServiceAccount that controllers act as."""

    namespace: str
    name: str


@dataclass(frozen=True, slots=True, order=True)
class Watched:
    """A resource that controllers watch: ``jobs`` of group ``batch``; "" is the core group."""

    group: str
    plural: str


def make_impersonation(actor: Actor, home: str) -> list[Manifest]:
    """Return Role and RoleBinding that permit controller_host in namespace ``home`` to impersonate an account."""
    rule = {
        "apiGroups": [""],
        "resources": ["serviceaccounts"],
        "resourceNames": [actor.name],
        "verbs": ["impersonate"],
    }
    subject = {"kind": "ServiceAccount", "name": ACCOUNT, "namespace": home}
    return _bound(names.controller_role(actor.name), actor.namespace, [rule], subject)


def make_seeing(actor: Actor, watched: Iterable[Watched]) -> list[Manifest]:
    """Return Role and RoleBinding that permit an account to read resources of its namespace."""
    rules = [{"apiGroups": [item.group], "resources": [item.plural], "verbs": _SEEING} for item in watched]
    subject = {"kind": "ServiceAccount", "name": actor.name, "namespace": actor.namespace}
    return _bound(names.controller_watch_role(actor.name), actor.namespace, rules, subject)


def _bound(name: str, namespace: str, rules: list[Manifest], subject: Manifest) -> list[Manifest]:
    metadata = {"name": name, "namespace": namespace, "labels": dict(_LABELS)}
    role = {"apiGroup": _GROUP, "kind": "Role", "name": name}
    made = {"apiVersion": f"{_GROUP}/v1"}
    return [
        made | {"kind": "Role", "metadata": metadata, "rules": rules},
        made | {"kind": "RoleBinding", "metadata": metadata, "roleRef": role, "subjects": [subject]},
    ]
