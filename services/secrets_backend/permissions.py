"""Remedies for missing permissions of secrets_backend.

Pure: errors in, messages out. Called by ``app``, ``lookup`` and ``trellis secrets check``. Source of the names:
``deploy/rbac``. Invariant: a remedy grants no more than the missing permission: for the credentials of a host group,
that to read this one Secret.
"""

from __future__ import annotations

import shlex
from dataclasses import dataclass
from typing import Final

from secrets_backend.domain.decide import Identity
from secrets_backend.domain.resources import account_of
from trellis.kube.errors import KubeError
from trellis.kube.permissions import Right, lacking, missing_right
from trellis.kube.resources import SECRETS

FILE: Final = "deploy/rbac/secrets-backend.yaml"
ROLE: Final = "trellis-secrets-backend-link"
_ACCOUNT: Final = "system:serviceaccount:"
_OF_KUBERNETES: Final = "system:"
"""Prefix of users of Kubernetes; no command of Trellis grants their impersonation."""


def roles_hint(identity: Identity, secret: str = "") -> str:
    """Return the command that permits the impersonation of the reader of a Secret, and its read of ``secret``."""
    account = account_of(identity.user)
    if account is None and identity.user.startswith(_OF_KUBERNETES):
        return f"a ClusterRole with the verb impersonate on users, resourceNames [{identity.user}]: Kubernetes' own"
    own = account is not None and account[0] == identity.namespace
    flag = f"-a {account[1]}" if account and own else f"--user {shlex.quote(identity.user)}"
    what = f" -s {secret}" if secret else ""
    return f"`trellis secrets roles -n {identity.namespace} {flag}{what} | kubectl apply -f -`"


@dataclass(frozen=True, slots=True)
class Advice:
    """Remedies for an installation in namespace ``home``."""

    home: str

    def describe_error(self, error: KubeError) -> str:
        """Return the meaning and the remedy of an error; the text of the error itself if there is none."""
        right = missing_right(error)
        return str(error) if right is None else lacking(right, self.remedy(right))

    def remedy(self, right: Right) -> str:
        """Return the command that grants a permission."""
        of_a_group = right.resource == SECRETS.plural and right.namespace not in {"", self.home}
        if not of_a_group or not right.name or not right.user.startswith(_ACCOUNT):
            return f"give `kubectl apply -f {FILE}`"
        on = f"kubectl -n {right.namespace} create"
        role, account = f"{ROLE}-{right.name}", right.user.removeprefix(_ACCOUNT)
        return (
            f"a host group there has its credentials in Secret {right.name}: give "
            f"`{on} role {role} --verb=get --resource=secrets --resource-name={right.name}` and "
            f"`{on} rolebinding {role} --role={role} --serviceaccount={account}`"
        )
