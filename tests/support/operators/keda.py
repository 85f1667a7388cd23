"""KEDA and metrics-server as processes: where an autoscaler of Kubernetes has its figures from.

In: operators' world (:mod:`support.operators.operator_processes`). Out: both as their releases install them, but for
addresses: the API server is led to ports of this machine. Called by tests of the examples ``keda`` and ``hpa``.
Invariant: no APIService outlives its server: with one that does not answer, namespaces do not go.
"""

from __future__ import annotations

import base64
import contextlib
import http
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from support.operators.operator_processes import Operators, address
from trellis.kube.resources import API_SERVICES, SECRETS
from trellis_dev.localcluster import stages
from trellis_dev.localcluster.certs import write_private
from trellis_dev.localcluster.nodes import node_manifest
from trellis_dev.localcluster.ports import LOOPBACK, accepts, free_ports
from trellis_dev.localcluster.readiness import http_ok

_KEDA: Final = "keda"
_KEDA_ACCOUNT: Final = "keda-operator"
_KEDA_SECRET: Final = "kedaorg-certs"
_KUBE_SYSTEM: Final = "kube-system"
_READ_FROM: Final = "metrics.k8s.io/resource-metrics-path"
METERED: Final = "metered"
"""Label of the nodes whose kubelet serves figures."""
USAGE: Final = "kwok.x-k8s.io/usage-cpu"
"""Annotation of a pod: what each of its containers takes of a processor."""


@contextlib.contextmanager
def keda(operators: Operators) -> Iterator[None]:
    """Have KEDA's operator and its metrics server for the time of a block."""
    config = operators.module("keda") / "config"
    metrics = config / "metrics-server"
    operators.namespace(_KEDA)
    operators.define(config / "crd")
    operators.apply(config / "service_account", config / "rbac")
    operators.apply(metrics / "role.yaml", metrics / "role_binding.yaml")
    metrics_port, health, grpc, served, adapter_metrics = free_ports(5)
    with _aggregated(operators, metrics / "api_service.yaml", (_KEDA, "keda-metrics-apiserver"), served):
        certificates = operators.directory / "keda-certs"
        certificates.mkdir()
        kubeconfig = operators.kubeconfig(_KEDA, _KEDA_ACCOUNT)
        shared = dict.fromkeys(("POD_NAMESPACE", "KEDA_CLUSTER_OBJECT_NAMESPACE"), _KEDA)
        shared |= {"WATCH_NAMESPACE": "", "KUBECONFIG": str(kubeconfig)}
        flags = [
            f"--metrics-bind-address={address(metrics_port)}",
            f"--health-probe-bind-address={address(health)}",
            f"--metrics-service-bind-address={address(grpc)}",
            f"--cert-dir={certificates}",
            "--enable-cert-rotation=true",
            "--enable-webhook-patching=false",  # its webhooks do not run
        ]

        # It makes its Secret and ends; a kubelet starts it again, with the Secret mounted.
        operators.run("keda", ("keda", *flags), shared)
        _mount(operators, certificates)
        operators.start(
            "keda", ("keda", *flags), lambda: http_ok(f"http://{address(health)}/readyz") and accepts(grpc), shared
        )
        flags = [
            f"--secure-port={served}",
            f"--bind-address={LOOPBACK}",
            f"--port={adapter_metrics}",
            f"--metrics-service-address={address(grpc)}",
            "--metrics-service-grpc-authority=keda-operator.keda.svc",
            f"--client-ca-file={certificates / 'ca.crt'}",
            f"--tls-cert-file={certificates / 'tls.crt'}",
            f"--tls-private-key-file={certificates / 'tls.key'}",
            f"--cert-dir={certificates}",
            *(f"--{item}kubeconfig={kubeconfig}" for item in ("", "lister-", "authentication-", "authorization-")),
        ]
        operators.start(
            "keda-adapter",
            ("keda-adapter", *flags),
            lambda: _available(operators, "v1beta1.external.metrics.k8s.io"),
            shared,
        )
        yield


