"""Applies the CustomResourceDefinitions of Trellis to a local cluster.

In: the addresses of a local cluster. Out: the CRDs of this version, served. Called by `trellis dev up` and the demo.
Invariant: only CRDs are written; custom resources are not changed.
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
    """Create or update the CRDs of Trellis and of ``others``, and wait until each is served.

    Raises:
        LocalClusterError: the API server refuses one, or does not serve it within 30 s.
    """
    api = Api.of_kubeconfig(info.kubeconfig)
    try:
        with stepping(progress, "apply the CRDs"):
            for kind in (*KINDS, *others):
                _write(api, make_definition(kind))
            for kind in (*KINDS, *others):
                _await(api, kind)
    except OSError as error:
        message = f"the CRDs could not be applied to cluster '{info.name}': {error}"
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
        message = f"the API server rejects the CRD {name} ({status}): {answer.get('message', answer)}"
        raise LocalClusterError(message)


def _await(api: Api, kind: Kind) -> None:
    """Wait until objects of a kind can be listed: the API server accepts a CRD shortly before it serves the kind."""
    deadline = time.monotonic() + _SECONDS
    while not api.ok(f"/apis/{kind.group}/{kind.version}/{kind.plural}"):
        if time.monotonic() > deadline:
            message = f"the kind {kind.name} is not served {_SECONDS:.0f} s after its CRD: see the kube-apiserver log"
            raise LocalClusterError(message)
        time.sleep(_POLL_SECONDS)
