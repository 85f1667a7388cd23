"""`trellis dev up` leaves no process and no directory at any end."""

from __future__ import annotations

import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import psutil
import pytest

from trellis_dev.localcluster import LocalClusterError, cluster, down, registry, status
from trellis_dev.localcluster.commands import command
from trellis_dev.localcluster.paths import Layout
from trellis_dev.localcluster.processes import current
from trellis_dev.localcluster.state import load, load_token, save
from trellis_dev.localcluster.supervisor import marked

pytestmark = [pytest.mark.cluster, pytest.mark.nats, pytest.mark.thorough]

UP = [sys.executable, "-c", "from trellis_dev.commands.dev import app; app()", "up", "--name", "abandoned"]
OWNER = """
import sys
from trellis_dev.localcluster import owned_cluster
with owned_cluster() as info:
    print(info.name, flush=True)
    sys.stdin.read()
"""


def eventually(check: Callable[[], bool], seconds: float = 30) -> None:
    deadline = time.monotonic() + seconds
    while not check():
        assert time.monotonic() < deadline, "the condition did not come true in time"
        time.sleep(0.02)


@pytest.fixture(autouse=True)
def own_state(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    yield
    for name in registry.names():
        down(name)


def start_up(until: str) -> tuple[subprocess.Popen[bytes], Layout, str]:
    """Start `trellis dev up`; return when this component was started, with the token of the processes."""
    process = subprocess.Popen(UP, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE)
    layout = Layout.of("abandoned")

    def started() -> bool:
        assert process.poll() is None, "it ended by itself"
        state = load(layout)
        return state is not None and (until in state.processes or until == "directory")

    eventually(started)
    token = load_token(layout)
    assert token is not None
    return process, layout, token


def finish(process: subprocess.Popen[bytes]) -> str:
    _, stderr = process.communicate(timeout=30)
    return stderr.decode()


@pytest.mark.parametrize("until", ["directory", "etcd", "kube-apiserver", "kwok"])
def test_a_killed_up_leaves_nothing(until: str) -> None:
    process, layout, token = start_up(until)
    process.kill()
    finish(process)
    eventually(lambda: list(layout.root.parent.iterdir()) == [layout.root.parent / ".lock"])
    assert marked(token) == []


@pytest.mark.parametrize(("number", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143), (signal.SIGHUP, 129)])
def test_an_interrupted_up_cleans_up_before_it_ends_and_reports_it(number: signal.Signals, code: int) -> None:
    process, layout, token = start_up("kube-apiserver")
    process.send_signal(number)
    stderr = finish(process)
    assert process.returncode == code
    assert "cluster 'abandoned'" in stderr
    assert "Traceback" not in stderr
    assert not layout.root.exists()
    assert marked(token) == []


def test_with_the_supervisor_killed_too_the_next_command_cleans_up() -> None:
    process, layout, token = start_up("kube-apiserver")
    children = psutil.Process(process.pid).children()
    (supervisor,) = [child for child in children if "supervisor.py" in str(child.cmdline())]
    supervisor.kill()
    process.kill()
    finish(process)
    assert layout.root.exists()
    assert marked(token) != []

    assert status() == []

    assert not layout.root.exists()
    assert marked(token) == []


def test_a_cluster_dies_with_its_owner() -> None:
    owner = subprocess.Popen([sys.executable, "-c", OWNER], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    assert owner.stdout is not None
    name = owner.stdout.readline().strip()
    layout = Layout.of(name)
    token = load_token(layout)
    assert token is not None
    with pytest.raises(LocalClusterError, match=rf"'{name}' .* process {owner.pid}\b"):
        down(name)

    owner.kill()
    owner.communicate(timeout=30)

    eventually(lambda: not layout.root.exists())
    assert marked(token) == []


def test_a_failing_component_is_named_with_the_end_of_its_log_and_nothing_is_left(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def broken(tool: str, layout: Layout, ports: dict[str, int], **how: bool) -> list[str]:
        argv = command(tool, layout, ports, **how)
        return [*argv, "--no-such-flag"] if tool == "kube-apiserver" else argv

    monkeypatch.setattr("trellis_dev.localcluster.start.command", broken)
    with pytest.raises(LocalClusterError, match=r"(?s)kube-apiserver ended.*no-such-flag"):
        cluster.up("broken")
    assert registry.names() == []


def test_a_recycled_pid_is_never_signalled() -> None:
    layout, state, guard = registry.claim("recycled", owned=False, audit=False)
    assert guard is not None
    bystander = subprocess.Popen(["sleep", "60"])
    try:
        state.processes["etcd"] = current().model_copy(update={"pid": bystander.pid})
        save(layout, state)
        registry.discard(layout, state, guard)
        assert bystander.poll() is None
        assert not layout.root.exists()
    finally:
        bystander.kill()
        bystander.wait()


def test_two_ups_of_one_name_do_not_meet() -> None:
    process, _, _ = start_up("etcd")
    with pytest.raises(LocalClusterError, match=rf"'abandoned' .* process {process.pid}\b"):
        cluster.up("abandoned")
    process.kill()
    finish(process)


def test_a_directory_without_a_state_is_no_obstacle() -> None:
    Layout.of("remains").root.mkdir(parents=True)
    assert status() == []
    assert registry.names() == []
