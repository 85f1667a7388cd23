"""The effect of a forced removal on the processes of a shim: real processes, and the machine's own /proc."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from node_installer.domain.actions import RestartRuntime
from node_installer.domain.inspection import Inspection
from node_installer.node import processes
from node_installer.timings import EndingTimings, Timings
from support.suite.naming import lacking
from trellis.installer_api.result import FailureReason, InstallResult, Outcome
from unit.node_installer.world import World, a_wanted_shim, a_world

SHIM = "opt/trellis/bin/containerd-shim-spin"
NAME = "containerd-shim"
"""All that fits of a shim's name."""
WAITS = "echo ready; read _"
DEAF = f"trap '' TERM; {WAITS}"
PATIENT = Timings(ending=EndingTimings(term=60.0, kill=60.0))


class Started:
    """Starts processes and ends those that are left."""

    def __init__(self, stack: ExitStack) -> None:
        self._stack = stack

    def __call__(self, program: Path, script: str = WAITS, *arguments: str) -> subprocess.Popen[str]:
        """Run a script with a copy of the shell, and return once it runs."""
        command = ["sh", "-c", script, "sh", *arguments]
        process = subprocess.Popen(
            command, executable=program, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )
        self._stack.callback(self._end, process)
        assert process.stdout is not None
        assert process.stdout.readline() == "ready\n"
        return process

    @staticmethod
    def _end(process: subprocess.Popen[str]) -> None:
        process.kill()
        process.communicate()


@pytest.fixture
def start() -> Iterator[Started]:
    with ExitStack() as stack:
        yield Started(stack)


@pytest.fixture
def world(tmp_path: Path) -> World:
    """A node with a shim that can be run, this machine's processes, and time enough for them on a busy one."""
    world = a_world(tmp_path)
    world.timings = PATIENT
    (world.root / "proc").symlink_to("/proc")
    assert world.install(shell_shim(world)).ok
    return world


def shell_shim(world: World, more: bytes = b"") -> dict[str, object]:
    shell = shutil.which("sh")
    assert shell is not None
    return a_wanted_shim(world.image, content=Path(shell).resolve().read_bytes() + more)


def forced(world: World) -> InstallResult:
    return world.uninstall({"name": "spin", "owner": "shim/spin"}, force=True)


def at_restart(world: World, do: Callable[[], object]) -> None:
    """Have something done just before the runtime's restart."""
    restart = world.runtime.restart

    def wrapped(found: Inspection, wanted: RestartRuntime) -> None:
        do()
        restart(found, wanted)

    world.runtime.restart = wrapped  # type: ignore[method-assign]


def has_ended(process: subprocess.Popen[str]) -> bool:
    return process.poll() is not None


def test_force_ends_what_runs_the_shim_after_the_restart_and_nothing_else(world: World, start: Started) -> None:
    elsewhere = world.root / "home" / Path(SHIM).name
    elsewhere.parent.mkdir(exist_ok=True)
    shutil.copy2(world.root / SHIM, elsewhere)
    linked = elsewhere.with_name("linked")
    linked.hardlink_to(world.root / SHIM)
    others = [start(elsewhere), start(linked)]
    ours = [start(world.root / SHIM) for _ in range(2)]
    deleted: list[bool] = []
    at_restart(world, lambda: deleted.extend(map(has_ended, ours)))
    result = forced(world)
    assert result.outcome is Outcome.REMOVED, result.message
    # A containerd that starts while shims are dead may never come up.
    assert deleted == [False, False]
    assert [process.wait(10) for process in ours] == [-signal.SIGTERM] * 2
    assert not any(map(has_ended, others))
    assert sorted((item.pid, item.name, item.killed) for item in result.ended) == sorted(
        (process.pid, NAME, False) for process in ours
    )
    assert f"{NAME} (pid {ours[0].pid})" in result.message
    assert result.warnings == ()
    assert not (world.root / SHIM).exists()


def test_without_force_nothing_ends_and_the_removal_is_refused(world: World, start: Started) -> None:
    process = start(world.root / SHIM)
    result = world.uninstall({"name": "spin", "owner": "shim/spin"})
    assert result.reason is FailureReason.SHIMS_IN_USE
    assert str(process.pid) in result.message
    assert "--force" in result.message
    assert not has_ended(process)


