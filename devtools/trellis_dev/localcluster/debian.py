"""Debian systems as directories: the base of root file systems, images and builds. Nothing is installed here.

In: the name of a tree or a list of packages. Out: a directory in the cache. Called by all code of real nodes.
Needs root (a tree has device nodes and owners). `debootstrap` verifies the signatures of Debian; if it is not on the
PATH, `apt-get` downloads its package into the cache. The mirror is that of the local apt configuration, else the
default of debootstrap. Invariant: a finished tree is read-only: nodes mount an overlay over it.
"""

from __future__ import annotations

import hashlib
import os
import shutil
import subprocess
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from trellis_dev.localcluster.building import PRIVATE, How, LoggedBuild, make_once
from trellis_dev.localcluster.errors import ToolError
from trellis_dev.localcluster.paths import cache_root
from trellis_dev.localcluster.progress import stepping
from trellis_dev.localcluster.versions import products

TREES: Final[dict[str, tuple[str, ...]]] = {
    # Programs that kubelet, kube-proxy, containerd and installers call. containerd here is the 1.6 series.
    "node": (
        "busybox-static", "ca-certificates", "conntrack", "containerd", "containernetworking-plugins", "iproute2",
        "iptables", "kmod", "nftables", "procps", "runc",
    ),
    "python": ("ca-certificates", "python3"),
    "buildah": ("buildah",),
    # A node with systemd as its first process, in a virtual machine.
    "systemd": ("dbus", "systemd", "systemd-sysv", "udev"),
    # A node of kind: systemd as the first process of a container, without D-Bus.
    "kind": ("jq", "systemd"),
}  # fmt: skip
"""Name of a tree → its packages, in addition to the minimal system or its base tree."""

_BELOW: Final = {"buildah": "python", "systemd": "node", "kind": "node"}
"""Trees with another tree as base: debootstrap cannot resolve the dependencies of buildah, apt can."""

# /proc is mounted in a temporary mount namespace; debootstrap has configured the name resolution.
_EXTEND: Final = """\
mount -t proc proc "$0/proc"
chroot "$0" apt-get --quiet update >&2
chroot "$0" apt-get --quiet --yes install --no-install-recommends "$@" >&2
"""
_NO_QUESTIONS: Final = {"DEBIAN_FRONTEND": "noninteractive"}
_KEYRING: Final = "/usr/share/keyrings/debian-archive-keyring.gpg"
_HINT: Final = "It needs a Debian mirror and 1 GB of free disk; if apt has no package lists, run `apt-get update`."


def tree(name: str, how: How) -> Path:
    """Return a Debian system of the suite in ``versions.toml`` with the packages of :data:`TREES`, built once.

    Raises:
        ToolError: neither debootstrap nor apt-get is available, or a download fails.
    """
    suite, packages = products()["debian"].version, TREES[name]
    digest = hashlib.sha256(",".join(packages).encode()).hexdigest()[:8]
    step = f"build a Debian {suite} tree '{name}'"

    def extend(target: Path, log: Path) -> None:
        build = LoggedBuild(target.parent, log, how.abort, {**os.environ, **_NO_QUESTIONS}, _HINT)
        build.run([*PRIVATE, "cp", "--archive", str(tree(_BELOW[name], how)), str(target)])
        build.run([*PRIVATE, "/bin/sh", "-ec", _EXTEND, str(target), *packages], on_line)
        _strip(target)

    def make(target: Path, log: Path) -> None:
        program, environment = _debootstrap(how)
        argv = [*PRIVATE, str(program), "--variant=minbase"]
        argv += [f"--include={','.join(packages)}", suite, str(target), *_mirror(suite)]
        build = LoggedBuild(target.parent, log, how.abort, environment, _HINT)
        build.run(argv, on_line)
        _strip(target)

    def on_line(line: str) -> None:
        how.progress.note(step, line)

    target = cache_root() / "debian" / f"{name}-{suite}-{digest}"
    return make_once(target, step, how, extend if name in _BELOW else make)


def unpacked(name: str, packages: Sequence[str], how: How, architecture: str | None = None) -> Path:
    """Return a directory with the files of these packages, without dependencies, unpacked once.

    ``architecture``: that of the packages, if it is not that of this machine.

    Raises:
        ToolError: apt-get or dpkg is missing, or a download fails.
    """
    digest = hashlib.sha256(",".join((*packages, *([architecture] if architecture else []))).encode()).hexdigest()[:8]
    step = f"fetch the Debian packages of {name}"

    def make(target: Path, log: Path) -> None:
        archives = target / "archives"
        archives.mkdir(parents=True)
        build = LoggedBuild(archives, log, how.abort, dict(os.environ), _HINT)
        if architecture is None:
            # apt would switch to a user without write access to this directory.
            build.run(["apt-get", "-o", "APT::Sandbox::User=root", "download", *packages])
        else:
            download(archives, architecture, ((), packages), how, log)
        for archive in sorted(archives.glob("*.deb")):
            build.run(["dpkg", "-x", str(archive), str(target)])
        shutil.rmtree(archives)

    _require_apt(step)
    return make_once(cache_root() / "debian" / f"packages-{name}-{digest}", step, how, make)


