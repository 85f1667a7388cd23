"""A node whose containerd is configured and run by k3s, in namespaces and with a root file system of its own.

In: an empty folder, the program of k3s. Out: a node that runs it, without access to other networks. Called by
``cluster`` (a real k3s) and ``stand_in`` (containerd alone). Needs the same as real nodes. systemd is replaced by two
scripts, as on all real nodes.
Invariant: everything of the node ends with the context, also if this process is killed, and its folder is deleted.
"""

from __future__ import annotations

import secrets
import shutil
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from trellis_dev.localcluster import debian
from trellis_dev.localcluster.building import How
from trellis_dev.localcluster.guard import guard
from trellis_dev.localcluster.processes import ProcessRecord, alive
from trellis_dev.localcluster.realnode import Start, first_process, make_disk, start_process
from trellis_dev.localcluster.realnode_faults import run_inside
from trellis_dev.localcluster.realnode_network import start_network

NODE: Final = "k3s-0"
MACHINE: Final = "machine"
"""k3s is a service of the node."""
CONTAINER: Final = "container"
"""k3s is the first process of the node, as in its image: with it the node ends."""
SERVICES: Final = "10.43.0.0/16"
"""Range of Services that k3s has by default."""
CONFIG: Final = "config.toml"
"""The configuration of containerd, which k3s renders; this and the next below :attr:`K3sNode.etc`."""
OWN: Final = {
    "config-v3.toml.d/node.toml": """\
version = 3

[plugins.'io.containerd.cri.v1.runtime']
restrict_oom_score_adj = true
""",
    "config.toml.d/node.toml": """\
version = 2

[plugins."io.containerd.grpc.v1.cri"]
restrict_oom_score_adj = true
""",
}
"""Files of the user of the node, which k3s imports, by version of the configuration. Without CAP_SYS_RESOURCE, which
some machines lack, containers cannot be protected from the OOM killer, as pods of k3s ask for."""
_RANCHER: Final = "disk/lib/containerd/rancher"
_ETC: Final = "k3s/agent/etc/containerd"
_UP: Final = 'msg="k3s is up and running"'
_SECONDS: Final = 600.0
_POLL: Final = 0.2
_HERE: Final = Path(__file__).parent


@dataclass
class K3sNode:
    """The node, started."""

    start: Start
    log: Path
    process: ProcessRecord = field(init=False)

    def __post_init__(self) -> None:
        self._start()

    @property
    def is_running(self) -> bool:
        """Whether the node has a first process."""
        return alive(self.process)

    @property
    def root(self) -> Path:
        """The root file system of the node, as it is mounted there."""
        return Path(f"/proc/{self._first().pid}/root")

    @property
    def pid(self) -> int:
        """The process ID of the first process, on this machine."""
        return self._first().pid

    @property
    def upper(self) -> Path:
        """Where this machine sees changes of the root file system, to read them."""
        return self.start.folder / "upper"

    @property
    def etc(self) -> Path:
        """Where this machine sees the directory of the configuration of containerd."""
        return self.start.folder / _RANCHER / _ETC

    def restart(self) -> None:
        """Start the node again after its end, as a container engine does, and wait until k3s runs."""
        self.until(lambda: not self.is_running, "k3s ends", running=False)
        self._start()

    def restart_service(self) -> None:
        """Restart k3s, as its user does."""
        self.run("systemctl", "restart", "k3s")

    def run(self, *argv: str, stdin: Path | None = None) -> str:
        """Run a program as root on the node; return its standard output.

        Raises:
            AssertionError: the node does not run, or the program failed.
        """
        done = run_inside(self._first(), argv, stdin)
        assert done.returncode == 0, f"{' '.join(argv)}: {done.stdout}{done.stderr}"
        return done.stdout

    def files(self) -> dict[str, bytes]:
        """Return the configuration of containerd: the contents of its files, by path below :attr:`etc`."""
        return {str(file.relative_to(self.etc)): file.read_bytes() for file in self.etc.rglob("*") if file.is_file()}

    def changed(self, before: Mapping[str, bytes]) -> set[str]:
        """Return the files of :meth:`files` that are not as before."""
        now = self.files()
        return {path for path in before.keys() | now.keys() if before.get(path) != now.get(path)}

    def service(self) -> str:
        """Return the process ID of the service."""
        return self.run("cat", "/run/node/k3s.pid").strip()

    def tail(self) -> str:
        """Return the end of the logs of k3s and of the start of the node."""
        logs = (self.start.folder / "disk/log/k3s.log", self.log)
        return "\n".join(log.read_text(errors="replace")[-3000:] for log in logs if log.exists())

    def until(self, check: Callable[[], bool], what: str, *, running: bool = True) -> None:
        """Wait until ``check`` succeeds; failures of commands count as not yet.

        Raises:
            AssertionError: it does not in time, or the node ended (``running``); with the end of the log of k3s.
        """
        deadline = time.monotonic() + _SECONDS
        while True:
            try:
                if check():
                    return
            except (AssertionError, StopIteration):  # no answer yet, or no such condition
                pass
            assert time.monotonic() < deadline, f"not within {_SECONDS:.0f} s: {what}: {self.tail()}"
            assert self.is_running or not running, f"the node ended: {self.tail()}"
            time.sleep(_POLL)

    def _start(self) -> None:
        before = self._starts()
        self.process = start_process(self.start, self.log)
        self.until(lambda: self._starts() > before, "k3s runs")

    def _starts(self) -> int:
        log = self.start.folder / "disk/log/k3s.log"
        return log.read_text(errors="replace").count(_UP) if log.exists() else 0

    def _first(self) -> ProcessRecord:
        inside = first_process(self.process)
        assert inside is not None, f"node {NODE} does not run: {self.tail()}"
        return inside