def test_a_plan_names_what_would_end_and_ends_nothing(world: World, start: Started) -> None:
    process = start(world.root / SHIM)
    result = world.uninstall({"name": "spin", "owner": "shim/spin"}, force=True, dry_run=True)
    assert result.outcome is Outcome.PLANNED
    assert result.ended == ()
    plan = world.progress[-1].splitlines()
    [before, after] = [number for number, line in enumerate(plan) if line.startswith("# end ") and f"/{SHIM}" in line]
    assert lacking(plan[before], f"{NAME} (pid {process.pid})") == []
    assert lacking(plan[after], "SIGTERM", "SIGKILL") == []
    assert before < plan.index(next(line for line in plan if line.startswith("# restart "))) < after
    assert not has_ended(process)


def test_processes_of_a_former_version_in_the_same_place_end_too(world: World, start: Started) -> None:
    process = start(world.root / SHIM)
    assert world.install(shell_shim(world, b"another version")).ok
    assert os.readlink(f"/proc/{process.pid}/exe").endswith(" (deleted)")  # noqa: PTH115
    result = forced(world)
    assert [item.pid for item in result.ended] == [process.pid]
    assert has_ended(process)


def test_processes_of_a_shim_whose_file_was_lost_keep_it_and_end_by_force(world: World, start: Started) -> None:
    process = start(world.root / SHIM)
    (world.root / SHIM).unlink()
    assert world.uninstall({"name": "spin", "owner": "shim/spin"}).reason is FailureReason.SHIMS_IN_USE
    assert [item.pid for item in forced(world).ended] == [process.pid]


def test_a_process_that_ignores_sigterm_is_killed(world: World, start: Started) -> None:
    world.timings = Timings(ending=EndingTimings(term=0.1, kill=60.0))
    process = start(world.root / SHIM, DEAF)
    result = forced(world)
    assert [(item.pid, item.killed) for item in result.ended] == [(process.pid, True)]
    assert "killed" in result.message
    assert process.wait(10) == -signal.SIGKILL


def test_a_process_started_after_the_node_was_read_ends_too(world: World, start: Started) -> None:
    first = start(world.root / SHIM)
    again: list[subprocess.Popen[str]] = []
    at_restart(world, lambda: again.append(start(world.root / SHIM)))
    result = forced(world)
    assert [item.pid for item in result.ended] == [first.pid, again[0].pid]
    assert has_ended(again[0])


def test_a_number_that_another_program_has_by_now_is_not_signalled(
    world: World, start: Started, monkeypatch: pytest.MonkeyPatch
) -> None:
    other = shutil.which("sleep")
    process = start(world.root / SHIM, f"{WAITS}; exec {other} 1000")
    real = os.pidfd_open

    def later(pid: int) -> int:
        if pid == process.pid:
            assert process.stdin is not None
            process.stdin.write("\n")
            process.stdin.flush()
            deadline = time.monotonic() + 20
            while Path(f"/proc/{pid}/exe").readlink() == world.root / SHIM:
                assert time.monotonic() < deadline
                time.sleep(0.01)
        return real(pid)

    monkeypatch.setattr(os, "pidfd_open", later)
    result = forced(world)
    assert result.outcome is Outcome.REMOVED
    assert result.ended == ()
    assert not has_ended(process)


def test_a_shim_that_cleans_up_behind_another_has_time_to_do_so(
    world: World, start: Started, monkeypatch: pytest.MonkeyPatch
) -> None:
    process = start(world.root / SHIM, WAITS, "-id", "x", "delete")
    monkeypatch.setattr(processes.time, "sleep", lambda _: process.communicate("\n"))
    result = forced(world)
    assert result.ended == ()
    assert process.returncode == 0


def test_a_process_that_may_not_be_ended_is_reported_and_its_files_are_removed(
    world: World, start: Started, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_: object) -> None:
        raise PermissionError(1, "Operation not permitted")

    world.timings = Timings(ending=EndingTimings(term=0.05, kill=0.05))
    monkeypatch.setattr(signal, "pidfd_send_signal", refuse)
    process = start(world.root / SHIM)
    result = forced(world)
    assert result.outcome is Outcome.REMOVED
    assert result.ended == ()
    [warning] = result.warnings
    assert str(process.pid) in warning
    assert "Operation not permitted" in warning
    assert not (world.root / SHIM).exists()


