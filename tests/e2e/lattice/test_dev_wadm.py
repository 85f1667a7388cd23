"""`trellis dev up --wadm` as a script uses it, and what ends its processes."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import psutil
import pytest

from support.suite.naming import lacking
from trellis_dev.localcluster import Lattices, LocalClusterError, down, kill, registry, restart, status, up
from trellis_dev.localcluster.nats_requests import request
from trellis_dev.localcluster.paths import Layout
from trellis_dev.localcluster.state import load_token
from trellis_dev.localcluster.supervisor import marked

OWNER = """
import sys
from trellis_dev.localcluster import Lattices, owned_cluster
with owned_cluster(lattices=Lattices()) as info:
    print(info.name, flush=True)
    sys.stdin.read()
"""


def eventually(check: Callable[[], object], seconds: float = 60) -> None:
    deadline = time.monotonic() + seconds
    while not check():
        assert time.monotonic() < deadline, "the condition did not come true in time"
        time.sleep(0.05)


@pytest.fixture(autouse=True, scope="module")
def own_state(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    with pytest.MonkeyPatch.context() as patch:
        path = tmp_path_factory.mktemp("state")
        patch.setenv("XDG_STATE_HOME", str(path))
        yield path
        for name in registry.names():
            down(name)


def trellis(*arguments: str, status: int = 0) -> str:
    """Run a command; return its standard output, or its error message."""
    done = subprocess.run(
        [sys.executable, "-m", "trellis_cli", *arguments], capture_output=True, text=True, check=False, timeout=2400
    )
    assert done.returncode == status, done.stderr
    return done.stdout if status == 0 else done.stderr


def host_says(nats_url: str, host: dict[str, Any]) -> dict[str, Any] | None:
    """Return the inventory of a host of ``dev status``; None if it does not answer."""
    port = int(nats_url.rpartition(":")[2])
    reply = request(port, f"wasmbus.ctl.v1.{host['lattice']}.host.get.{host['id']}")
    return json.loads(reply)["response"] if reply is not None else None


def runs(pid: int) -> bool:
    """Say whether a process runs; one that ended and that its adopter has not yet buried does not."""
    try:
        return bool(psutil.Process(pid).status() != psutil.STATUS_ZOMBIE)
    except psutil.NoSuchProcess:
        return False


def test_hosts_and_wadm_come_up_are_started_again_and_go_with_the_cluster() -> None:
    options = ["--wadm", "--wadm-hosts", "2", "--wadm-lattice", "blue", "--wadm-lattice", "green", "-o", "json"]
    found = json.loads(trellis("dev", "up", "--name", "wasm", *options, "--wadm-label", "zone=a"))
    assert found["lattices"] == ["blue", "green"]
    hosts = {host["name"]: host for host in found["lattice_hosts"]}
    assert set(hosts) == {"host-blue-0", "host-blue-1", "host-green-0", "host-green-1"}
    assert {"wadm", *hosts} <= set(found["pids"])
    for host in hosts.values():
        reported = host_says(found["nats_url"], host)
        assert reported is not None
        assert (reported["host_id"], reported["labels"]["zone"]) == (host["id"], "a")

    os.kill(found["pids"]["wadm"], signal.SIGKILL)
    os.kill(found["pids"]["host-blue-1"], signal.SIGKILL)
    eventually(lambda: not lacking(trellis("dev", "status"), "wadm, host-blue-1;", "trellis dev up --name wasm"))
    trellis("dev", "up", "--name", "wasm")
    [after] = json.loads(trellis("dev", "status", "-o", "json"))
    again = {host["name"]: host for host in after["lattice_hosts"]}
    assert after["pids"]["wadm"] != found["pids"]["wadm"]
    assert after["pids"]["host-green-0"] == found["pids"]["host-green-0"]
    assert again["host-green-0"] == hosts["host-green-0"]
    assert again["host-blue-1"]["id"] != hosts["host-blue-1"]["id"], "a host that starts is a new one"
    assert host_says(after["nats_url"], again["host-blue-1"]) is not None

    token = load_token(Layout.of("wasm"))
    assert token is not None
    trellis("dev", "down", "--name", "wasm")
    assert marked(token) == []
    assert not any(map(runs, after["pids"].values()))


def test_a_cluster_that_runs_gets_a_lattice_and_its_faults() -> None:
    try:
        plain = up("late")
        assert plain.lattices == ()
        with_lattice = up("late", lattices=Lattices())
        [host] = with_lattice.lattice_hosts
        assert with_lattice.pids["etcd"] == plain.pids["etcd"]
        assert up("late") == with_lattice

        kill("late", "wadm")
        assert "wadm" not in status("late")[0].pids
        port = int(with_lattice.nats_url.rpartition(":")[2])
        assert request(port, "wadm.api.default.model.get", seconds=1) is None
        restarted = restart("late", "wadm")
        assert json.loads(request(port, "wadm.api.default.model.get") or b"{}")["result"] == "success"
        assert restarted.pids[host.name] == with_lattice.pids[host.name]

        [renewed] = restart("late", host.name).lattice_hosts
        assert renewed.id != host.id
        restart("late", "nats-server")
        eventually(lambda: host_says(with_lattice.nats_url, renewed.model_dump()) is not None)
    finally:
        down("late")


def test_wadm_and_hosts_die_with_the_owner_of_their_cluster() -> None:
    owner = subprocess.Popen([sys.executable, "-c", OWNER], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    assert owner.stdout is not None
    layout = Layout.of(owner.stdout.readline().strip())
    token = load_token(layout)
    assert token is not None
    eventually(lambda: len(marked(token)) >= 8)
    owner.kill()
    owner.communicate(timeout=60)
    eventually(lambda: not layout.root.exists())
    assert marked(token) == []


def test_a_host_that_cannot_start_is_named_and_nothing_is_left(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("trellis_dev.localcluster.lattices.write_private", lambda path, _: path.write_text("nonsense"))
    with pytest.raises(LocalClusterError, match=r"\bhost-default-0 "):
        up("broken", lattices=Lattices())
    assert "broken" not in registry.names()


def test_a_lattice_that_cannot_be_is_refused_before_anything_starts() -> None:
    with pytest.raises(LocalClusterError, match=r"'a\.b'"):
        up("never", lattices=Lattices(names=("a.b",)))
    assert "never" not in registry.names()
