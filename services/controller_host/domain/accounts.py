"""Identity of controllers in Kubernetes.

Pure. In: a controller. Out: its account. Called by ``hosting``; ``calling`` sends requests as this account.
"""

from __future__ import annotations

from dataclasses import dataclass

from controller_host.domain.views import ControllerView
from trellis import names


@dataclass(frozen=True, slots=True)
class Account:
    """Identity of a controller: ``user`` is the user name of its ServiceAccount, ``manager`` its field manager."""

    controller: str
    user: str
    manager: str


def account_of(view: ControllerView) -> Account:
    """Return the account of a controller."""
    user = f"system:serviceaccount:{view.namespace}:{view.account}"
    return Account(view.key, user, names.controller_field_manager(view.namespace, view.name))
