"""The command line of every component of a local cluster, and the ports it needs.

In: the files of the cluster, and its ports. Out: argument lists. Pure. Called by `up` and by fault tests.
Invariant: everything listens on the loopback address only (with real nodes, the API server listens on their network);
no component reads anything outside the directory of the cluster.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Final

from trellis_dev.localcluster.certs import KUBELET_CLIENT, SERVICE_RANGE, SERVICE_RANGE_IPV6
from trellis_dev.localcluster.paths import Layout
from trellis_dev.localcluster.ports import LOOPBACK

Ports = Mapping[str, int]


PORTS: Final[Mapping[str, tuple[str, ...]]] = {
    "nats-server": ("nats",),
    "etcd": ("etcd", "etcd-peer"),
    "kube-apiserver": ("kube-apiserver",),
    "kube-controller-manager": (),
    "kube-scheduler": (),
    "kwok": (),
    "jaeger": (
        "jaeger-query",
        "jaeger-query-grpc",
        "jaeger-otlp-http",
        "jaeger-otlp-grpc",
        "jaeger-collector-http",
        "jaeger-collector-grpc",
        "jaeger-sampling",
        "jaeger-admin",
        "jaeger-compact",
        "jaeger-binary",
        "jaeger-zipkin-compact",
    ),
}
"""Component → names of its ports, in start order."""

LEAFNODES: Final = "nats-leafnodes"
"""Name of the leaf node port; a cluster has it only if its NATS server is joined to another one."""

AUDIT_POLICY: Final = """\
apiVersion: audit.k8s.io/v1
kind: Policy
omitStages: [RequestReceived]
rules:
- level: None
  namespaces: [kube-node-lease]
- level: Metadata
  verbs: [create, update, patch, delete, deletecollection]
- level: Metadata
  userGroups: ["system:serviceaccounts:trellis-system"]
- level: None
"""
"""Logs all writes, and every request of the service accounts of an installation of the services.

