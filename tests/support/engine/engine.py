"""A real Docker engine with Compose, of Debian's packages, that is not installed on the machine.

In: an empty folder. Out: an engine in a network and a mount namespace of its own, without access to other networks, and
commands that run there. Called by tests of docker-compose.yml. Needs root. Invariant: everything of the engine is below
the folder and in its control groups, and is deleted when the context ends.
"""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from trellis_dev.localcluster import debian
from trellis_dev.localcluster.building import How
from trellis_dev.localcluster.supervisor import remove_groups

_PACKAGES: Final = ("docker.io", "docker-compose", "iptables")
_GROUPS: Final = Path("/sys/fs/cgroup")
_START_SECONDS: Final = 60
_END_SECONDS: Final = 120
_SYS_RESOURCE: Final = 24
"""Number of the capability that a machine inside a container often lacks, and that `privileged` asks for."""

# $1: links, $2: packages, $3: folder. The scripts of the packages, which would make the links, did not run.
_NAMESPACE: Final = """\
mkdir "$3/etc"
mount -t tmpfs etc "$3/etc"
mkdir "$3/etc/upper" "$3/etc/work"
mount -t overlay etc -o "lowerdir=/etc,upperdir=$3/etc/upper,workdir=$3/etc/work" /etc
mount -t overlay usr -o "lowerdir=$1:$2/usr:/usr" /usr
mount -t tmpfs run /run
ip link set lo up
echo ready
exec sleep infinity
"""
_LINKS: Final = tuple(
    (f"{name}{suffix}", f"{name}-legacy{suffix}")
    for name in ("iptables", "ip6tables")
    for suffix in ("", "-save", "-restore")
)
_CAPPED: Final = """\
#!/usr/bin/python3 -I
import json, os, sys

for before, word in zip(sys.argv, sys.argv[1:]):
    if before in ("--bundle", "--process"):
        path = os.path.join(word, "config.json") if before == "--bundle" else word
        with open(path) as file:
            document = json.load(file)
        process = document.get("process", document)
        for names in process.get("capabilities", {}).values():
            names[:] = [name for name in names if name != "CAP_SYS_RESOURCE"]
        with open(path, "w") as file:
            json.dump(document, file)
os.execv("/usr/sbin/runc", ["runc", *sys.argv[1:]])
"""


@dataclass(frozen=True)
class Engine:
    """A running engine. ``holder``: the process whose namespaces it has."""

    holder: int
    folder: Path

    def command(self, *argv: str | Path) -> list[str]:
        """Return the command line that runs a program beside the engine, with programs of its packages."""
        return ["nsenter", f"--target={self.holder}", "--mount", "--net", "--", *map(str, argv)]

    @property
    def environment(self) -> dict[str, str]:
        """Variables of the commands: BuildKit has to be named before Docker 23."""
        return {
            "PATH": "/usr/sbin:/usr/bin:/sbin:/bin",
            "HOME": str(self.folder),
            "LC_ALL": "C.UTF-8",
            "DOCKER_BUILDKIT": "1",
            "COMPOSE_DOCKER_CLI_BUILD": "1",
        }

    def run(self, *argv: str | Path, stdin: Path | None = None, more: Mapping[str, str] | None = None) -> str:
        """Run a program to its end and return its standard output.

        Raises:
            AssertionError: it failed; with the end of its output.
        """
        with Path(stdin or os.devnull).open("rb") as given:
            done = subprocess.run(
                self.command(*argv),
                env=self.environment | dict(more or {}),
                stdin=given,
                capture_output=True,
                text=True,
                check=False,
            )
        assert done.returncode == 0, f"{argv}:\n{done.stdout[-4000:]}\n{done.stderr[-8000:]}"
        return done.stdout


@contextlib.contextmanager
def engine(folder: Path, how: How) -> Iterator[Engine]:
    """Run an engine with its data in an empty folder."""
    packages = debian.installed("engine", _PACKAGES, how)
    links, data, log = folder / "links", folder / "data", folder / "dockerd.log"
    (links / "sbin").mkdir(parents=True)
    (links / "lib/modules").mkdir(parents=True)
    for name, target in _LINKS:
        (links / "sbin" / name).symlink_to(target)
    capped = folder / "capped"
    capped.write_text(_CAPPED)
    capped.chmod(0o755)
    groups = f"trellis-engine-{os.getpid()}"
    lasting = ["setpriv", "--pdeathsig", "KILL"]
    space = [*lasting, "unshare", "--net", "--mount", "--propagation", "private", "--", "/bin/sh", "-ec", _NAMESPACE]
    with subprocess.Popen(
        [*space, "sh", str(links), str(packages), str(folder)], stdout=subprocess.PIPE, text=True
    ) as holder:
        made = Engine(holder.pid, folder)
        try:
            assert holder.stdout is not None
            assert holder.stdout.readline() == "ready\n"
            options = [f"--data-root={data}", f"--cgroup-parent=/{groups}"]
            if not _has(_SYS_RESOURCE):
                options += ["--add-runtime", f"capped={capped}", "--default-runtime=capped"]
            with log.open("wb") as output, _daemon(made, [*lasting, "dockerd", *options], output.fileno()) as daemon:
                _until_ready(made, daemon, log)
                yield made
        finally:
            holder.kill()
    for parent in (_GROUPS, *_GROUPS.iterdir()):
        if (parent / groups).is_dir():
            remove_groups(parent / groups)


@contextlib.contextmanager
def _daemon(made: Engine, argv: Sequence[str], output: int) -> Iterator[subprocess.Popen[bytes]]:
    with subprocess.Popen(
        made.command(*argv), env=made.environment, stdin=subprocess.DEVNULL, stdout=output, stderr=output
    ) as daemon:
        try:
            yield daemon
        finally:
            daemon.send_signal(signal.SIGTERM)
            try:
                daemon.wait(_END_SECONDS)
            except subprocess.TimeoutExpired:
                daemon.kill()
                raise


def _until_ready(made: Engine, daemon: subprocess.Popen[bytes], log: Path) -> None:
    deadline = time.monotonic() + _START_SECONDS
    requested = made.command("docker", "version")
    while subprocess.run(requested, env=made.environment, capture_output=True, check=False).returncode:
        assert daemon.poll() is None, log.read_text(errors="replace")[-4000:]
        assert time.monotonic() < deadline, log.read_text(errors="replace")[-4000:]
        time.sleep(0.1)


def _has(capability: int) -> bool:
    """Return whether programs of this machine can have a capability."""
    if sys.platform != "linux":
        return False
    [bound] = [line for line in Path("/proc/self/status").read_text().splitlines() if line.startswith("CapBnd:")]
    return bool(int(bound.split()[1], 16) >> capability & 1)
