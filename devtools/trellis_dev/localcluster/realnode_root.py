"""The root file system of real nodes: programs, configuration and images, the same on all nodes of a cluster.

In: the programs, the Debian tree, the files of the cluster. Out: a directory that each node mounts its overlay over
(with the tree below it), and the few files that differ per node, in the upper directory of the node. Called before
nodes start. Invariant: all later changes of a node are in its upper directory or on its disk directories, so the
changes of an installer can be inspected there.
"""

from __future__ import annotations

import base64
import json
import os
import shutil
import uuid
from collections.abc import Mapping
from importlib import resources
from pathlib import Path
from typing import Any, Final

import yaml

from trellis_dev.localcluster.certs import read_token, write_private
from trellis_dev.localcluster.coredns import DNS_ADDRESS
from trellis_dev.localcluster.node_images import PAUSE
from trellis_dev.localcluster.paths import Layout
from trellis_dev.localcluster.realnode_network import Addresses

CONTAINERD_2: Final = "2"
CONTAINERD_16: Final = "1.6"
_CNI: Final = "/usr/lib/cni"
_SOCKET: Final = "/run/containerd/containerd.sock"
_REGISTRIES: Final = "/etc/containerd/certs.d"
"""Directory of settings of registries by host, which containerd reads for each pull: for a registry without TLS."""


def write_lower(target: Path, programs: Mapping[str, Path], images: Mapping[str, Path], authority: Path) -> None:
    """Write the common files of all nodes; if ``programs`` has no ``containerd``, nodes run 1.6 of Debian.

    Raises:
        OSError: the disk is full.
    """
    scripts = resources.files("trellis_dev.localcluster").joinpath("node")
    for name, place in {"init.sh": "usr/lib/trellis-node/init", "systemctl.sh": "usr/bin/systemctl"}.items():
        _write(target / place, scripts.joinpath(name).read_text(encoding="utf-8"), 0o755)
    for tool, program in programs.items():
        _link_cached(program, target / "usr" / "bin" / tool)
    for name, archive in images.items():
        _link_cached(archive, target / "usr/share/trellis-node/images" / f"{name}.tar")
    containerd = containerd_2() if "containerd" in programs else containerd_16()
    _write(target / "etc/containerd/config.toml", containerd)
    _write(target / "etc/kubernetes/ca.crt", authority.read_text(encoding="ascii"))
    _write(target / "etc/kubernetes/kubelet.yaml", yaml.safe_dump(_kubelet()))
    _write(target / "etc/kubernetes/kube-proxy.yaml", yaml.safe_dump(_kube_proxy()))
    # No name server: nodes cannot reach anything outside the cluster.
    _write(target / "etc/resolv.conf", "# A node of a local test cluster: no name server.\n")


def write_upper(target: Path, layout: Layout, server: str, node: tuple[str, int, Addresses]) -> None:
    """Write the files of one node: its name, address and credentials."""
    name, index, addresses = node
    _write(target / "etc/hostname", f"{name}\n")
    _write(target / "etc/hosts", f"127.0.0.1 localhost\n{addresses.node(index)} {name}\n")
    _write(target / "etc/machine-id", f"{uuid.uuid4().hex}\n")
    _write(target / "etc/kubernetes/address", f"{addresses.node(index)}\n")
    _write(target / "etc/cni/net.d/10-node.conflist", json.dumps(_cni(addresses.pods(index)), indent=2))
    for user, file in ((name, "kubelet.conf"), ("kube-proxy", "kube-proxy.conf")):
        content = yaml.safe_dump(_kubeconfig(layout, server, user))
        write_private(target / "etc/kubernetes" / file, content.encode())


def containerd_2() -> str:
    """Return the configuration of containerd 2 (version 3), as in its package with the CRI plugin enabled."""
    return f"""\
version = 3

[plugins.'io.containerd.cri.v1.images'.pinned_images]
sandbox = '{PAUSE}'

[plugins.'io.containerd.cri.v1.images'.registry]
config_path = '{_REGISTRIES}'

[plugins.'io.containerd.cri.v1.runtime']
restrict_oom_score_adj = true

[plugins.'io.containerd.cri.v1.runtime'.containerd]
default_runtime_name = 'runc'

[plugins.'io.containerd.cri.v1.runtime'.containerd.runtimes.runc]
runtime_type = 'io.containerd.runc.v2'

# Explicit: containerd otherwise detects systemd on the node, and the kubelet uses the cgroup driver it reports.
[plugins.'io.containerd.cri.v1.runtime'.containerd.runtimes.runc.options]
SystemdCgroup = false

[plugins.'io.containerd.cri.v1.runtime'.cni]
bin_dirs = ['{_CNI}']
conf_dir = '/etc/cni/net.d'
"""


