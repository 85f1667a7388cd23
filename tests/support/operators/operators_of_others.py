"""The kinds of operators that examples are for, as the modules of their releases define them, without the operators.

In: a module of ``versions.toml``, which is downloaded once and compared with its hash. Out: its definitions, served by
a real API server for the time of a block. Called by the tests of examples and of the chart. Invariant: nothing of it is
in the repository, and when a block is over the cluster does not know these kinds.
"""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Final

from support.examples.applied_examples import Kubectl
from trellis_dev.localcluster import gobuild
from trellis_dev.localcluster.progress import Quiet

_BASES: Final = "config/crd/bases"
FILES: Final = {
    "argocd": {"argo-cd": "manifests/crds/application-crd.yaml"},
    "flux": {
        "kustomize-controller": f"{_BASES}/kustomize.toolkit.fluxcd.io_kustomizations.yaml",
        "source-controller": f"{_BASES}/source.toolkit.fluxcd.io_gitrepositories.yaml",
    },
    "keda": {"keda": f"{_BASES}/keda.sh_scaledobjects.yaml"},
    "external-secret": {"external-secrets": "config/crds/bases/external-secrets.io_externalsecrets.yaml"},
}
"""By example: which file of which module defines what it has."""
CERT_MANAGER: Final = {"cert-manager-kinds": "deploy/crds/cert-manager.io_certificates.yaml"}
"""What defines the one kind of cert-manager that the chart has."""


@contextlib.contextmanager
def defined(kubectl: Kubectl, example: str) -> Iterator[None]:
    """Have the kinds of an example's operator served for the time of a block."""
    with served(kubectl, FILES[example]):
        yield


@contextlib.contextmanager
def served(kubectl: Kubectl, definitions: Mapping[str, str]) -> Iterator[None]:
    """Have the kinds served that files define, by module, for the time of a block."""
    files = [
        str(Path(gobuild.module_folder(module, Quiet(), threading.Event())) / file)
        for module, file in definitions.items()
    ]
    with contextlib.ExitStack() as stack:
        for file in files:
            # On the server: a definition of 300 kB does not fit into kubectl's annotation.
            kubectl("apply", "--server-side", "-f", file)
            stack.callback(kubectl, "delete", "-f", file, "--timeout=50s")
            # kubectl's wait fails on a definition that has no conditions at all yet.
            kubectl("wait", "--for=jsonpath={.status.conditions}", "-f", file, "--timeout=50s")
            kubectl("wait", "--for=condition=Established", "-f", file, "--timeout=50s")
        yield
