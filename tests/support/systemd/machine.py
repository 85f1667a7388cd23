"""A virtual machine with a kernel of Debian: cgroup v2 and systemd, whatever this machine has.

In: layers of a root file system, the network of real nodes. Out: a running machine on their bridge. Called by ``node``.
QEMU and the kernel are Debian's packages, unpacked into the cache. The processor is emulated if this one has no
virtualization, so that each step takes some ten times as long.
Invariant: the machine has the token of its cluster, so it ends with the cluster.
"""

from __future__ import annotations

import hashlib
import os
import shutil
import socket
import subprocess
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from trellis_dev.localcluster import debian
from trellis_dev.localcluster.building import PRIVATE, How, LoggedBuild, make_once
from trellis_dev.localcluster.paths import cache_root
from trellis_dev.localcluster.processes import ProcessRecord, spawn

FILES: Final = Path(__file__).parent / "files"
_KERNEL: Final = "linux-image-cloud-amd64"
_QEMU: Final = "qemu-system-x86"
_DISK: Final = "6G"
_MEMORY: Final = "3072"
_SHELL: Final = 22
_TUN: Final = "/dev/net/tun"
_SECONDS: Final = 600.0


def missing() -> str | None:
    """Return in one line why this machine cannot run a virtual machine; None if it can."""
    lacks = [name for name in ("apt-get", "dpkg", "mke2fs", "nsenter", "ip") if not shutil.which(name)]
    lacks += [device for device in (_TUN,) if not os.access(device, os.R_OK | os.W_OK)]
    return f"a virtual machine cannot run here; missing: {', '.join(lacks)}" if lacks else None


@dataclass(frozen=True)
class Kernel:
    """Files of a kernel: it, its initial file system, and the layer with its modules."""

    folder: Path

    @property
    def modules(self) -> Path:
        """The layer."""
        return self.folder / "modules"


def kernel(how: How) -> Kernel:
    """Return the kernel of Debian with its modules, prepared once."""
    package = debian.installed("kernel", [_KERNEL], how)
    sources = hashlib.sha256(b"".join((FILES / name).read_bytes() for name in ("kernel.sh", "initramfs.sh")))

    def make(target: Path, log: Path) -> None:
        target.mkdir()
        tree = debian.tree("systemd", how)
        given = {"TREE": tree, "PACKAGE": package, "OUT": target, "INIT": FILES / "initramfs.sh"}
        build = LoggedBuild(
            target, log, how.abort, {**os.environ, **{key: str(value) for key, value in given.items()}}, ""
        )
        build.run([*PRIVATE, "/bin/sh", str(FILES / "kernel.sh")])

    name = f"{package.name}-{sources.hexdigest()[:8]}"
    return Kernel(make_once(cache_root() / "machines" / name, "prepare a kernel", how, make))


def write_disk(target: Path, layers: Sequence[Path], how: How) -> None:
    """Write a file system with these layers, the uppermost first."""
    given = {"LAYERS": ":".join(map(str, layers)), "OUT": str(target), "SIZE": _DISK}
    log = target.with_suffix(".log")
    build = LoggedBuild(target.parent, log, how.abort, {**os.environ, **given}, "")
    build.run([*PRIVATE, "/bin/sh", str(FILES / "disk.sh")])


@dataclass(frozen=True)
class Machine:
    """A machine that is started. ``address``: its address on the bridge."""

    process: ProcessRecord
    address: str
    console: Path

    def run(self, script: str) -> str:
        """Run a script of bash as root; return its output.

        Raises:
            AssertionError: it failed, with its output. OSError: the machine does not answer.
        """
        with socket.create_connection((self.address, _SHELL), _SECONDS) as connection:
            connection.sendall(f"({script}\n) 2>&1 </dev/null\nprintf '\\n%s' $?\nexit\n".encode())
            connection.shutdown(socket.SHUT_WR)
            received = b"".join(iter(lambda: connection.recv(65536), b"")).decode(errors="replace")
        output, _, status = received.rpartition("\n")
        assert status == "0", f"{script}: {output} {status}"
        return output


def start(folder: Path, files: Kernel, network: Mapping[str, str], hub: ProcessRecord, token: str, how: How) -> Machine:
    """Start a machine with the disk ``disk`` of a folder; return at once."""
    inside = [shutil.which("nsenter") or "nsenter", f"--net=/proc/{hub.pid}/ns/net"]
    port = f"port{network['INDEX']}"
    lines = f"tuntap add dev {port} mode tap\nlink set {port} master bridge up\n"
    subprocess.run([*inside, "ip", "-batch", "-"], input=lines, text=True, check=True)
    root = debian.installed("qemu", [_QEMU], how)
    libraries = [str(path) for path in root.rglob("*-linux-gnu") if path.is_dir()]
    console = folder / "console.log"
    argv = [
        *inside, "env", f"LD_LIBRARY_PATH={':'.join(libraries)}", str(root / "usr/bin/qemu-system-x86_64"),
        "-L", str(root / "usr/share/qemu"), "-L", str(root / "usr/share/seabios"),
        "-accel", _accelerator(), "-cpu", "Nehalem", "-smp", "2", "-m", _MEMORY,
        "-nodefaults", "-display", "none", "-no-reboot", "-serial", f"file:{console}",
        "-kernel", str(files.folder / "vmlinuz"), "-initrd", str(files.folder / "initramfs"),
        "-append", "console=ttyS0 panic=-1 net.ifnames=0 mitigations=off random.trust_cpu=on",
        "-drive", f"file={folder / 'disk'},format=raw,if=none,id=disk,cache=unsafe",
        "-device", "virtio-blk-pci,drive=disk",
        "-netdev", f"tap,id=net,ifname={port},script=no,downscript=no",
        "-device", f"virtio-net-pci,netdev=net,mac={network['MAC']},romfile=",
        "-device", "virtio-rng-pci",
    ]  # fmt: skip
    return Machine(spawn(argv, log=folder / "qemu.log", token=token), network["ADDRESS"], console)


def _accelerator() -> str:
    """Return how QEMU runs the processor: by the kernel of this machine, if the processor has virtualization."""
    flags = set(Path("/proc/cpuinfo").read_text(encoding="ascii").split())
    virtual = flags & {"vmx", "svm"} and os.access("/dev/kvm", os.R_OK | os.W_OK)
    return "kvm" if virtual else "tcg,thread=multi"
