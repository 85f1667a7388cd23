"""A node whose first process is systemd, and whose kubelet and containerd use the systemd cgroup driver, on cgroup v2.

In: a cluster of one real node. Out: a second node of it, ``real-1``, in a virtual machine. Called by tests of the
driver.
"""

from __future__ import annotations

import shutil
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import yaml

from support.systemd import machine
from trellis_dev.localcluster import ClusterInfo, debian
from trellis_dev.localcluster.building import How
from trellis_dev.localcluster.node_images import node_images
from trellis_dev.localcluster.paths import Layout
from trellis_dev.localcluster.realnode_network import Addresses
from trellis_dev.localcluster.realnode_root import write_lower, write_upper
from trellis_dev.localcluster.state import NETWORK, load
from trellis_dev.localcluster.tools import REAL_NODE, cached

NODE: Final = "real-1"
_INDEX: Final = 1
_UNITS: Final = "etc/systemd/system"
_WANTED: Final = {
    "multi-user.target.wants": ("containerd.service", "kubelet.service", "kube-proxy.service"),
    "sockets.target.wants": ("trellis-shell.socket",),
}
_OWN: Final = {"containerd.service": "/lib/systemd/system"}
"""Units of packages."""


@dataclass(frozen=True)
class SystemdNode:
    """The node, started."""

    machine: machine.Machine
    name: str = NODE

    def run(self, script: str) -> str:
        """Run a script as root on the node; return its output."""
        return self.machine.run(script)


def start_node(folder: Path, info: ClusterInfo, images: Mapping[str, Path], how: How) -> SystemdNode:
    """Start the node with these images in addition to those of each node; ``folder``: an empty one. Return at once."""
    layout = Layout.of(info.name)
    state = load(layout)
    assert state is not None
    assert state.range is not None
    addresses = Addresses(state.range)
    network = {**addresses.settings(_INDEX), "INDEX": str(_INDEX), "NAME": NODE}
    programs = {tool: cached(tool) for tool in REAL_NODE if tool != "coredns"}
    write_lower(folder / "lower", programs, {**node_images(cached("coredns"), how), **images}, layout.pki / "ca.crt")
    server = f"https://{state.address}:{state.ports['kube-apiserver']}"
    write_upper(folder / "upper", layout, server, (NODE, _INDEX, addresses))
    _use_systemd(folder / "lower")
    settings = "".join(f'{key}="{value}"\n' for key, value in network.items())
    (folder / "upper/etc/trellis-node").write_text(settings, encoding="ascii")
    kernel = machine.kernel(how)
    layers = [folder / "upper", folder / "lower", kernel.modules, debian.tree("systemd", how)]
    machine.write_disk(folder / "disk", layers, how)
    return SystemdNode(machine.start(folder, kernel, network, state.processes[NETWORK], state.token, how))


def _use_systemd(lower: Path) -> None:
    """Replace what stands in for systemd on other real nodes, and set the driver."""
    (lower / "usr/bin/systemctl").unlink()
    shutil.rmtree(lower / "usr/lib/trellis-node")
    scripts = lower / "usr/lib/trellis-node"
    units = lower / _UNITS
    for folder in (scripts, units):
        folder.mkdir(parents=True)
    for file in machine.FILES.iterdir():
        shutil.copy(file, scripts if file.suffix == ".sh" else units)
    for target, names in _WANTED.items():
        (units / target).mkdir()
        for name in names:
            (units / target / name).symlink_to(f"{_OWN.get(name, f'/{_UNITS}')}/{name}")
    config = lower / "etc/containerd/config.toml"
    before = config.read_text(encoding="utf-8")
    after = before.replace("SystemdCgroup = false", "SystemdCgroup = true")
    assert after != before
    config.write_text(after, encoding="utf-8")
    kubelet = lower / "etc/kubernetes/kubelet.yaml"
    settings = yaml.safe_load(kubelet.read_text(encoding="utf-8"))
    settings |= {"cgroupDriver": "systemd", "enforceNodeAllocatable": ["pods"], "failCgroupV1": True}
    kubelet.write_text(yaml.safe_dump(settings), encoding="utf-8")