@contextlib.contextmanager
def metrics_server(operators: Operators) -> Iterator[None]:
    """Have metrics-server for the time of a block, and a kubelet of kwok that reports configured usage of pods."""
    base = operators.module("metrics-server") / "manifests" / "base"
    operators.apply(base / "rbac.yaml")
    served, kubelet = free_ports(2)
    with (
        _aggregated(operators, base / "apiservice.yaml", (_KUBE_SYSTEM, "metrics-server"), served),
        _metered_nodes(operators, kubelet),
    ):
        kubeconfig = operators.kubeconfig(_KUBE_SYSTEM, "metrics-server")
        flags = [
            f"--secure-port={served}",
            f"--bind-address={LOOPBACK}",
            f"--cert-dir={operators.directory / 'metrics-server-certs'}",
            "--kubelet-preferred-address-types=InternalIP",
            "--kubelet-use-node-status-port",
            "--kubelet-insecure-tls",
            "--metric-resolution=15s",
            *(f"--{item}kubeconfig={kubeconfig}" for item in ("", "authentication-", "authorization-")),
        ]
        operators.start(
            "metrics-server", ("metrics-server", *flags), lambda: _available(operators, "v1beta1.metrics.k8s.io")
        )
        yield


@contextlib.contextmanager
def _aggregated(operators: Operators, file: Path, service: tuple[str, str], port: int) -> Iterator[None]:
    """Have an APIService lead to a port of this machine for the time of a block."""
    operators.outside(*service, port)
    operators.apply(file)
    name = str(operators.kubectl("get", "-f", str(file), "-o", "name")).strip().rpartition("/")[2]
    status, answer = operators.api.call("PATCH", API_SERVICES.path(None, name), {"spec": {"service": {"port": port}}})
    assert status == http.HTTPStatus.OK, answer
    try:
        yield
    finally:
        operators.api.call("DELETE", API_SERVICES.path(None, name))


@contextlib.contextmanager
def _metered_nodes(operators: Operators, port: int) -> Iterator[None]:
    """Have two nodes of a kwok of their own, whose kubelet serves metrics; pods go to no other nodes."""
    module = operators.module("kwok") / "kustomize" / "metrics"
    files = [module / "resource/metrics-resource.yaml", module / "usage/usage-from-annotation.yaml"]
    config = operators.directory / "kwok.yaml"
    config.write_text(stages.merge(stages.folder(), [file.read_text() for file in files]))
    flags = [
        f"--kubeconfig={operators.cluster.kubeconfig}",
        f"--config={config}",
        f"--manage-nodes-with-annotation-selector=kwok.x-k8s.io/node={METERED}",
        f"--node-ip={LOOPBACK}",
        f"--node-port={port}",
        f"--server-address={address(port)}",
        "--node-lease-duration-seconds=40",
    ]
    operators.start("kwok", ("kwok", *flags), lambda: http_ok(f"http://{address(port)}/healthz"))
    names = [f"metered-{number}" for number in range(2)]
    for name in names:
        node = node_manifest(name)
        node["metadata"]["labels"] |= {METERED: "true"}
        node["metadata"]["annotations"] |= {
            "kwok.x-k8s.io/node": METERED,
            _READ_FROM: f"/metrics/nodes/{name}/metrics/resource",
        }
        status, answer = operators.api.call("POST", "/api/v1/nodes", node)
        assert status == http.HTTPStatus.CREATED, answer
    try:
        yield
    finally:
        for name in names:
            operators.api.call("DELETE", f"/api/v1/nodes/{name}")


def _mount(operators: Operators, folder: Path) -> None:
    """Write what KEDA's Secret has as files."""
    status, found = operators.api.call("GET", SECRETS.path(_KEDA, _KEDA_SECRET))
    assert status == http.HTTPStatus.OK, found
    for name, value in found["data"].items():
        write_private(folder / name, base64.b64decode(value))


def _available(operators: Operators, name: str) -> bool:
    """Say whether the API server has found the server behind an APIService."""
    _, found = operators.api.call("GET", API_SERVICES.path(None, name))
    conditions = {
        condition["type"]: condition["status"] for condition in (found.get("status") or {}).get("conditions") or ()
    }
    return conditions.get("Available") == "True"


def metered(operators: Operators, namespace: str) -> bool:
    """Say whether there are figures of every pod of a namespace that runs."""
    path = f"/apis/metrics.k8s.io/v1beta1/namespaces/{namespace}/pods"
    return bool(operators.api.call("GET", path)[1].get("items"))
