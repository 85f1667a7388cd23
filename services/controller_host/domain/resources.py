"""Rights that controllers need: the platform's to be their account, and the account's to see what they watch.

Pure: arguments in, manifests out. Called by ``trellis controllers roles``, which is where they are taken from; the
service itself writes none. Invariant: nothing gives more than one account of one namespace.
Source: Kubernetes, "User impersonation": the verb ``impersonate`` on ``serviceaccounts`` of a namespace.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, Final

from trellis import names

Manifest = dict[str, Any]

ACCOUNT: Final = "trellis-controller-host"
"""ServiceAccount of controller_host, as ``deploy/rbac/controller-host.yaml`` has it."""
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
    """A resource that controllers watch: ``jobs`` of group ``batch``; the group is "" for the core's."""

    group: str
    plural: str


def make_impersonation(actor: Actor, home: str) -> list[Manifest]:
    """Return the Role and the binding that let controller_host, installed in namespace ``home``, be an account."""
    rule = {
        "apiGroups": [""],
        "resources": ["serviceaccounts"],
        "resourceNames": [actor.name],
        "verbs": ["impersonate"],
    }
    subject = {"kind": "ServiceAccount", "name": ACCOUNT, "namespace": home}
    return _bound(names.controller_role(actor.name), actor.namespace, [rule], subject)


def make_seeing(actor: Actor, watched: Iterable[Watched]) -> list[Manifest]:
    """Return the Role and the binding that let an account see resources of its namespace."""
    rules = [{"apiGroups": [one.group], "resources": [one.plural], "verbs": _SEEING} for one in watched]
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