def installed(name: str, packages: Sequence[str], how: How) -> Path:
    """Return a directory with the files of these packages and of dependencies that this machine lacks.

    Nothing is installed, and no package script runs. Unpacked once.

    Raises:
        ToolError: apt-get or dpkg is missing, or a download fails.
    """
    digest = hashlib.sha256(",".join(packages).encode()).hexdigest()[:8]
    step = f"fetch the Debian packages of {name} and their dependencies"

    def make(target: Path, log: Path) -> None:
        archives, lists = target / "archives", target / "lists"
        apt = _PrivateApt(LoggedBuild(target, log, how.abort, {**os.environ, **_NO_QUESTIONS}, _HINT), archives, lists)
        # `--reinstall`: packages that are already installed are downloaded and used from here too.
        apt.run("update")
        apt.run("--download-only", "--yes", "--reinstall", "--no-install-recommends", "install", *packages)
        for archive in sorted(archives.glob("*.deb")):
            apt.build.run(["dpkg", "-x", str(archive), str(target)])
        shutil.rmtree(archives)
        shutil.rmtree(lists)

    _require_apt(step)
    return make_once(cache_root() / "debian" / f"packages-{name}-{digest}", step, how, make)


def download(
    target: Path, architecture: str, packages: tuple[Sequence[str], Sequence[str]], how: How, log: Path
) -> None:
    """Download packages for an architecture: those with all packages that they depend on, and those without these.

    They are the current ones of the suite in ``versions.toml``, from those sources of apt on this machine that are of
    the suite. ``target`` gets files ``*.deb``; it may be empty or missing.

    Raises:
        ToolError: apt-get is missing, it has no such sources, or a download fails.
    """
    complete, alone = packages
    suite = products()["debian"].version
    step = f"download packages of Debian {suite} for {architecture}"
    _require_apt(step)
    with stepping(how.progress, step), tempfile.TemporaryDirectory(prefix="trellis-apt-") as folder:
        own = Path(folder)
        (own / "sources.list").write_text(_sources_of(suite))
        (own / "status").touch()
        target.mkdir(parents=True, exist_ok=True)
        build = LoggedBuild(target, log, how.abort, {**os.environ, **_NO_QUESTIONS}, _HINT)
        options = (
            f"APT::Architecture={architecture}",
            # Of another architecture nothing is installed here, so apt downloads all dependencies.
            f"Dir::State::status={own / 'status'}",
            f"Dir::Etc::sourcelist={own / 'sources.list'}",
            "Dir::Etc::sourceparts=/dev/null",
        )
        apt = _PrivateApt(build, target, own / "lists", options)
        apt.run("update")
        if complete:
            apt.run("--download-only", "--yes", "--no-install-recommends", "install", *complete)
        apt.run("download", *alone)
        shutil.rmtree(target / "partial", ignore_errors=True)
        (target / "lock").unlink(missing_ok=True)


@dataclass(frozen=True)
class _PrivateApt:
    """apt-get with directories of its own, so that it needs no lock and changes nothing on this machine."""

    build: LoggedBuild
    archives: Path
    lists: Path
    options: tuple[str, ...] = ()

    def run(self, *arguments: str) -> None:
        """Run apt-get.

        Raises:
            ToolError: it failed.
        """
        for directory in (self.archives, self.lists):
            (directory / "partial").mkdir(parents=True, exist_ok=True)
        # apt would switch to a user without access to these directories. The lists of the machine can be outdated.
        own = (
            "APT::Sandbox::User=root",
            "Debug::NoLocking=1",
            f"Dir::Cache::archives={self.archives}",
            f"Dir::State::lists={self.lists}",
            f"Dir::Cache::pkgcache={self.lists}/pkg",
            f"Dir::Cache::srcpkgcache={self.lists}/src",
        )
        options = [word for option in (*own, *self.options) for word in ("-o", option)]
        self.build.run(["apt-get", *options, *arguments])


def _sources_of(suite: str) -> str:
    """Return the sources of apt on this machine that are of a suite, its updates and its security updates.

    Raises:
        ToolError: there are none.
    """
    argv = ["apt-get", "indextargets", "--format", "$(REPO_URI) $(RELEASE) $(COMPONENT)", "Identifier: Packages"]
    answer = subprocess.run(argv, capture_output=True, text=True, check=False)  # noqa: S603 - fixed arguments
    rows = {tuple(line.split(" ")) for line in answer.stdout.splitlines() if line.count(" ") == 2}
    found = sorted(row for row in rows if row[1] == suite or row[1].startswith(f"{suite}-"))
    if not found:
        raise ToolError(f"apt has no sources of Debian {suite}: add them, or run this on Debian {suite}")
    return "".join(f"deb [signed-by={_KEYRING}] {' '.join(row)}\n" for row in found)


def _require_apt(step: str) -> None:
    for program in ("apt-get", "dpkg"):
        if shutil.which(program) is None:
            raise ToolError(f"{step}: {program} is missing; install it on a Debian system")


def _strip(tree: Path) -> None:
    """Remove files that apt can download again."""
    for directory in ("cache/apt/archives", "lib/apt/lists"):
        shutil.rmtree(tree / "var" / directory, ignore_errors=True)


def _debootstrap(how: How) -> tuple[Path, dict[str, str]]:
    """Return debootstrap and its environment."""
    on_path = shutil.which("debootstrap")
    if on_path is not None:
        return Path(on_path), dict(os.environ)
    root = unpacked("debootstrap", ["debootstrap"], how)
    return root / "usr/sbin/debootstrap", {**os.environ, "DEBOOTSTRAP_DIR": str(root / "usr/share/debootstrap")}


def _mirror(suite: str) -> list[str]:
    """Return the mirror of the local apt configuration for the suite; empty if there is none."""
    if shutil.which("apt-get") is None:
        return []
    argv = ["apt-get", "indextargets", "--format", "$(REPO_URI)", "Identifier: Packages", f"Codename: {suite}"]
    answer = subprocess.run(argv, capture_output=True, text=True, check=False)  # noqa: S603 - fixed arguments
    found = [line for line in answer.stdout.splitlines() if line.startswith("http") and "security" not in line]
    return found[:1]
