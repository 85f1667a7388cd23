"""Messages for permission errors of controller_host, with the manifest to apply.

Pure: errors in, sentences out. Called by ``app``, ``sources`` and all code that acts as an account. Source of the
names: ``deploy/rbac``. Invariant: the permissions of a controller's account are decided by its owner: no advice.
"""

from __future__ import annotations

from typing import Final

from trellis.kube.errors import KubeError
from trellis.kube.permissions import lacking, missing_right

FILE: Final = "deploy/rbac/controller-host.yaml"
_IMPERSONATE: Final = "impersonate"
_ACCOUNT: Final = "system:serviceaccount:"


def describe_error(error: KubeError) -> str:
    """Return the message for an error of the service's own requests; for an unknown error, the error's own text."""
    right = missing_right(error)
    return str(error) if right is None else lacking(right, f"run `kubectl apply -f {FILE}`")


def impersonation_message(error: KubeError, user: str) -> str:
    """Return the message for an error of a request as an account: a missing permission of it, or to impersonate it."""
    right = missing_right(error)
    if right is None:
        return error.message
    # Newer API servers name the impersonated resource in the verb: `impersonate-on:serviceaccount:list`.
    if not right.verb.startswith(_IMPERSONATE):
        return lacking(right, "grant it by a Role")
    namespace, _, name = user.removeprefix(_ACCOUNT).partition(":")
    return (
        "controller_host cannot impersonate the ServiceAccount: run "
        f"`trellis controllers roles -n {namespace} -a {name} | kubectl apply -f -`"
    )
