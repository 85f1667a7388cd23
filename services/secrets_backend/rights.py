"""What is to be applied where secrets_backend may not do what it has to.

Pure: errors in, sentences out. Called by ``app``. Source of the names: ``deploy/rbac``. Invariant: no more is advised
than what is lacking: for the credentials of a group of hosts, the right to read that one Secret.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from trellis.kube.errors import KubeError
from trellis.kube.resources import SECRETS
from trellis.kube.rights import Right, lacking, missing_right

FILE: Final = "deploy/rbac/secrets-backend.yaml"
ROLE: Final = "trellis-secrets-backend-link"
_ACCOUNT: Final = "system:serviceaccount:"


@dataclass(frozen=True, slots=True)
class Advice:
    """Advice for an installation in namespace ``home``."""

    home: str

    def words(self, error: KubeError) -> str:
        """Say what an error means; an error that nothing here is known about says it itself."""
        right = missing_right(error)
        return str(error) if right is None else lacking(right, self.remedy(right))

    def remedy(self, right: Right) -> str:
        """Return what gives a right."""
        of_a_group = right.resource == SECRETS.plural and right.namespace not in {"", self.home}
        if not of_a_group or not right.name or not right.user.startswith(_ACCOUNT):
            return f"give `kubectl apply -f {FILE}`"
        on = f"kubectl -n {right.namespace} create"
        role, account = f"{ROLE}-{right.name}", right.user.removeprefix(_ACCOUNT)
        return (
            f"a group of hosts there has its credentials in Secret {right.name}: give "
            f"`{on} role {role} --verb=get --resource=secrets --resource-name={right.name}` and "
            f"`{on} rolebinding {role} --role={role} --serviceaccount={account}`"
        )
