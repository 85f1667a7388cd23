"""What is to be applied where secrets_backend may not do what it has to.

Pure: errors in, sentences out. Called by ``app``. Source of the names: ``deploy/rbac``.
"""

from __future__ import annotations

from typing import Final

from trellis.kube.errors import KubeError
from trellis.kube.rights import Right, lacking, missing_right

FILE: Final = "deploy/rbac/secrets-backend.yaml"


def words(error: KubeError) -> str:
    """Say what an error means; an error that nothing here is known about says it itself."""
    right = missing_right(error)
    return str(error) if right is None else lacking(right, remedy(right))


def remedy(_: Right) -> str:
    """Return what gives a right."""
    return f"give `kubectl apply -f {FILE}`"
