"""Argo CD as processes: its application controller and repository server, and a redis; no user opens it.

In: operators' world (:mod:`support.operators.operator_processes`). Out: what its release installs as "core", in its
namespace, with the health check of ``deploy/argocd``. Called by tests of the example ``argocd``.
"""

from __future__ import annotations

import contextlib
import http
import os
import threading
from collections.abc import Iterator
from typing import Any, Final

import yaml

from support.examples.folders import EXAMPLES
from support.operators.operator_processes import Operators, address
from trellis.kube.resources import Resource
from trellis_dev.localcluster import debian, tools
from trellis_dev.localcluster.building import How
from trellis_dev.localcluster.ports import LOOPBACK, accepts, free_ports
from trellis_dev.localcluster.progress import Lines
from trellis_dev.localcluster.readiness import http_ok

NAMESPACE: Final = "argocd"
APPLICATIONS: Final = Resource("argoproj.io", "v1alpha1", "applications", "Application", namespaced=True)
_PROJECTS: Final = Resource("argoproj.io", "v1alpha1", "appprojects", "AppProject", namespaced=True)
_ACCOUNT: Final = "argocd-application-controller"
_HEALTH: Final = EXAMPLES.parent / "argocd" / "application-health.yaml"
_PARTS: Final = ("crds", "cluster-rbac/application-controller", "base/application-controller-roles", "base/config")
_DEFAULT: Final = {
    "clusterResourceWhitelist": [{"group": "*", "kind": "*"}],
    "destinations": [{"namespace": "*", "server": "*"}],
    "sourceRepos": ["*"],
}
"""The project that Argo CD's API server makes, which does not run here."""
_REDIS: Final = ("redis-server", "redis-tools", "libjemalloc2", "liblzf1")


@contextlib.contextmanager
def argocd(operators: Operators) -> Iterator[None]:
    """Have it for the time of a block."""
    operators.namespace(NAMESPACE)
    _install(operators)
    redis = _redis(operators)
    served = _repository_server(operators, redis)
    (metrics,) = free_ports(1)
    kubeconfig = operators.kubeconfig(NAMESPACE, _ACCOUNT)
    environment = {
        "ARGOCD_BINARY_NAME": "argocd-application-controller",
        "ARGOCD_FAKE_IN_CLUSTER": "true",  # the cluster it is in is that of its kubeconfig
        "KUBECONFIG": str(kubeconfig),
    }
    flags = [
        f"--kubeconfig={kubeconfig}",
        f"--namespace={NAMESPACE}",
        f"--redis={redis}",
        f"--repo-server={served}",
        f"--metrics-port={metrics}",
    ]
    health = f"http://{address(metrics)}/healthz"
    operators.start(_ACCOUNT, ("argocd", *flags), lambda: http_ok(health), environment)
    yield


def _install(operators: Operators) -> None:
    """Apply definitions, permissions and settings, then the health check as its file says."""
    manifests = operators.module("argo-cd") / "manifests"
    folder = operators.directory / "argocd-install"
    folder.mkdir()
    parts = [os.path.relpath(manifests / part, folder.resolve()) for part in _PARTS]
    (folder / "kustomization.yaml").write_text(yaml.safe_dump({"namespace": NAMESPACE, "resources": parts}))
    operators.define(folder)
    operators.kubectl("-n", NAMESPACE, "patch", "configmap", "argocd-cm", "--patch-file", str(_HEALTH))
    project: dict[str, Any] = {"apiVersion": _PROJECTS.api_version, "kind": _PROJECTS.kind, "spec": _DEFAULT}
    project["metadata"] = {"name": "default", "namespace": NAMESPACE}
    status, answer = operators.api.call("POST", _PROJECTS.path(NAMESPACE), project)
    assert status == http.HTTPStatus.CREATED, answer


def _redis(operators: Operators) -> str:
    """Start a redis, of Debian's packages, and return its address."""
    root = debian.unpacked("redis", _REDIS, How(Lines(), threading.Event()))
    libraries = next(root.glob("usr/lib/*/libjemalloc.so.2")).parent
    (port,) = free_ports(1)
    flags = ("--port", str(port), "--bind", LOOPBACK, "--save", "", "--appendonly", "no")
    program = root / "usr/bin/redis-server"
    operators.start("redis", (program, *flags), lambda: accepts(port), {"LD_LIBRARY_PATH": str(libraries)})
    return address(port)


def _repository_server(operators: Operators, redis: str) -> str:
    """Start what fetches and renders, and return its address. It has no account: it talks to no API server."""
    port, metrics = free_ports(2)
    work = operators.directory / "repository-server"
    programs = work / "bin"
    for folder in (programs, work / "tmp", work / "plugins"):
        folder.mkdir(parents=True)
    (programs / "kustomize").symlink_to(tools.ensure("kustomize", Lines()))
    environment = {
        "ARGOCD_BINARY_NAME": "argocd-repo-server",
        "ARGOCD_GPG_ENABLED": "false",
        "ARGOCD_PLUGINSOCKFILEPATH": str(work / "plugins"),
        "ARGOCD_ASK_PASS_SOCK": str(work / "ask-pass.sock"),
        "ARGOCD_TLS_DATA_PATH": str(work / "tls"),
        "ARGOCD_SSH_DATA_PATH": str(work / "ssh"),
        "TMPDIR": str(work / "tmp"),
        "PATH": f"{programs}{os.pathsep}{os.environ['PATH']}",
    }
    flags = [
        f"--address={LOOPBACK}",
        f"--port={port}",
        f"--metrics-address={LOOPBACK}",
        f"--metrics-port={metrics}",
        f"--redis={redis}",
    ]
    health = f"http://{address(metrics)}/healthz?full=true"
    operators.start("argocd-repo-server", ("argocd", *flags), lambda: http_ok(health), environment)
    return address(port)
