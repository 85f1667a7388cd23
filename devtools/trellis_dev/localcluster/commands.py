"""The command line of every component of a local cluster, and the ports it needs.

In: where the cluster's files are, and its ports. Out: argument lists. Pure. Called by `up` and by fault tests.
Invariant: everything listens on the loopback address only, with real nodes the API server on their network instead;
and no component reads anything outside the cluster's directory.
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
"""Component → names of its ports. The order is that of a start."""

LEAFNODES: Final = "nats-leafnodes"
"""Name of the port that joins NATS servers; a cluster has it only if its server is joined to others."""

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
"""Writes of everybody, and every call of the accounts that the services have where they are installed.

Nodes' signs of life are left out: with a thousand nodes they are a third of all writes, and each entry costs a write.
"""


def nats_server(program: Path, port: int, store: Path | None, config: Path | None = None) -> list[str]:
    """Return the command line of a nats-server, with JetStream if it has a store."""
    argv = [str(program), "--addr", LOOPBACK, "--port", str(port)]
    argv += ["--jetstream", "--store_dir", str(store)] if store is not None else []
    return argv if config is None else [*argv, "--config", str(config)]


_QUICK_JOBS: Final = ("--kube-api-qps=300", "--kube-api-burst=600", "--concurrent-job-syncs=30")
"""The controller manager's own client limits finish 1,000 Jobs in four minutes."""
_LEASE_SECONDS: Final = 40
_LONG_LEASE_SECONDS: Final = 1200
"""kwok renews a lease after a quarter of it: of 5,000 nodes 17 a second instead of 500, which would take all that an
API server on two cores has. The controller manager waits for as long before it takes a node for gone."""


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
    """Return the command line of one component; ``address`` is where the API server listens.

    Raises:
        KeyError: if the tool is no component, or a port it needs is not in ``ports``.
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
        "--unsafe-no-fsync",  # a throwaway loses nothing that matters when the machine does
    ]


def _apiserver(layout: Layout, ports: Ports, address: str, *, audit: bool) -> list[str]:
    pki = layout.pki
    arguments = [
        f"--etcd-servers=http://{LOOPBACK}:{ports['etcd']}",
        f"--bind-address={address}",
        f"--advertise-address={address}",
        f"--secure-port={ports['kube-apiserver']}",
        # The wheel's etcd (< 3.5.13) cannot be asked for watch progress. With the gate on, the server turns every watch
        # from resource version 0 into one that needs it and ends it with an error: kwok would poll with backoff.
        "--feature-gates=WatchList=false",
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
            "--audit-log-mode=blocking",  # an entry is in the file before the answer is out
            "--audit-log-maxsize=16384",  # MiB; it is read from an offset, and the default of 100 begins a new file
        ]
    return arguments


def _service_ranges(address: str) -> str:
    """Return from where Services get addresses: of both families, but where real nodes would have to serve IPv6."""
    return f"{SERVICE_RANGE},{SERVICE_RANGE_IPV6}" if address == LOOPBACK else SERVICE_RANGE


def _reached_by_nodes(address: str, pki: Path) -> list[str]:
    """Return what the API server needs to know of real nodes, if it listens where they reach it."""
    if address == LOOPBACK:
        # A loopback address is refused as an endpoint, and no pod of ours reaches the service anyway.
        return ["--endpoint-reconciler-type=none"]
    return [
        f"--kubelet-client-certificate={pki / KUBELET_CLIENT}.crt",
        f"--kubelet-client-key={pki / KUBELET_CLIENT}.key",
        "--kubelet-preferred-address-types=InternalIP",
    ]


def _controller_manager(layout: Layout, ports: Ports) -> list[str]:
    del ports  # reaches the API server by its kubeconfig
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
    del ports  # reaches the API server by its kubeconfig
    return [
        f"--kubeconfig={layout.kubeconfig('kube-scheduler')}",
        "--secure-port=0",
        "--leader-elect=false",
        "--kube-api-qps=300",
        "--kube-api-burst=600",
    ]


def _patient() -> list[str]:
    """Return what has the controller manager wait for nodes that rarely give a sign of life."""
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
