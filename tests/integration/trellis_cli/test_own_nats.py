"""`trellis run --own-nats DIR`: a process that brings its bus along."""

from __future__ import annotations

import contextlib
import http
import json
import os
import signal
import subprocess
import sys
import time
import urllib.request
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from support.suite.typed import typed
from trellis.bus.connection.connection import REFUSED
from trellis_dev.localcluster import ClusterInfo
from trellis_dev.localcluster.ports import free_ports
from trellis_dev.localcluster.processes import ProcessRecord, alive, end, record_of
from trellis_dev.localcluster.readiness import nats_answers

pytestmark = [pytest.mark.cluster, pytest.mark.nats]
WAIT_SECONDS = 60


def wait(for_what: str, holds: Callable[[], bool]) -> None:
    deadline = time.monotonic() + WAIT_SECONDS
    while not holds():
        assert time.monotonic() < deadline, f"not within {WAIT_SECONDS} s: {for_what}"
        time.sleep(0.05)


@dataclass
class Standalone:
    """A trellis with its own bus in a directory."""

    directory: Path
    environment: dict[str, str]
    port: int
    process: subprocess.Popen[bytes] | None = None

    def start(self) -> subprocess.Popen[bytes]:
        command = [sys.executable, "-m", "trellis_cli", "run", "node-watcher", "--own-nats", str(self.directory)]
        with self.log.open("ab") as log:
            self.process = subprocess.Popen(
                [*command, "--health-port", str(self.port)], env=self.environment, stdout=log, stderr=log
            )
        return self.process

    @property
    def log(self) -> Path:
        return self.directory.with_name(f"trellis-{self.port}.log")

    @property
    def server(self) -> ProcessRecord:
        return ProcessRecord(**json.loads((self.directory / "process.json").read_bytes()))

    @property
    def server_port(self) -> int:
        first = (self.directory / "nats-server.conf").read_text().splitlines()[0]
        return int(first.rpartition(":")[2].strip('"'))

    def ready(self) -> bool:
        try:
            with urllib.request.urlopen(f"http://127.0.0.1:{self.port}/readyz", timeout=2) as answer:
                return bool(answer.status == http.HTTPStatus.OK)
        except OSError:
            return False

    def stored(self) -> bool:
        return any((self.directory / "store").rglob("TRELLIS_EVENTS"))


@pytest.fixture
def standalone(cluster: ClusterInfo, namespace: str, tmp_path: Path) -> Iterator[Standalone]:
    environment = {name: value for name, value in os.environ.items() if not name.startswith(("TRELLIS_", "KUBECONFIG"))}
    environment |= {"TRELLIS_KUBECONFIG": str(cluster.kubeconfig), "TRELLIS_NAMESPACE": namespace}
    environment["TRELLIS_CLAIM_NAMESPACE"] = namespace
    (port,) = free_ports(1)
    made = Standalone(tmp_path / "bus", environment, port)
    yield made
    if made.process is not None:
        end([record_of(made.process.pid)], grace=0)
        made.process.wait()
    with contextlib.suppress(FileNotFoundError):
        end([made.server], grace=0)


def test_a_process_starts_its_bus_and_stops_it(standalone: Standalone) -> None:
    process = standalone.start()
    wait("ready, with streams", lambda: standalone.ready() and standalone.stored())
    assert alive(standalone.server)
    assert standalone.directory.stat().st_mode & 0o077 == 0
    process.send_signal(signal.SIGTERM)
    assert process.wait(30) == 0
    assert not alive(standalone.server)


@pytest.mark.thorough
def test_a_server_that_died_comes_back_with_what_it_stored(standalone: Standalone) -> None:
    standalone.start()
    wait("ready, with streams", lambda: standalone.ready() and standalone.stored())
    former = standalone.server
    port = standalone.server_port
    os.kill(former.pid, signal.SIGKILL)
    wait("another server on the same port", lambda: standalone.server != former and nats_answers(port))
    assert standalone.stored()
    wait("ready again", standalone.ready)


@pytest.mark.thorough
@pytest.mark.skipif(sys.platform != "linux", reason="the kernel ends children of the killed on Linux")
def test_a_killed_process_leaves_no_server(standalone: Standalone) -> None:
    process = standalone.start()
    wait("ready", standalone.ready)
    server = standalone.server
    process.kill()
    process.wait()
    wait("the server is gone", lambda: not alive(server))
    again = standalone.start()
    wait("ready on the same store", standalone.ready)
    assert again.poll() is None


@pytest.mark.thorough
def test_a_directory_has_one_process(standalone: Standalone) -> None:
    standalone.start()
    wait("ready", standalone.ready)
    second = Standalone(standalone.directory, standalone.environment, free_ports(1)[0])
    assert second.start().wait(30) == 2
    assert f"--own-nats: {standalone.directory}" in second.log.read_text()
    assert alive(standalone.server)


@pytest.mark.thorough
def test_clients_without_the_password_are_refused(standalone: Standalone) -> None:
    process = standalone.start()
    wait("ready", standalone.ready)
    url = f"nats://127.0.0.1:{standalone.server_port}"
    stranger = typed(standalone.environment | {"TRELLIS_NATS_URL": url}, "events", "replay")
    assert stranger.returncode != 0
    assert REFUSED in stranger.stderr
    process.send_signal(signal.SIGTERM)
    password = (standalone.directory / "nats-server.conf").read_text().split("password: ")[1].split('"')[1]
    assert process.wait(30) == 0
    assert password not in standalone.log.read_text()


@pytest.mark.parametrize(
    ("arguments", "environment", "says"),
    [
        (["--nats-url", "nats://127.0.0.1:4222"], {}, "--nats-url"),
        ([], {"TRELLIS_NATS_NKEY_FILE": "seed"}, "TRELLIS_NATS_NKEY_FILE"),
    ],
    ids=["another bus is named", "a user of another bus is named"],
)
def test_conflicting_settings_are_refused(
    standalone: Standalone, tmp_path: Path, arguments: list[str], environment: dict[str, str], says: str
) -> None:
    seed = tmp_path / "seed"
    seed.write_text("SUAIBDPBAUTWCWBKIO6XHQNINK5FWJW4OHLXC3HQ2KFE4PEJUA44CNHTC4\n")
    seed.chmod(0o600)
    given = {name: str(seed) for name in environment}
    refused = typed(standalone.environment | given, "run", "--own-nats", str(standalone.directory), *arguments)
    assert refused.returncode == 2
    assert says in refused.stderr
    assert not standalone.directory.exists()
