"""Optional parts of the chart as processes: real programs with the rendered arguments, variables and files.

In: a rendered container. Out: a process that runs, with other ports and directories. Called by tests.
"""

from __future__ import annotations

import re
import secrets
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path

from support.chart.rendered import Manifest
from trellis_dev.localcluster.guard import guard
from trellis_dev.localcluster.nats import NatsServer
from trellis_dev.localcluster.ports import LOOPBACK, free_ports
from trellis_dev.localcluster.processes import ProcessRecord, end, spawn
from trellis_dev.localcluster.readiness import wait_ready

SECONDS = 60.0


def container(found: Mapping[tuple[str, str, str], Manifest], kind: str, name: str) -> Manifest:
    """Return the one container of a workload in trellis-system."""
    [only] = found[kind, "trellis-system", name]["spec"]["template"]["spec"]["containers"]
    return dict(only)


def variables(runs: Manifest) -> list[str]:
    """Return the container's environment as ``env`` takes it."""
    return [f"{item['name']}={item['value']}" for item in runs["env"]]


@contextmanager
def running(argv: Sequence[str], directory: Path, ready: Callable[[], bool]) -> Iterator[ProcessRecord]:
    """Run a program until the block ends; it is ready when ``ready`` says so, and its log is in the directory."""
    directory.mkdir(parents=True, exist_ok=True)
    token = secrets.token_hex(16)
    # Should this process be killed, the program ends too.
    minder = guard(directory / "guarded", token)
    log = directory / "log"
    position = log.stat().st_size if log.exists() else 0
    process = spawn(list(argv), log=log, token=token)
    try:
        wait_ready(Path(argv[0]).name, ready, process, (log, position), SECONDS)
        yield process
    finally:
        end([process], grace=10.0)
        minder.abandon()


def lattice_server(conf: str, directory: Path) -> tuple[NatsServer, int]:
    """Return the lattices' server with the chart's configuration but port and store, and its port for leaves."""
    (leaf,) = free_ports(1)
    own, count = re.subn(r"(?s)port: 4222.*?\n}\n", "", conf, count=1)
    own, leaves = re.subn(r"port: 7422", f'listen: "{LOOPBACK}:{leaf}"', own)
    assert (count, leaves) == (1, 1), conf
    directory.mkdir(parents=True, exist_ok=True)
    file = directory / "nats.conf"
    file.write_text(own)
    return NatsServer(directory / "server", config=file), leaf
