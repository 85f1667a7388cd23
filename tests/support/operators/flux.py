"""Flux as processes: source-controller and kustomize-controller, which keep a cluster as it stands in git.

In: operators' world (:mod:`support.operators.operator_processes`). Out: both as their releases install them, in the
namespace that Flux uses. Called by tests of the example ``flux``.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable, Iterator
from typing import Final

import yaml

from support.operators.operator_processes import Operators, address
from trellis_dev.localcluster.ports import free_ports
from trellis_dev.localcluster.readiness import http_ok

NAMESPACE: Final = "flux-system"
CONTROLLERS: Final = ("source-controller", "kustomize-controller")
_ACCOUNT: Final = "default"


@contextlib.contextmanager
def flux(operators: Operators) -> Iterator[None]:
    """Have both for the time of a block."""
    operators.namespace(NAMESPACE)
    for controller in CONTROLLERS:
        _install(operators, controller)
    kubeconfig = operators.kubeconfig(NAMESPACE, _ACCOUNT)
    artifacts, *ports = free_ports(5)
    environment = {"RUNTIME_NAMESPACE": NAMESPACE, "KUBECONFIG": str(kubeconfig)}
    storage = operators.directory / "artifacts"
    storage.mkdir()
    own = {
        "source-controller": [
            f"--storage-path={storage}",
            f"--storage-addr={address(artifacts)}",
            f"--storage-adv-addr={address(artifacts)}",
        ],
        "kustomize-controller": [],
    }
    for index, controller in enumerate(CONTROLLERS):
        metrics, health = ports[2 * index : 2 * index + 2]
        flags = [f"--metrics-addr={address(metrics)}", f"--health-addr={address(health)}", "--watch-all-namespaces"]
        ready = f"http://{address(health)}/readyz"
        operators.start(controller, (controller, *flags, *own[controller]), _answers(ready), environment)
    yield


def _install(operators: Operators, controller: str) -> None:
    """Apply a controller's definitions and permissions, its account being that of Flux's namespace."""
    config = operators.module(controller) / "config"
    folder = operators.directory / f"{controller}-install"
    folder.mkdir()
    parts = [os.path.relpath(config / part, folder.resolve()) for part in ("crd", "rbac")]
    (folder / "kustomization.yaml").write_text(yaml.safe_dump({"namespace": NAMESPACE, "resources": parts}))
    operators.define(folder)


def _answers(url: str) -> Callable[[], bool]:
    return lambda: http_ok(url)
