"""The supported distributions, as one table: detection, files to edit, restart commands, directories of shims.

Pure data. Called by ``gather`` (which preset, which files to read), ``target`` and ``edits``. Another distribution is
another row and a fixture tree under tests/data/node_installer.
Sources: each distribution's own installer and documentation; the fixture trees have the file layouts.
Invariant: rows are checked in order and the first match is used, so a row comes before the more general ones.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import Final


class Style(StrEnum):
    """Method to extend the containerd configuration of a distribution."""

    FILE = "file"
    """The main file is extended, or a drop-in that it imports."""
    TEMPLATE = "template"
    """The main file is rendered by the distribution from a Go template beside it."""
    DROPIN = "drop-in"
    """The distribution reads a directory of drop-ins, unless a user manages the main file."""


@dataclass(frozen=True, slots=True)
class Restart:
    """One command to restart the runtime, usable if one of the ``needs`` exists on the node (``*`` matches a name).

    ``{}`` in the command stands for the name of the file found, without its directory: a unit or an init script.
    """

    kind: str
    needs: tuple[str, ...]
    command: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Preset:
    """One distribution. Paths are the node's own."""

    name: str
    config: str
    config_is_generated: bool = False
    """Use ``config`` even if containerd's command line names another file: one generated from it, or unmanaged."""
    os_ids: tuple[str, ...] = ()
    """``ID`` of os-release; with ``marks`` too, both must hold."""
    marks: tuple[str, ...] = ()
    """At least one of these exists."""
    style: Style = Style.FILE
    dropins: str = ""
    """Directory of drop-ins (``DROPIN``)."""
    base_dirs: tuple[str, ...] = ("/opt/trellis", "/var/lib/trellis")
    """Directories for shims and state: the first on a file system that permits writes and execution is used."""
    socket: str = "/run/containerd/containerd.sock"
    restarts: tuple[Restart, ...] = ()
    reloads_itself: bool = False
    """The distribution watches its drop-ins and restarts containerd itself."""
    lost_at_boot: bool = False
    """The configuration is re-created at each boot: the node must be provisioned again after a boot."""
    advice: str = ""
    """Why this distribution is rejected, and an alternative."""


def _systemd(*units: str) -> Restart:
    folders = ("/etc/systemd/system", "/run/systemd/system", "/usr/lib/systemd/system", "/lib/systemd/system")
    return Restart(
        "systemd", tuple(f"{folder}/{unit}" for folder in folders for unit in units), ("systemctl", "restart", "{}")
    )


# Without systemd the new daemon is a child of Trellis: it must leave the pod's cgroups, or it dies with the pod.
_OUT_OF_POD: Final = (
    "sh",
    "-c",
    (
        "cd /sys/fs/cgroup && if [ -e cgroup.procs ]; then echo $$ > cgroup.procs; "
        'else for group in */cgroup.procs; do echo $$ > "$group"; done; fi; exec "$@"'
    ),
    "sh",
)


def _openrc(*names: str) -> Restart:
    scripts = tuple(f"/etc/init.d/{name}" for name in names)
    return Restart("openrc", scripts, (*_OUT_OF_POD, "rc-service", "{}", "restart"))


def _sysv(*names: str) -> Restart:
    scripts = tuple(f"/etc/init.d/{name}" for name in names)
    return Restart("init.d", scripts, (*_OUT_OF_POD, "/etc/init.d/{}", "restart"))


SYSTEMD_BOOTED: Final = "/run/systemd/system"
"""Exists if systemd is the running init (sd_booted(3)); unit files may exist without it."""
OPENRC_BOOTED: Final = "/run/openrc"
_CONTAINERD: Final = (_systemd("containerd.service"), _openrc("containerd"), _sysv("containerd"))

MICROK8S: Final = "/var/snap/microk8s"
RKE2: Final = "/var/lib/rancher/rke2/agent/etc/containerd"
K3S: Final = "/var/lib/rancher/k3s/agent/etc/containerd"

