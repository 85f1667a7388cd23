"""What is to be applied where controller_host may not do what it has to.

Pure: errors in, sentences out. Called by ``app``, ``sources`` and whoever acts as an account. Source of the names:
``deploy/rbac``. Invariant: what a controller's account itself may not do is its owner's affair, and not advised on.
"""

from __future__ import annotations

from typing import Final

from trellis.kube.errors import KubeError
from trellis.kube.permissions import lacking, missing_right

FILE: Final = "deploy/rbac/controller-host.yaml"
_IMPERSONATE: Final = "impersonate"
_ACCOUNT: Final = "system:serviceaccount:"


def describe_error(error: KubeError) -> str:
    """Say what an error of the service's own calls means; one that nothing here is known about says it itself."""
    right = missing_right(error)
    return str(error) if right is None else lacking(right, f"give `kubectl apply -f {FILE}`")


def acting_words(error: KubeError, user: str) -> str:
    """Say what an error of a call as a controller's account means: that it may not, or that we may not be it."""
    right = missing_right(error)
    if right is None:
        return error.message
    # Newer API servers say `impersonate-on:serviceaccount:list` of the resource that it was for.
    if not right.verb.startswith(_IMPERSONATE):
        return lacking(right, "its Roles decide")
    namespace, _, name = user.removeprefix(_ACCOUNT).partition(":")
    return (
        f"controller_host may not be ServiceAccount {namespace}/{name}: give "
        f"`trellis controllers roles -n {namespace} -a {name} | kubectl apply -f -`"
    )
