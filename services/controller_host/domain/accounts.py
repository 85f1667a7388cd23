"""Whom controllers are to Kubernetes.

Pure. In: a controller. Out: its account. Called by ``hosting``; ``calling`` asks as it.
"""

from __future__ import annotations

from dataclasses import dataclass

from controller_host.domain.views import ControllerView
from trellis import names


@dataclass(frozen=True, slots=True)
class Account:
    """Whom a controller is to Kubernetes. ``user``: of its ServiceAccount; ``manager``: of the fields it applies."""

    controller: str
    user: str
    manager: str


def account_of(view: ControllerView) -> Account:
    """Return whom a controller is to Kubernetes."""
    user = f"system:serviceaccount:{view.namespace}:{view.account}"
    return Account(view.key, user, names.controller_field_manager(view.namespace, view.name))