def test_in_its_own_pid_namespace_the_installer_ends_nothing_and_states_the_reason(
    world: World, start: Started
) -> None:
    process = start(world.root / SHIM)
    proc = world.root / "proc"
    proc.unlink()
    (proc / "self").mkdir(parents=True)
    (proc / "self/status").write_text("Name:\tpython\nNSpid:\t4711\t1\n")
    (proc / str(process.pid)).symlink_to(f"/proc/{process.pid}")
    result = forced(world)
    assert result.outcome is Outcome.REMOVED
    assert not has_ended(process)
    [warning] = result.warnings
    assert "hostPID" in warning
    assert str(process.pid) in warning


def test_a_program_of_a_container_that_only_has_the_path_is_let_be(world: World, start: Started) -> None:
    elsewhere = world.root / "container"
    shutil.copy2(world.root / SHIM, elsewhere)
    process = start(elsewhere)
    (world.root / "proc").unlink()
    world.running(process.pid, f"/{SHIM}")
    (world.root / "proc/self").mkdir()
    (world.root / "proc/self/status").write_text(f"NSpid:\t{os.getpid()}\n")
    result = forced(world)
    assert result.outcome is Outcome.REMOVED
    assert (result.ended, result.warnings) == ((), ())
    assert not has_ended(process)


def test_a_runtime_that_does_not_come_up_without_it_leaves_the_shim_and_its_processes(
    world: World, start: Started
) -> None:
    process = start(world.root / SHIM)
    restarts = world.runtime.restarts

    def fail() -> None:
        world.runtime.refuses = "runc" if world.runtime.restarts == restarts else None

    at_restart(world, fail)
    result = forced(world)
    assert result.outcome is Outcome.ROLLED_BACK
    assert result.ended == ()
    assert not has_ended(process)
    assert (world.root / SHIM).exists()


def test_ended_processes_are_reported_even_if_the_removal_fails_afterwards(
    world: World, start: Started, monkeypatch: pytest.MonkeyPatch
) -> None:
    process = start(world.root / SHIM)
    remove = world.disk.remove

    def fail(path: str) -> None:
        if path == f"/{SHIM}":
            raise OSError(5, "Input/output error", path)
        remove(path)

    monkeypatch.setattr(world.disk, "remove", fail)
    result = forced(world)
    assert result.outcome is Outcome.ROLLED_BACK
    assert f"ended {NAME} (pid {process.pid})" in result.message


def test_before_its_restart_the_runtime_stops_the_pods_of_the_shims(
    world: World, start: Started, monkeypatch: pytest.MonkeyPatch
) -> None:
    processes_of_pod = [start(world.root / SHIM, WAITS, "-namespace", "k8s.io", "-id", "a1") for _ in range(2)]

    def stop(sandboxes: tuple[str, ...]) -> None:
        assert sandboxes == ("a1",)
        for process in processes_of_pod:
            process.communicate("\n")

    deleted: list[bool] = []
    monkeypatch.setattr(world.runtime, "stop", stop)
    at_restart(world, lambda: deleted.extend(map(has_ended, processes_of_pod)))
    result = forced(world)
    assert deleted == [True, True]
    assert {process.returncode for process in processes_of_pod} == {0}
    assert {(item.pid, item.killed) for item in result.ended} == {(process.pid, False) for process in processes_of_pod}


def test_a_cleanup_that_hangs_does_not_keep_the_runtime_from_coming_up(world: World, start: Started) -> None:
    world.timings = Timings(ending=EndingTimings(cleanup=0.0, watch=0.01))
    pod = start(world.root / SHIM)
    cleanup = start(world.root / SHIM, DEAF, "-id", "a1", "delete")
    at_restart(world, lambda: cleanup.wait(60))
    result = world.install(shell_shim(world), a_wanted_shim(world.image, handler="wws"))
    assert result.ok, result.message
    assert cleanup.returncode == -signal.SIGKILL
    assert not has_ended(pod)