@contextmanager
def k3s_node(folder: Path, how: How, kind: str, files: Mapping[str, Path | str]) -> Iterator[K3sNode]:
    """Have a node for the time of a block.

    ``folder``: an empty one. ``files``: programs and configuration by path below the root; k3s is ``K3S[kind]`` there.
    A text can have ``{address}``, the address of the node.
    """
    token, home = secrets.token_hex(16), folder / "node"
    node = home / NODE
    make_disk(node)
    watcher = guard(home, token)
    try:
        hub, addresses = start_network(token, home / "network.log")
        network = {**addresses.settings(0), "INDEX": "0", "PEERS": "", "SERVICES": SERVICES}
        _write_lower(home / "lower", kind, files, network["ADDRESS"])
        _write_disk(node, network["ADDRESS"])
        yield K3sNode(
            Start(node, f"{home / 'lower'}:{debian.tree('node', how)}", network, hub, token), home / "node.log"
        )
    finally:
        watcher.abandon()


K3S: Final = {MACHINE: "usr/local/bin/k3s", CONTAINER: "usr/bin/k3s"}
"""Path of the program below the root; ``/bin`` is a link."""


def _write_lower(target: Path, kind: str, files: Mapping[str, Path | str], address: str) -> None:
    """Write the files of an installation of k3s, and what stands in for systemd on a machine."""
    scripts: dict[str, Path | str] = {"usr/lib/trellis-node/init": _HERE / "init.sh"}
    if kind == MACHINE:
        scripts["usr/bin/systemctl"] = _HERE / "systemctl.sh"
        scripts["etc/systemd/system/k3s.service"] = "[Service]\nExecStart=/usr/local/bin/k3s server\n"
    scripts["usr/lib/trellis-node/kind"] = f"{kind}\n"
    scripts["etc/resolv.conf"] = "# A node of a test: no name server.\n"
    for place, content in {**scripts, **files}.items():
        path = target / place
        path.parent.mkdir(parents=True, exist_ok=True)
        if isinstance(content, Path):
            shutil.copyfile(content, path)
            path.chmod(0o755)
        else:
            path.write_text(content.replace("{address}", address), encoding="utf-8")


def _write_disk(node: Path, address: str) -> None:
    """Write the files of the node itself: its name, its address, and those of its user."""
    own = {f"{_RANCHER}/{_ETC}/{name}": text for name, text in OWN.items()}
    own["upper/etc/hostname"] = f"{NODE}\n"
    own["upper/etc/hosts"] = f"127.0.0.1 localhost\n{address} {NODE}\n"
    own["upper/etc/machine-id"] = f"{secrets.token_hex(16)}\n"
    for place, text in own.items():
        (node / place).parent.mkdir(parents=True, exist_ok=True)
        (node / place).write_text(text, encoding="utf-8")
