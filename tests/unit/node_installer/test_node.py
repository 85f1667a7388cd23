"""The edges to the node: its runtime's socket, its commands, the trace, the program itself."""

from __future__ import annotations

import json
import os
import socket
import struct
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import pytest

from node_installer.domain.actions import Reason, RestartRuntime
from node_installer.domain.errors import InstallError
from node_installer.domain.inspection import Live
from node_installer.gather import find_preset, inspect
from node_installer.node import cri
from node_installer.node.commands import TIMED_OUT, Answer, on_node
from node_installer.node.disk import Disk
from node_installer.node.runtime import NodeRuntime
from node_installer.spans import Tracer
from node_installer.timings import RuntimeTimings
from node_installer.verify import check_runs
from trellis.installer_api.result import FailureReason, Outcome, parse_result
from unit.node_installer.servers import Answer as WebAnswer
from unit.node_installer.servers import serving
from unit.node_installer.world import World, a_shim, a_spec, a_wanted_shim, a_world, snapshot

TRACE = "4bf92f3577b34da6a3ce929d0e0e4736"
PARENT = "00f067aa0ba902b7"


def field(number: int, content: bytes) -> bytes:
    length = len(content)
    head = bytes([length]) if length < 128 else bytes([length & 0x7F | 0x80, length >> 7])
    return bytes([number << 3 | 2]) + head + content


def frame(kind: int, flags: int, stream: int, payload: bytes) -> bytes:
    return struct.pack(">I", len(payload))[1:] + bytes([kind, flags]) + struct.pack(">I", stream) + payload


@contextmanager
def listening(path: Path, answers: dict[str, bytes]) -> Iterator[None]:
    """A runtime's socket: HTTP/2 frames as gRPC servers send them, with a ping and in two pieces."""
    server = socket.socket(socket.AF_UNIX)
    server.bind(str(path))
    server.listen()

    def serve() -> None:
        while True:
            try:
                connection, _ = server.accept()
            except OSError:
                return
            with connection, suppress(OSError):  # who asked may have given up meanwhile
                requested = b""
                while b"RuntimeService/" not in requested:
                    requested += connection.recv(4096)
                name = requested.split(b"RuntimeService/")[1].split(b"\x10")[0].decode()
                if name not in answers:
                    continue
                body = b"\0" + struct.pack(">I", len(answers[name])) + answers[name]
                connection.sendall(frame(4, 0, 0, b"") + frame(6, 0, 0, b"12345678") + frame(1, 4, 1, b"\x88"))
                connection.sendall(frame(0, 0, 1, body[:7]) + frame(0, 8, 1, b"\x02" + body[7:] + b"\0\0"))
                connection.sendall(frame(1, 5, 1, b"\x00"))
                connection.settimeout(5)
                while connection.recv(4096):
                    pass

    thread = threading.Thread(target=serve, daemon=True)
    thread.start()
    try:
        yield
    finally:
        server.shutdown(socket.SHUT_RDWR)
        server.close()
        thread.join()


def status(config: Any) -> bytes:
    return field(1, b"") + field(2, field(1, b"config") + field(2, json.dumps(config).encode()))


VERSION = b"\x0a\x030.1" + field(2, b"containerd") + field(3, b"v2.1.4")


def test_a_runtime_reports_its_version_and_handlers(tmp_path: Path) -> None:
    config = {
        "containerd": {"runtimes": {"runc": {"runtimeType": "io.containerd.runc.v2"}, "spin": {"runtimeType": "/x"}}}
    }
    with listening(tmp_path / "s", {"Version": VERSION, "Status": status(config)}):
        live = cri.ask(tmp_path / "s", 5)
    assert live == Live("v2.1.4", {"runc": "io.containerd.runc.v2", "spin": "/x"})
    assert live.major == 2
    assert live.numbers == (2, 1, 4)


