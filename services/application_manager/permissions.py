"""Remedies for missing permissions of application_manager, and for a missing CRD.

Pure: errors in, messages out. Called by ``app``. Source of the names: ``deploy/rbac`` and ``deploy/crds``.
"""

from __future__ import annotations

from typing import Final

from trellis.kube.errors import KubeError, NotFound
from trellis.kube.permissions import Right, lacking, missing_right
from trellis.kube.resources import APPLICATIONS

MANIFEST: Final = "deploy/rbac/application-manager.yaml"


def describe_error(error: KubeError) -> str:
    """Return the meaning and the remedy of an error; the text of the error itself if there is none."""
    right = missing_right(error)
    if right is not None:
        return lacking(right, remedy(right))
    if isinstance(error, NotFound) and error.call.plural == APPLICATIONS.plural and not error.call.name:
        return (
            f"cannot {error.call}: the CRD {APPLICATIONS.kind} of {APPLICATIONS.group} is not installed, or another "
            "API server serves its group: `trellis crds check` shows the cause, `trellis crds apply` installs the CRD"
        )
    return str(error)


def remedy(right: Right) -> str:
    """Return the command that grants a permission."""
    del right  # one file grants all of them
    return f"give `kubectl apply -f {MANIFEST}`"
