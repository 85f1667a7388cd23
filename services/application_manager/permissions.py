"""What is to be applied where application_manager may not do what it has to, or its kind is not defined.

Pure: errors in, sentences out. Called by ``app``. Source of the names: ``deploy/rbac`` and ``deploy/crds``.
"""

from __future__ import annotations

from typing import Final

from trellis.kube.errors import KubeError, NotFound
from trellis.kube.permissions import Right, lacking, missing_right
from trellis.kube.resources import APPLICATIONS

RIGHTS: Final = "deploy/rbac/application-manager.yaml"


def describe_error(error: KubeError) -> str:
    """Say what an error means; an error that nothing here is known about says it itself."""
    right = missing_right(error)
    if right is not None:
        return lacking(right, remedy(right))
    if isinstance(error, NotFound) and error.call.plural == APPLICATIONS.plural and not error.call.name:
        return (
            f"cannot {error.call}: the kind {APPLICATIONS.kind} of {APPLICATIONS.group} is not defined here, or "
            "another API server answers for it: `trellis crds check` tells which, `trellis crds apply` defines it"
        )
    return str(error)


def remedy(right: Right) -> str:
    """Return what gives a right."""
    del right  # one file gives all of them
    return f"give `kubectl apply -f {RIGHTS}`"