Leases of nodes are excluded: with a thousand nodes they are a third of all writes, and each entry is a disk write.
"""


def nats_server(program: Path, port: int, store: Path | None, config: Path | None = None) -> list[str]:
    """Return the command line of a nats-server; a store enables JetStream."""
    argv = [str(program), "--addr", LOOPBACK, "--port", str(port)]
    argv += ["--jetstream", "--store_dir", str(store)] if store is not None else []
    return argv if config is None else [*argv, "--config", str(config)]


_QUICK_JOBS: Final = ("--kube-api-qps=300", "--kube-api-burst=600", "--concurrent-job-syncs=30")
"""With its default client limits, the controller manager finishes 1,000 Jobs in four minutes."""
_LEASE_SECONDS: Final = 40
_LONG_LEASE_SECONDS: Final = 1200
"""kwok renews a lease after a quarter of it: 17 renewals/s for 5,000 nodes instead of 500/s, which would saturate an
API server on two cores. The grace period of the controller manager has the same length."""


def command(  # noqa: PLR0913 (keywords, all but one with defaults)
    tool: str,
    layout: Layout,
    ports: Ports,
    *,
    audit: bool,
    quick_jobs: bool = True,
    long_leases: bool = False,
    address: str = LOOPBACK,
) -> list[str]:
    """Return the command line of one component; ``address``: listen address of the API server.

    Raises:
        KeyError: the tool is not a component, or ``ports`` lacks one of its ports.
    """
    program = layout.bin / tool
    if tool == "nats-server":
        return nats_server(
            program, ports["nats"], layout.data / "nats", layout.nats_config if LEAFNODES in ports else None
        )
    if tool == "kube-apiserver":
        return [str(program), *_apiserver(layout, ports, address, audit=audit)]
    if tool == "kube-controller-manager":
        given = [*(_QUICK_JOBS if quick_jobs else ()), *(_patient() if long_leases else ())]
        return [str(program), *_controller_manager(layout, ports), *given]
    if tool == "kwok":
        return [str(program), *_kwok(layout, _LONG_LEASE_SECONDS if long_leases else _LEASE_SECONDS)]
    builders: dict[str, Callable[[Layout, Ports], list[str]]] = {
        "etcd": _etcd,
        "kube-scheduler": _scheduler,
        "jaeger": _jaeger,
    }
    return [str(program), *builders[tool](layout, ports)]


def _etcd(layout: Layout, ports: Ports) -> list[str]:
    client, peer = (f"http://{LOOPBACK}:{ports[name]}" for name in PORTS["etcd"])
    return [
        "--name=default",
        f"--data-dir={layout.data / 'etcd'}",
        f"--listen-client-urls={client}",
        f"--advertise-client-urls={client}",
        f"--listen-peer-urls={peer}",
        f"--initial-advertise-peer-urls={peer}",
        f"--initial-cluster=default={peer}",
        "--log-level=warn",
        "--unsafe-no-fsync",  # a temporary cluster does not have to survive a machine crash
    ]


def _apiserver(layout: Layout, ports: Ports, address: str, *, audit: bool) -> list[str]:
    pki = layout.pki
    arguments = [
        f"--etcd-servers=http://{LOOPBACK}:{ports['etcd']}",
        f"--bind-address={address}",
        f"--advertise-address={address}",
        f"--secure-port={ports['kube-apiserver']}",
        f"--cert-dir={pki}",
        f"--tls-cert-file={pki / 'kube-apiserver.crt'}",
        f"--tls-private-key-file={pki / 'kube-apiserver.key'}",
        f"--client-ca-file={pki / 'ca.crt'}",
        f"--token-auth-file={pki / 'tokens.csv'}",
        "--authorization-mode=Node,RBAC",
        "--allow-privileged=true",
        f"--service-cluster-ip-range={_service_ranges(address)}",
        "--service-account-issuer=https://kubernetes.default.svc.cluster.local",
        f"--service-account-key-file={pki / 'service-account.pub'}",
        f"--service-account-signing-key-file={pki / 'service-account.key'}",
        f"--requestheader-client-ca-file={pki / 'front-proxy-ca.crt'}",
        "--requestheader-allowed-names=front-proxy-client",
        "--requestheader-username-headers=X-Remote-User",
        "--requestheader-group-headers=X-Remote-Group",
        "--requestheader-extra-headers-prefix=X-Remote-Extra-",
        f"--proxy-client-cert-file={pki / 'front-proxy-client.crt'}",
        f"--proxy-client-key-file={pki / 'front-proxy-client.key'}",
    ]
    arguments += _reached_by_nodes(address, pki)
    if audit:
        arguments += [
            f"--audit-policy-file={layout.root / 'audit-policy.yaml'}",
            f"--audit-log-path={layout.audit_log}",
            "--audit-log-mode=blocking",  # the entry is written before the response
            "--audit-log-maxsize=16384",  # MiB; read by offset, so no rotation at the default of 100
        ]
    return arguments


def _service_ranges(address: str) -> str:
    """Return the address ranges of Services: both families, but only IPv4 with real nodes."""
    return f"{SERVICE_RANGE},{SERVICE_RANGE_IPV6}" if address == LOOPBACK else SERVICE_RANGE


def _reached_by_nodes(address: str, pki: Path) -> list[str]:
    """Return the API server options for real nodes, if it listens on their network."""
    if address == LOOPBACK:
        # A loopback address is rejected as an endpoint, and no pod uses the Service.
        return ["--endpoint-reconciler-type=none"]
    return [
        f"--kubelet-client-certificate={pki / KUBELET_CLIENT}.crt",
        f"--kubelet-client-key={pki / KUBELET_CLIENT}.key",
        "--kubelet-preferred-address-types=InternalIP",
    ]


def _controller_manager(layout: Layout, ports: Ports) -> list[str]:
    del ports  # uses its kubeconfig
    pki = layout.pki
    return [
        f"--kubeconfig={layout.kubeconfig('kube-controller-manager')}",
        "--secure-port=0",
        "--leader-elect=false",
        "--use-service-account-credentials",
        f"--root-ca-file={pki / 'ca.crt'}",
        f"--service-account-private-key-file={pki / 'service-account.key'}",
        f"--cluster-signing-cert-file={pki / 'ca.crt'}",
        f"--cluster-signing-key-file={pki / 'ca.key'}",
    ]


def _scheduler(layout: Layout, ports: Ports) -> list[str]:
    del ports  # uses its kubeconfig
    return [
        f"--kubeconfig={layout.kubeconfig('kube-scheduler')}",
        "--secure-port=0",
        "--leader-elect=false",
        "--kube-api-qps=300",
        "--kube-api-burst=600",
    ]


def _patient() -> list[str]:
    """Return the options of the controller manager for nodes that renew their leases rarely."""
    return [f"--node-monitor-grace-period={_LONG_LEASE_SECONDS}s", "--node-monitor-period=60s"]


def _kwok(layout: Layout, lease_seconds: int) -> list[str]:
    return [
        f"--kubeconfig={layout.kubeconfig('kwok')}",
        f"--config={layout.stages}",
        "--manage-nodes-with-annotation-selector=kwok.x-k8s.io/node=fake",
        f"--node-lease-duration-seconds={lease_seconds}",
    ]


def _jaeger(layout: Layout, ports: Ports) -> list[str]:
    del layout  # keeps everything in memory
    at = {name: f"{LOOPBACK}:{ports[name]}" for name in PORTS["jaeger"]}
    return [
        "--collector.otlp.enabled=true",
        f"--collector.otlp.http.host-port={at['jaeger-otlp-http']}",
        f"--collector.otlp.grpc.host-port={at['jaeger-otlp-grpc']}",
        f"--collector.http-server.host-port={at['jaeger-collector-http']}",
        f"--collector.grpc-server.host-port={at['jaeger-collector-grpc']}",
        f"--query.http-server.host-port={at['jaeger-query']}",
        f"--query.grpc-server.host-port={at['jaeger-query-grpc']}",
        f"--http-server.host-port={at['jaeger-sampling']}",
        f"--processor.jaeger-compact.server-host-port={at['jaeger-compact']}",
        f"--processor.jaeger-binary.server-host-port={at['jaeger-binary']}",
        f"--processor.zipkin-compact.server-host-port={at['jaeger-zipkin-compact']}",
        f"--admin.http.host-port={at['jaeger-admin']}",
        "--memory.max-traces=50000",
        "--log-level=warn",
    ]