@pytest.mark.parametrize(
    ("default", "systemd"), [("runc", True), ("kata", False), ("none", False), ("other", False), (None, False)]
)
def test_a_runtime_reports_the_cgroup_driver_of_its_default(default: object, systemd: bool, tmp_path: Path) -> None:
    runtimes = {"runc": {"options": {"SystemdCgroup": True}}, "kata": {"options": {"SystemdCgroup": False}}, "none": {}}
    config = {"containerd": {"defaultRuntimeName": default, "runtimes": runtimes}}
    with listening(tmp_path / "s", {"Version": VERSION, "Status": status(config)}):
        live = cri.ask(tmp_path / "s", 5)
    assert live is not None
    assert live.systemd_cgroup is systemd


@pytest.mark.parametrize(
    "answers",
    [{}, {"Version": VERSION}, {"Version": b"\xff\xff", "Status": b""}],
)
def test_an_invalid_answer_is_none(answers: dict[str, bytes], tmp_path: Path) -> None:
    with listening(tmp_path / "s", answers):
        assert cri.ask(tmp_path / "s", 0.5) is None


def test_a_runtime_with_an_unexpected_answer_is_available(tmp_path: Path) -> None:
    for answer in ([], {}, {"containerd": 1}, {"containerd": {"runtimes": []}}):
        path = tmp_path / f"{len(list(tmp_path.iterdir()))}"
        with listening(path, {"Version": VERSION, "Status": status(answer)}):
            assert cri.ask(path, 5) == Live("v2.1.4", None)


def test_a_runtime_is_asked_to_stop_a_pod(tmp_path: Path) -> None:
    with listening(tmp_path / "s", {"StopPodSandbox": b""}):
        assert cri.stop(tmp_path / "s", "a1", time.monotonic() + 20)
        assert not cri.stop(tmp_path / "s", "a" * 128, time.monotonic() + 20)
    with listening(tmp_path / "t", {"Version": VERSION}):
        assert not cri.stop(tmp_path / "t", "a1", time.monotonic() + 0.5)
    assert not cri.stop(tmp_path / "nothing", "a1", time.monotonic() + 20)


def test_a_missing_socket_and_an_unresponsive_one_are_no_runtime(tmp_path: Path) -> None:
    assert cri.ask(tmp_path / "nothing", 0.5) is None
    with socket.socket(socket.AF_UNIX) as deaf:
        deaf.bind(str(tmp_path / "deaf"))
        deaf.listen()
        assert cri.ask(tmp_path / "deaf", 0.2) is None


