"""Debian systems as directories: what a real node's root, images and builds are made of. Nothing is installed here.

In: the name of a tree or a list of packages. Out: a directory in the cache. Called by everything of a real node.
Needs root (a tree has device nodes and owners). `debootstrap` checks Debian's signatures; it comes from the PATH, else
its package is downloaded by `apt-get` and unpacked into the cache. The mirror is the one this machine's apt uses, else
debootstrap's own. Invariant: a tree is never written to again: nodes lay an overlay over it.
"""

from __future__ import annotations

import hashlib
import os
import shutil
import subprocess
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from trellis.localcluster.building import How, LoggedBuild, make_once
from trellis.localcluster.errors import ToolError
from trellis.localcluster.paths import cache_root
from trellis.localcluster.versions import products

TREES: Final[dict[str, tuple[str, ...]]] = {
    # What kubelet, kube-proxy and containerd call, and an installer may look for. containerd here is the 1.6 series.
    "node": (
        "busybox-static", "ca-certificates", "conntrack", "containerd", "containernetworking-plugins", "iproute2",
        "iptables", "kmod", "nftables", "procps", "runc",
    ),
    "python": ("ca-certificates", "python3"),
    "buildah": ("buildah", "ca-certificates"),
}  # fmt: skip
"""Name of a tree → its packages, besides the smallest system."""

_HINT: Final = "It needs a Debian mirror and 1 GB of free disk; if apt knows no packages, run `apt-get update` first."


def tree(name: str, how: How) -> Path:
    """Return a Debian system of the suite in ``versions.toml`` with the packages of :data:`TREES`, made once.

    Raises:
        ToolError: if neither debootstrap nor apt-get is there, or a download fails.
    """
    suite, packages = products()["debian"].version, TREES[name]
    digest = hashlib.sha256(",".join(packages).encode()).hexdigest()[:8]
    step = f"make a Debian {suite} tree '{name}'"

    def make(target: Path, log: Path) -> None:
        program, environment = _debootstrap(how)
        argv = ["unshare", "--mount", "--propagation", "private", str(program), "--variant=minbase"]
        argv += [f"--include={','.join(packages)}", suite, str(target), *_mirror(suite)]
        build = LoggedBuild(target.parent, log, how.abort, environment, _HINT)
        build.run(argv, lambda line: how.progress.note(step, line))
        shutil.rmtree(target / "var" / "cache" / "apt" / "archives", ignore_errors=True)

    return make_once(cache_root() / "debian" / f"{name}-{suite}-{digest}", step, how, make)


def unpacked(name: str, packages: Sequence[str], how: How) -> Path:
    """Return a directory with the files of these packages, none of their dependencies, unpacked once.

    Raises:
        ToolError: if apt-get or dpkg are missing, or a download fails.
    """
    digest = hashlib.sha256(",".join(packages).encode()).hexdigest()[:8]
    step = f"fetch the Debian packages of {name}"

    def make(target: Path, log: Path) -> None:
        archives = target / "archives"
        archives.mkdir(parents=True)
        build = LoggedBuild(archives, log, how.abort, dict(os.environ), _HINT)
        # apt would drop to a user that cannot write to our directory.
        build.run(["apt-get", "-o", "APT::Sandbox::User=root", "download", *packages])
        for archive in sorted(archives.glob("*.deb")):
            build.run(["dpkg", "-x", str(archive), str(target)])
        shutil.rmtree(archives)

    for program in ("apt-get", "dpkg"):
        if shutil.which(program) is None:
            raise ToolError(f"{step}: {program} is missing; Trellis takes these from Debian's packages")
    return make_once(cache_root() / "debian" / f"packages-{name}-{digest}", step, how, make)


def _debootstrap(how: How) -> tuple[Path, dict[str, str]]:
    """Return debootstrap and the environment it needs."""
    on_path = shutil.which("debootstrap")
    if on_path is not None:
        return Path(on_path), dict(os.environ)
    root = unpacked("debootstrap", ["debootstrap"], how)
    return root / "usr/sbin/debootstrap", {**os.environ, "DEBOOTSTRAP_DIR": str(root / "usr/share/debootstrap")}


def _mirror(suite: str) -> list[str]:
    """Return the mirror from which this machine's apt takes the suite; empty if it takes none of it."""
    if shutil.which("apt-get") is None:
        return []
    argv = ["apt-get", "indextargets", "--format", "$(REPO_URI)", "Identifier: Packages", f"Codename: {suite}"]
    answer = subprocess.run(argv, capture_output=True, text=True, check=False)  # noqa: S603 - our own arguments
    found = [line for line in answer.stdout.splitlines() if line.startswith("http") and "security" not in line]
    return found[:1]
