"""A node whose containerd is configured and restarted as by k3s, without k3s, and the installer on it.

In: an empty folder. Out: the results of runs of the installer, and the handlers of the running containerd. Called by
tests of the installer. containerd is the real one; ``stand_in.sh`` stands in for k3s. It proves neither that k3s
starts nor that its own templates are as here.
"""

from __future__ import annotations

import hashlib
import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from node_installer.node import cri
from support.k3s.node import K3S, K3sNode, k3s_node
from trellis.installer_api.result import InstallResult, parse_result
from trellis.installer_api.spec import InstallSpec, Source, WantedShim, removal_of
from trellis_dev.localcluster import tools
from trellis_dev.localcluster.building import How
from trellis_dev.localcluster.wasmshim import shim

HANDLER: Final = "wasi"
SHIM: Final = f"/opt/trellis/bin/containerd-shim-{HANDLER}"
BASE: Final = "opt/trellis"
"""Directory of Trellis on the node, below its root."""
_SOCKET: Final = "run/k3s/containerd/containerd.sock"
_OWNER: Final = f"shim/{HANDLER}"
_PROBE_SECONDS: Final = 10.0
_PROGRAMS: Final = ("containerd", "containerd-shim-runc-v2", "ctr")


@dataclass(frozen=True)
class Run:
    """The end of a run: its exit code, negative for a signal, and its result, None if it wrote none."""

    code: int
    result: InstallResult | None


@dataclass(frozen=True)
class StandIn:
    """The node; ``shim``: the program that the installer installs."""

    node: K3sNode
    shim: Path

    def handlers(self) -> dict[str, str]:
        """Return the handlers of the running containerd, with what runs them."""
        live = cri.ask(self.node.root / _SOCKET, _PROBE_SECONDS)
        assert live is not None
        assert live.runtimes is not None
        return dict(live.runtimes)

    def install(self) -> Run:
        """Install the shim."""
        digest = hashlib.sha256(self.shim.read_bytes()).hexdigest()
        source = Source(str(self.shim), None, digest)
        return self._run("install", InstallSpec((WantedShim(HANDLER, HANDLER, digest, _OWNER, (source,)),)))

    def uninstall(self) -> Run:
        """Remove it."""
        return self._run("uninstall", InstallSpec((removal_of(HANDLER, _OWNER),)))

    def _run(self, operation: str, spec: InstallSpec) -> Run:
        """Run the installer in the pid namespace of the node, as its pod is, with the files of this machine."""
        term = self.node.log.with_name("termination")
        term.write_text("")  # the kubelet creates it
        command = [sys.executable, "-m", "node_installer", operation, f"--node-root={self.node.root}"]
        done = subprocess.run(
            ["nsenter", f"--target={self.node.pid}", "--pid", "--", *command, f"--termination-log={term}"],
            env={**os.environ, "TRELLIS_INSTALLER_SPEC": spec.to_json()},
            capture_output=True,
            text=True,
            check=False,
        )
        print(f"--- {operation}: {done.returncode}\n{done.stdout}{done.stderr}")  # noqa: T201 (for who reads a failure)
        return Run(done.returncode, parse_result(term.read_text(encoding="utf-8")))


@contextmanager
def stand_in(folder: Path, how: How, kind: str) -> Iterator[StandIn]:
    """Have a node for the time of a block. ``folder``: an empty one."""
    tools.ensure_all(_PROGRAMS, how.progress)
    files = {f"usr/bin/{name}": tools.cached(name) for name in _PROGRAMS}
    files[K3S[kind]] = Path(__file__).with_name("stand_in.sh")
    with k3s_node(folder, how, kind, files) as node:
        yield StandIn(node, shim(how))
