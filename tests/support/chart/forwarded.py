"""Reach a Service of a cluster from outside: `kubectl port-forward`, and `trellis` through it.

In: a Service and a port of it. Out: a port of this machine while a block runs, and what commands print. Called by tests
of installations. Invariant: nothing of Trellis' own settings comes from the test's shell.
"""

from __future__ import annotations

import base64
import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from support.chart.rendered import SYSTEM
from trellis_dev.localcluster import ClusterInfo


@contextmanager
def forwarded(cluster: ClusterInfo, service: str, port: int) -> Iterator[int]:
    """Return a port of this machine that leads to a Service of the installation while the block runs."""
    arguments = ["port-forward", "-n", SYSTEM, f"service/{service}", f":{port}"]
    command = [str(cluster.bin_dir / "kubectl"), "--kubeconfig", str(cluster.kubeconfig), *arguments]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        try:
            assert process.stdout is not None
            line = process.stdout.readline()
            assert line.startswith("Forwarding from 127.0.0.1:"), line
            yield int(line.split()[2].rpartition(":")[2])
        finally:
            process.terminate()


@dataclass(frozen=True)
class Outside:
    """The command line of a user with the kubeconfig, and the bus settings of the chart's notes.

    ``seconds``: the timeout of a command.
    """

    cluster: ClusterInfo
    seconds: float = 120

    def trellis(self, *arguments: str, **settings: str) -> str:
        """Run the command, and return what it printed; with ``TRELLIS_`` variables, named without that."""
        known = {"NAMESPACE": SYSTEM, "KUBECONFIG": str(self.cluster.kubeconfig), **settings}
        environment = {name: value for name, value in os.environ.items() if not name.startswith("TRELLIS_")}
        environment |= {f"TRELLIS_{name}": value for name, value in known.items()}
        done = subprocess.run(
            [sys.executable, "-m", "trellis_cli", *arguments],
            env=environment,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=self.seconds,
            check=False,
        )
        assert done.returncode == 0, f"trellis {' '.join(arguments)}: {done.stdout}{done.stderr}"
        return done.stdout

    @contextmanager
    def bus(self) -> Iterator[dict[str, str]]:
        """Return the settings for the bus, as the notes have them made, while the block runs.

        The chart before 0.3 had a password instead of a seed.
        """
        with tempfile.TemporaryDirectory() as folder, forwarded(self.cluster, "trellis-nats", 4222) as port:
            seed, password = self._secret("trellis-bus", "cli.nk"), self._secret("trellis-nats-cli", "password")
            user = f"cli:{password}@" if password and not seed else ""
            settings = {"NATS_URL": f"nats://{user}127.0.0.1:{port}"}
            if seed:
                file = Path(folder, "cli.nk")
                file.write_text(seed, encoding="utf-8")
                settings["NATS_NKEY_FILE"] = str(file)
            yield settings

    def _secret(self, name: str, key: str) -> str:
        arguments = ["get", "secret", "-n", SYSTEM, name, "--ignore-not-found", "-o", "json"]
        command = [str(self.cluster.bin_dir / "kubectl"), "--kubeconfig", str(self.cluster.kubeconfig), *arguments]
        found = subprocess.run(command, capture_output=True, text=True, check=True).stdout
        return base64.b64decode(json.loads(found)["data"][key]).decode() if found else ""

    def events(self) -> dict[str, dict[str, Any]]:
        """Return all events that the bus has, by their ids, as `trellis events replay` prints them."""
        with self.bus() as settings:
            output = self.trellis("events", "replay", "-o", "json", **settings)
        return {event["id"]: event for event in map(json.loads, output.splitlines())}
