"""What is to be applied where host_manager may not do what it has to, or its kind is not defined.

Pure: errors in, sentences out. Called by ``app``. Source of the names: ``deploy/rbac`` and ``deploy/crds``.
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
"""Resources that are needed in the namespace of the installation only."""


@dataclass(frozen=True, slots=True)
class Advice:
    """Advice for an installation with these settings."""

    settings: Settings

    def describe_error(self, error: KubeError) -> str:
        """Say what an error means; an error that nothing here is known about says it itself."""
        right = missing_right(error)
        if right is not None:
            return lacking(right, self.remedy(right))
        if isinstance(error, NotFound) and _is_about_the_kind(error.call):
            return (
                f"cannot {error.call}: the kind {HOST_CONFIGS.kind} is not defined here: somebody who may define kinds "
                f"gives `kubectl apply -f {DEFINITION}`"
            )
        return str(error)

    def remedy(self, right: Right) -> str:
        """Return what gives a right."""
        if not self.settings.watch_namespaces:
            return f"give `kubectl apply -f {CLUSTER}`"
        if right.namespace == self.settings.namespace and right.resource.startswith(_OF_ITS_OWN):
            return f"give `kubectl apply -f {CONFINED}`"
        if right.namespace:
            return f"give `kubectl -n {right.namespace} apply -f {WATCHED}`"
        return "name the namespaces in TRELLIS_WATCH_NAMESPACES"


def _is_about_the_kind(call: Call) -> bool:
    return call.plural == HOST_CONFIGS.plural and not call.name