def test_a_socket_with_a_long_path_is_reached(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = tmp_path / ("x" * 120)
    folder.mkdir()
    monkeypatch.chdir(folder)
    with listening(Path("s"), {"Version": VERSION, "Status": b""}):
        assert cri.ask(folder / "s", 5) == Live("v2.1.4", None)


WANTED = RestartRuntime({"spin": "/x"}, frozenset(), Reason.CONFIG_CHANGED, "")
WITH, WITHOUT = Live("1.7.0", {"spin": "/x"}), Live("1.7.0", {"runc": "r"})


def restarted(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, fixture: str, lives: list[Live | None], code: int
) -> Any:
    """Restart a node's runtime that answers so, call by call; the last answer stays."""
    commands: list[tuple[str, ...]] = []

    def run(command: Any, seconds: float) -> Answer:
        assert seconds > 0
        commands.append(tuple(command))
        return Answer(code, "Unit not found")

    monkeypatch.setattr(cri, "ask", lambda *_: lives.pop(0) if len(lives) > 1 else lives[0])
    world = a_world(tmp_path, fixture)
    found = inspect(world.disk, world.runtime.preset, world.runtime, world.run)
    NodeRuntime(tmp_path, run, 0.1, RuntimeTimings(probe=0.05, poll=0.0, reload=0.05)).restart(found, WANTED)
    return commands


def test_a_restart_waits_until_the_handler_is_there(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    commands = restarted(monkeypatch, tmp_path, "containerd-v2", [WITHOUT, None, None, WITHOUT, WITH], 0)
    assert commands == [("systemctl", "restart", "containerd.service")]


def test_k0s_reloads_itself_and_is_not_restarted(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    assert restarted(monkeypatch, tmp_path, "k0s-v3", [WITHOUT, WITHOUT, WITH], 0) == []


def test_k0s_that_does_not_is_restarted(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    def requested(*_: object) -> Live:
        return WITH if commands else WITHOUT

    commands: list[tuple[str, ...]] = []
    monkeypatch.setattr(cri, "ask", requested)
    world = a_world(tmp_path, "k0s-v3")
    found = inspect(world.disk, world.runtime.preset, world.runtime, world.run)

    def run(command: Any, seconds: float) -> Answer:
        del seconds
        commands.append(command)
        return Answer(0)

    NodeRuntime(tmp_path, run, 5, RuntimeTimings(poll=0.0, reload=0.01)).restart(found, WANTED)
    assert commands == [("systemctl", "restart", "k0scontroller.service")]


@pytest.mark.parametrize(
    ("lives", "code", "reason", "expected_text"),
    [
        ([None], 0, FailureReason.RUNTIME_START_FAILED, r"\b0\.1 s"),
        ([WITHOUT], 0, FailureReason.RUNTIME_START_FAILED, "another file"),
        ([None], 5, FailureReason.RESTART_FAILED, "Unit not found"),
    ],
)
def test_a_failed_restart_states_the_failure(
    lives: list[Live | None],
    code: int,
    reason: FailureReason,
    expected_text: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    with pytest.raises(InstallError, match=expected_text) as caught:
        restarted(monkeypatch, tmp_path, "containerd-v2", lives, code)
    assert caught.value.reason is reason


def test_a_shim_is_asked_in_both_ways_within_its_time() -> None:
    requested: list[tuple[tuple[str, ...], float]] = []

    def run(command: Any, seconds: float) -> Answer:
        requested.append((tuple(command), seconds))
        return Answer(0 if command[1] == "-info" else 2, "usage")

    assert check_runs(run, "/x", iter([0.0, 1.0, 4.0]).__next__) == ""
    assert requested == [(("/x", "-v"), 4.0), (("/x", "-info"), 1.0)]


@pytest.mark.parametrize("hangs", ["-v", "-info"])
def test_a_shim_that_does_not_end_for_containerd_either_is_refused(hangs: str) -> None:
    def run(command: Any, seconds: float) -> Answer:
        return Answer(TIMED_OUT, f"no end after {seconds:g} s") if command[1] == hangs else Answer(0, "Version: 1.2.3")

    with pytest.raises(InstallError, match=f"`{hangs}`") as caught:
        check_runs(run, "/x")
    assert caught.value.reason is FailureReason.SHIM_NOT_EXECUTABLE


def test_commands_time_out_and_name_the_missing_program(tmp_path: Path) -> None:
    run = on_node(Path("/"))
    assert run(("sh", "-c", "echo one; exit 3"), 5) == Answer(3, "one")
    assert run(("sleep", "60"), 0.1).code == 124
    assert run(("/no/such/thing",), 1).code == 127
    assert not on_node(tmp_path)(("true",), 5).ok, "without a node's first process there is nothing to enter"


@pytest.mark.parametrize(
    ("path", "content", "link", "expected"),
    [
        ("etc/x", "here", "/etc/y", "etc/y"),
        ("etc/x", "here", "../../../../etc/y", "etc/y"),
        ("etc/x", "here", "y", "etc/y"),
    ],
)
def test_links_never_lead_out_of_the_node(path: str, content: str, link: str, expected: str, tmp_path: Path) -> None:
    root = tmp_path / "node"
    (root / "etc").mkdir(parents=True)
    (root / expected).write_text(content)
    (root / path).symlink_to(link)
    disk = Disk(root)
    assert disk.read(f"/{path}") == content.encode()
    disk.write(f"/{path}", b"new")
    assert (root / expected).read_text() == "new"
    assert (root / path).is_symlink()


def test_a_link_in_a_circle_is_an_error(tmp_path: Path) -> None:
    (tmp_path / "x").symlink_to("x")
    with pytest.raises(OSError, match="symbolic"):
        Disk(tmp_path).read("/x")


def test_the_steps_are_spans_of_the_jobs_trace(tmp_path: Path) -> None:
    world = a_world(tmp_path)
    tracer = Tracer("http://nowhere", f"00-{TRACE}-{PARENT}-01", "1")
    world.perform("inspect")
    assert world.session is not None
    world.session.tracer = tracer
    assert world.install(a_wanted_shim(world.image)).ok
    payload = tracer._payload(TRACE)
    spans = payload["resourceSpans"][0]["scopeSpans"][0]["spans"]
    names = [span["name"] for span in spans]
    for name in (
        "Inspect",
        "Fetch",
        "PutShim",
        "ProbeShim",
        "WriteFile",
        "RestartRuntime",
        "Verify",
        "installer install",
    ):
        assert name in names
    root = spans[-1]
    assert root["parentSpanId"] == PARENT
    assert {span["parentSpanId"] for span in spans[:-1]} <= {span["spanId"] for span in spans}
    assert {span["traceId"] for span in spans} == {TRACE}
    with serving(lambda _: WebAnswer(405)) as server:
        tracer.endpoint = server.url
        assert tracer.send()


@pytest.mark.parametrize("traceparent", [None, "", "nonsense", f"00-{'0' * 32}-{PARENT}-01"])
def test_without_a_parent_nothing_is_sent(traceparent: str | None) -> None:
    tracer = Tracer("http://127.0.0.1:1", traceparent)
    with tracer.span("x"):
        pass
    assert tracer.send() == ""


@pytest.mark.parametrize(("flags", "always", "sends"), [("00", False, False), ("00", True, True), ("03", False, True)])
def test_an_unsampled_trace_is_omitted_unless_there_is_no_other_sender(flags: str, always: bool, sends: bool) -> None:
    with serving(lambda _: WebAnswer(body=b"{}")) as collector:
        tracer = Tracer(collector.url, f"00-{TRACE}-{PARENT}-{flags}", samples_always=always)
        with tracer.span("x"):
            pass
        assert tracer.send() == ""
    assert len(collector.requests) == int(sends)


def test_a_failed_step_carries_its_cause() -> None:
    tracer = Tracer("http://127.0.0.1:1", f"00-{TRACE}-{PARENT}-01")
    with pytest.raises(ValueError, match="why"), tracer.span("x"):
        raise ValueError("why")
    [span] = tracer._payload(TRACE)["resourceSpans"][0]["scopeSpans"][0]["spans"]
    assert span["status"] == {"code": 2, "message": "why"}
    assert "127.0.0.1" not in tracer.send()


@pytest.mark.parametrize(
    ("version", "target"),
    [
        ("1.6.20~ds1", "config.toml"),
        ("v1.6.29", "50-cri.toml"),
        ("1.7.15", "config.toml"),
        ("1.7.16", "50-cri.toml"),
        ("2.4.2+unknown", "trellis.toml"),
    ],
)
def test_entries_go_where_this_containerd_reads_them(version: str, target: str, tmp_path: Path) -> None:
    """Relative import patterns were not followed at first, then replaced whole sections, then merged."""
    world = a_world(tmp_path, "containerd-v2-overridden", version=version)
    world.perform("inspect")
    assert world.progress
    assert f"{target}, version 2" in world.progress[-1]


# --- the program ---


def program(*arguments: str | Path, **environment: str) -> subprocess.CompletedProcess[str]:
    kept = {name: value for name, value in os.environ.items() if name in ("PATH", "PYTHONPATH", "HOME")}
    return subprocess.run(
        [sys.executable, "-m", "node_installer", *map(str, arguments)],
        env={**kept, **environment},
        capture_output=True,
        text=True,
        check=False,
    )


def a_node(tmp_path: Path) -> World:
    return a_world(tmp_path, "containerd-v2")


def test_inspect_states_what_is_on_a_node(tmp_path: Path) -> None:
    world = a_node(tmp_path)
    before = snapshot(world.root)
    done = program("inspect", "--node-root", world.root, "-o", "json")
    assert done.returncode == 0, done.stderr
    assert "containerd.service" in done.stderr
    result = parse_result(done.stdout)
    assert result is not None
    assert (result.outcome, result.preset) == (Outcome.INSPECTED, "containerd")
    assert snapshot(world.root) == before


@pytest.mark.parametrize("operation", ["install", "uninstall"])
def test_a_dry_run_shows_a_diff_and_does_nothing(operation: str, tmp_path: Path) -> None:
    world = a_node(tmp_path)
    wanted = a_wanted_shim(world.image)
    if operation == "uninstall":
        assert world.install(wanted).ok
    before = snapshot(world.root)
    done = program(operation, "--dry-run", NODE_ROOT=str(world.root), TRELLIS_INSTALLER_SPEC=a_spec(wanted))
    assert done.returncode == 0, done.stderr
    sign = "+" if operation == "install" else "-"
    assert f'{sign}runtime_type = "/opt/trellis/bin/containerd-shim-spin"' in done.stderr
    assert "# restart " in done.stderr
    assert snapshot(world.root) == before


@pytest.mark.parametrize(
    ("arguments", "environment", "code", "expected_text"),
    [
        (("install", "--node-root", "/no/node", "--spec", '{"shims": []}'), {}, 1, "/no/node"),
        (("install", "--node-root", "/", "--spec", "{"), {}, 2, "not JSON"),
        (("install", "--node-root", "/", "--spec", "/no/spec.json"), {}, 2, "/no/spec.json"),
        (("install",), {"TRELLIS_INSTALLER_SPEC_FILE": "/no/file"}, 2, "/no/file"),
        (("uninstall",), {}, 2, "--all"),
        (("frobnicate",), {}, 2, "invalid choice"),
        ((), {}, 2, "operation"),
    ],
)
def test_errors_are_reported_in_plain_words(
    arguments: tuple[str, ...], environment: dict[str, str], code: int, expected_text: str
) -> None:
    done = program(*arguments, **environment)
    assert done.returncode == code, done.stderr
    assert expected_text in done.stderr
    assert "Traceback" not in done.stderr


def test_the_last_word_is_the_termination_message(tmp_path: Path) -> None:
    world = a_node(tmp_path)
    log = tmp_path / "termination-log"
    log.touch()
    spec = tmp_path / "spec.json"
    spec.write_text(a_spec({"name": "spin", "sources": [{"location": "/no/such/shim", "sha256": "0" * 64}]}))
    done = program("install", "--node-root", world.root, "--spec", spec, "--termination-log", log)
    assert done.returncode == 2
    result = parse_result(log.read_text())
    assert result is not None
    assert result.reason is FailureReason.NO_SOURCE
    assert result.message in done.stderr


def test_verify_finds_what_is_not_there(tmp_path: Path) -> None:
    world = a_world(tmp_path)
    wanted = a_wanted_shim(world.image)
    assert "not installed" in world.perform("verify", a_spec(wanted)).message
    assert world.install(wanted).ok
    assert world.perform("verify", a_spec(wanted)).outcome is Outcome.VERIFIED
    assert "version" in world.perform("verify", a_spec(a_wanted_shim(world.image, content=a_shim("new")))).message
    shim = world.root / "opt/trellis/bin/containerd-shim-spin"
    shim.chmod(0o644)
    assert "not executable" in world.perform("verify").message
    shim.unlink()
    assert "missing" in world.perform("verify").message
    assert world.install(wanted).ok
    world.runtime.up = False
    assert world.perform("verify").reason is FailureReason.VERIFICATION_FAILED
    world.runtime.up = True
    (world.root / "etc/containerd/config.toml").write_text("version = 2\n")
    assert world.perform("verify").reason is FailureReason.VERIFICATION_FAILED


def test_a_preset_can_be_named(tmp_path: Path) -> None:
    disk = a_world(tmp_path).disk
    assert find_preset(disk, "eks").name == "eks"
    with pytest.raises(InstallError, match="microk8s"):
        find_preset(disk, "nonsense")
    with pytest.raises(InstallError, match="mounted"):
        find_preset(Disk(tmp_path / "image"))