def containerd_16() -> str:
    """Return the configuration of containerd 1.6 (version 2)."""
    return f"""\
version = 2

[plugins."io.containerd.grpc.v1.cri"]
sandbox_image = "{PAUSE}"
restrict_oom_score_adj = true

[plugins."io.containerd.grpc.v1.cri".registry]
config_path = "{_REGISTRIES}"

[plugins."io.containerd.grpc.v1.cri".containerd]
default_runtime_name = "runc"

[plugins."io.containerd.grpc.v1.cri".containerd.runtimes.runc]
runtime_type = "io.containerd.runc.v2"

[plugins."io.containerd.grpc.v1.cri".cni]
bin_dir = "{_CNI}"
conf_dir = "/etc/cni/net.d"
"""


def _kubelet() -> dict[str, Any]:
    return {
        "apiVersion": "kubelet.config.k8s.io/v1beta1",
        "kind": "KubeletConfiguration",
        "authentication": {
            "anonymous": {"enabled": False},
            "webhook": {"enabled": False},
            "x509": {"clientCAFile": "/etc/kubernetes/ca.crt"},
        },
        "authorization": {"mode": "AlwaysAllow"},
        "cgroupDriver": "cgroupfs",
        "clusterDNS": [DNS_ADDRESS],
        "clusterDomain": "cluster.local",
        "containerRuntimeEndpoint": f"unix://{_SOCKET}",
        # No resources of the machine are reserved; swap or cgroup v1 must not stop the kubelet.
        "enforceNodeAllocatable": [],
        "failCgroupV1": False,
        "failSwapOn": False,
        # The nodes share the disk of this machine, whose other files they must not evict for.
        "evictionHard": {"memory.available": "50Mi", "nodefs.available": "1%", "imagefs.available": "1%"},
        "imageGCHighThresholdPercent": 100,
        "resolvConf": "/etc/resolv.conf",
    }


def _kube_proxy() -> dict[str, Any]:
    return {
        "apiVersion": "kubeproxy.config.k8s.io/v1alpha1",
        "kind": "KubeProxyConfiguration",
        "clientConnection": {"kubeconfig": "/etc/kubernetes/kube-proxy.conf"},
        "mode": "iptables",
        # The connection tracking table has one size for the whole machine.
        "conntrack": {"maxPerCore": 0, "min": 0, "tcpEstablishedTimeout": "0s", "tcpCloseWaitTimeout": "0s"},
    }


def _cni(subnet: str) -> dict[str, Any]:
    # In memory: all addresses are released by a reboot.
    ipam = {"type": "host-local", "dataDir": "/run/cni-addresses", "ranges": [[{"subnet": subnet}]],
            "routes": [{"dst": "0.0.0.0/0"}]}  # fmt: skip
    bridge = {"type": "bridge", "bridge": "cni0", "isGateway": True, "ipMasq": False, "hairpinMode": True, "ipam": ipam}
    portmap = {"type": "portmap", "capabilities": {"portMappings": True}}
    return {"cniVersion": "1.0.0", "name": "node", "plugins": [bridge, portmap]}


def _kubeconfig(layout: Layout, server: str, user: str) -> dict[str, Any]:
    authority = base64.b64encode((layout.pki / "ca.crt").read_bytes()).decode()
    return {
        "apiVersion": "v1",
        "kind": "Config",
        "clusters": [{"name": "local", "cluster": {"server": server, "certificate-authority-data": authority}}],
        "users": [{"name": user, "user": {"token": read_token(layout.pki, user)}}],
        "contexts": [{"name": "local", "context": {"cluster": "local", "user": user}}],
        "current-context": "local",
    }


def _write(path: Path, content: str, mode: int = 0o644) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(content, encoding="utf-8")
    path.chmod(mode)


def _link_cached(source: Path, target: Path) -> None:
    """Link a file of the cache here: a hard link, or a copy on another file system."""
    target.parent.mkdir(parents=True, exist_ok=True)
    try:
        os.link(source, target)
    except OSError:
        shutil.copy2(source, target)
