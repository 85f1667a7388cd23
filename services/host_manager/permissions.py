"""Remedies for missing permissions of host_manager, and for a missing CRD.

Pure: errors in, messages out. Called by ``app``. Source of the names: ``deploy/rbac`` and ``deploy/crds``.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from host_manager.settings import Settings
from trellis.kube.errors import Call, KubeError, NotFound
from trellis.kube.permissions import Right, lacking, missing_right
from trellis.kube.resources import HOST_CONFIGS

CLUSTER: Final = "deploy/rbac/host-manager.yaml"
CONFINED: Final = "deploy/rbac/host-manager-confined.yaml"
WATCHED: Final = "deploy/rbac/host-manager-watched.yaml"
DEFINITION: Final = f"deploy/crds/{HOST_CONFIGS.plural}.{HOST_CONFIGS.group}.yaml"
_OF_ITS_OWN: Final = ("leases.", "namespaces")
"""Resources that are required only in the namespace of the installation."""


@dataclass(frozen=True, slots=True)
class Advice:
    """Remedies for an installation with these settings."""

    settings: Settings

    def describe_error(self, error: KubeError) -> str:
        """Return the meaning and the remedy of an error; the text of the error itself if there is none."""
        right = missing_right(error)
        if right is not None:
            return lacking(right, self.remedy(right))
        if isinstance(error, NotFound) and _is_about_the_kind(error.call):
            return (
                f"cannot {error.call}: the CRD {HOST_CONFIGS.kind} is not installed: a user with permission for CRDs "
                f"installs it with `kubectl apply -f {DEFINITION}`"
            )
        return str(error)

    def remedy(self, right: Right) -> str:
        """Return the command or the setting that resolves a missing permission."""
        if not self.settings.watch_namespaces:
            return f"give `kubectl apply -f {CLUSTER}`"
        if right.namespace == self.settings.namespace and right.resource.startswith(_OF_ITS_OWN):
            return f"give `kubectl apply -f {CONFINED}`"
        if right.namespace:
            return f"give `kubectl -n {right.namespace} apply -f {WATCHED}`"
        return "name the namespaces in TRELLIS_WATCH_NAMESPACES"


def _is_about_the_kind(call: Call) -> bool:
    return call.plural == HOST_CONFIGS.plural and not call.name
