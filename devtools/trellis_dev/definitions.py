"""Makes our kinds known to a cluster of this machine, so that the first `kubectl apply` of one works.

In: how to reach a local cluster. Out: CustomResourceDefinitions as this version has them, served. Called by
`trellis dev up` and the demo. Invariant: only definitions are written; objects of our kinds stay as they are.
"""

from __future__ import annotations

import http
import time
from typing import Any, Final

from trellis.crds.kinds import KINDS, Kind, make_definition
from trellis_dev.localcluster import ClusterInfo, LocalClusterError
from trellis_dev.localcluster.api import Api
from trellis_dev.localcluster.progress import Progress, stepping

_DEFINITIONS: Final = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"
_SECONDS: Final = 30.0
_POLL_SECONDS: Final = 0.05


def define_kinds(info: ClusterInfo, progress: Progress, *others: Kind) -> None:
    """Create or update the definition of every kind of ours, and of these others, and wait until each is served.

    Raises:
        LocalClusterError: the API server refuses one, or does not serve it within 30 s.
    """
    api = Api.of_kubeconfig(info.kubeconfig)
    try:
        with stepping(progress, "define the kinds"):
            for kind in (*KINDS, *others):
                _write(api, make_definition(kind))
            for kind in (*KINDS, *others):
                _await(api, kind)
    except OSError as error:
        message = f"the kinds of Trellis could not be defined in cluster '{info.name}': {error}"
        raise LocalClusterError(message) from error
    finally:
        api.close()


def _write(api: Api, manifest: dict[str, Any]) -> None:
    name = manifest["metadata"]["name"]
    status, answer = api.call("POST", _DEFINITIONS, manifest)
    if status == http.HTTPStatus.CONFLICT:
        change = {"metadata": {"labels": manifest["metadata"]["labels"]}, "spec": manifest["spec"]}
        status, answer = api.call("PATCH", f"{_DEFINITIONS}/{name}", change)
    if status not in {http.HTTPStatus.OK, http.HTTPStatus.CREATED}:
        message = f"the API server refuses the definition {name} ({status}): {answer.get('message', answer)}"
        raise LocalClusterError(message)


def _await(api: Api, kind: Kind) -> None:
    """Wait until objects of a kind can be listed: a definition is accepted a moment before."""
    deadline = time.monotonic() + _SECONDS
    while not api.ok(f"/apis/{kind.group}/{kind.version}/{kind.plural}"):
        if time.monotonic() > deadline:
            message = f"the kind {kind.name} is defined but not served after {_SECONDS:.0f} s: see kube-apiserver's log"
            raise LocalClusterError(message)
        time.sleep(_POLL_SECONDS)