PRESETS: Final = (
    Preset(
        "talos",
        "/etc/cri/conf.d/cri.toml",
        os_ids=("talos",),
        advice=(
            "Talos has an immutable root: add the shim as a system extension to the machine's image "
            "(an official extension exists for several shims), upgrade the node to it, and leave this node out"
        ),
    ),
    Preset(
        "bottlerocket",
        "/etc/containerd/config.toml",
        os_ids=("bottlerocket",),
        advice=(
            "Bottlerocket has an immutable, verified root and generates containerd's configuration: "
            "build a variant that carries the shim, or use another operating system for the nodes that run Wasm"
        ),
    ),
    Preset(
        "microk8s",
        f"{MICROK8S}/current/args/containerd-template.toml",
        config_is_generated=True,
        marks=(f"{MICROK8S}/current/args/containerd-template.toml",),
        # The snap may have no access to /opt, but always has access to its own common directory.
        base_dirs=(f"{MICROK8S}/common/trellis",),
        socket=f"{MICROK8S}/common/run/containerd.sock",
        restarts=(
            _systemd("snap.microk8s.daemon-containerd.service"),
            Restart("snap", ("/usr/bin/snap",), ("snap", "restart", "microk8s.daemon-containerd")),
        ),
    ),
    Preset(
        "rke2",
        f"{RKE2}/config.toml",
        config_is_generated=True,
        marks=(f"{RKE2}/config.toml",),
        style=Style.TEMPLATE,
        socket="/run/k3s/containerd/containerd.sock",
        restarts=(_systemd("rke2-agent.service", "rke2-server.service"),),
    ),
    Preset(
        "k3s",
        f"{K3S}/config.toml",
        config_is_generated=True,
        marks=(f"{K3S}/config.toml",),
        style=Style.TEMPLATE,
        socket="/run/k3s/containerd/containerd.sock",
        restarts=(
            _systemd("k3s.service", "k3s-agent.service", "k3s-*.service"),
            _openrc("k3s", "k3s-agent"),
            _sysv("k3s", "k3s-agent"),
            # A node that is itself a container: its first process is k3s, or the entrypoint of k3d, which ends k3s at
            # SIGTERM; its engine restarts it.
            Restart("container", ("/bin/k3s",), ("kill", "1")),
        ),
    ),
    Preset(
        "k0s",
        "/etc/k0s/containerd.toml",
        config_is_generated=True,
        marks=("/etc/k0s/containerd.toml", "/var/lib/k0s/bin/containerd"),
        style=Style.DROPIN,
        dropins="/etc/k0s/containerd.d",
        socket="/run/k0s/containerd.sock",
        restarts=(_systemd("k0sworker.service", "k0scontroller.service"), _openrc("k0sworker", "k0scontroller")),
        reloads_itself=True,
    ),
    Preset(
        "gke-cos",
        "/etc/containerd/config.toml",
        os_ids=("cos",),
        # The root is read-only and /var is mounted noexec; kubelet's own binaries show which directory is not.
        base_dirs=("/home/kubernetes/bin/trellis", "/var/lib/trellis"),
        restarts=_CONTAINERD,
        lost_at_boot=True,
    ),
    Preset(
        "eks",
        "/etc/containerd/config.toml",
        os_ids=("amzn",),
        marks=("/usr/bin/nodeadm", "/etc/eks"),
        restarts=_CONTAINERD,
        # nodeadm runs at each boot and re-creates the file.
        lost_at_boot=True,
    ),
    Preset(
        "aks",
        "/etc/containerd/config.toml",
        marks=("/etc/kubernetes/azure.json", "/opt/azure/containers"),
        restarts=_CONTAINERD,
    ),
    Preset(
        "cri-o",
        "/etc/crio/crio.conf",
        marks=("/run/crio/crio.sock", "/var/run/crio/crio.sock"),
        advice=(
            "this node runs CRI-O: Wasm shims are containerd's; CRI-O runs Wasm through crun built with a Wasm "
            "engine, which comes with the node's packages"
        ),
    ),
    Preset(
        "containerd",
        "/etc/containerd/config.toml",
        marks=("/etc/containerd/config.toml", "/run/containerd/containerd.sock", "/usr/bin/containerd"),
        restarts=_CONTAINERD,
    ),
)


@dataclass(frozen=True, slots=True)
class Leftover:
    """Files of another installer on nodes: adopted with its handler, never duplicated."""

    name: str
    bin_dirs: tuple[str, ...]
    lock_file: str = ""
    """JSON of its state: ``shims`` by name."""
    marker: str = ""
    """A file that is removed with the last of its shims."""


LEFTOVERS: Final = (
    Leftover("kwasm", ("/opt/kwasm/bin",), marker="/opt/kwasm/active"),
    Leftover("kwasm", (f"{MICROK8S}/common/kwasm/bin",), marker=f"{MICROK8S}/common/kwasm/active"),
    Leftover("runtime-class-manager", ("/opt/rcm/bin",), lock_file="/opt/rcm/rcm-lock.json"),
)


def leftover_of(runtime_type: str) -> Leftover | None:
    """Return the other installer whose shim a runtime's path names, None if there is none."""
    folder = runtime_type.rpartition("/")[0]
    for leftover in LEFTOVERS:
        if folder in leftover.bin_dirs:
            return leftover
    return None
