"""The installer broken at each of its effects: killed, refused by the disk, or with a runtime that does not come up."""

from __future__ import annotations

import errno
import fcntl
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from node_installer.domain.inspection import Layout
from node_installer.domain.state import Phase, parse_journal
from node_installer.node import disk as disk_module
from node_installer.node.disk import Disk
from trellis.installer_api.result import FailureReason, InstallResult, Outcome
from unit.node_installer.world import Killed, World, a_shim, a_wanted_shim, a_world, snapshot

WRITES = (
    *("make_directory", "make_directories", "write", "put", "keep", "restore", "remove"),
    *("remove_directory", "remove_directories"),
)


class BreakingDisk(Disk):
    """A disk whose n-th effect fails, or is the last one before the process dies; the effect itself happens or not."""

    def __init__(self, root: Path, at: int, failure: Callable[[], BaseException], *, after: bool) -> None:
        super().__init__(root)
        self.at, self.failure, self.after, self.count = at, failure, after, 0

    def __getattribute__(self, name: str) -> Any:
        value = super().__getattribute__(name)
        if name not in WRITES:
            return value

        def effect(*arguments: Any, **named: Any) -> Any:
            self.count += 1
            if self.count == self.at and not self.after:
                raise self.failure()
            result = value(*arguments, **named)
            if self.count == self.at:
                raise self.failure()
            return result

        return effect


def broken(world: World, at: int, failure: Callable[[], BaseException], *, after: bool) -> BreakingDisk:
    disk = BreakingDisk(world.root, at, failure, after=after)
    world.disk = disk
    return disk


def mended(world: World) -> None:
    world.disk = Disk(world.root)
    world.runtime.disk = world.disk
    world.runtime.dies = None


def effects(tmp_path: Path, fixture: str, act: Callable[[World], InstallResult]) -> int:
    """Return how many effects on the disk an operation has."""
    world = a_world(tmp_path / "count", fixture)
    prepared(world, act)
    disk = broken(world, 0, Killed, after=True)
    assert act(world).ok
    return disk.count


def install(world: World) -> InstallResult:
    return world.install(
        a_wanted_shim(world.image), a_wanted_shim(world.image, handler="slight", content=a_shim("two"))
    )


def upgrade(world: World) -> InstallResult:
    options = {"containerdRuntimeOptions": {"A": "1"}}
    return world.install(a_wanted_shim(world.image, content=a_shim("new"), **options))


def uninstall(world: World) -> InstallResult:
    return world.uninstall()


def prepared(world: World, act: Callable[[World], InstallResult]) -> None:
    if act is not install:
        assert install(world).ok


@pytest.mark.thorough
@pytest.mark.parametrize(
    ("fixture", "act", "after"),
    [
        ("containerd-v2", install, False),
        ("containerd-v2", upgrade, True),
        ("containerd-v2", uninstall, False),
        ("containerd-v2-inline", uninstall, True),
        ("k3s-v3", upgrade, True),
        ("k0s-v2", install, True),
    ],
    ids=lambda value: getattr(value, "__name__", str(value)),
)
def test_killed_at_any_effect_the_next_run_finishes(
    fixture: str, act: Callable[[World], InstallResult], after: bool, tmp_path: Path
) -> None:
    total = effects(tmp_path, fixture, act)
    assert total > 5
    whole = a_world(tmp_path / "whole", fixture)
    prepared(whole, act)
    original = snapshot(a_world(tmp_path / "original", fixture).root)
    assert act(whole).ok
    wanted = snapshot(whole.root)
    for at in range(1, total + 1):
        world = a_world(tmp_path / f"{at}", fixture)
        prepared(world, act)
        broken(world, at, Killed, after=after)
        with pytest.raises(Killed):
            act(world)
        mended(world)
        result = act(world)
        assert result.ok, f"effect {at}: {result.message}"
        assert snapshot(world.root) == wanted, f"effect {at}"
        assert world.runtime.loaded == whole.runtime.loaded, f"effect {at}"
    # What follows is a function of tree and runtime, so it is enough to see it once.
    assert act(whole).outcome is Outcome.UNCHANGED
    assert whole.uninstall().ok
    assert snapshot(whole.root) == original


def test_killed_in_the_middle_of_a_write_nothing_unfinished_stays(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    real = disk_module._replace
    for at in range(1, 5):
        world = a_world(tmp_path / f"{at}")
        before = snapshot(world.root)
        count = iter(range(1, 100))

        def dying(*arguments: Any, at: int = at, count: Any = count) -> None:
            if next(count) == at:
                raise Killed
            real(*arguments)

        monkeypatch.setattr(disk_module, "_replace", dying)
        with pytest.raises(Killed):
            install(world)
        monkeypatch.setattr(disk_module, "_replace", real)
        assert install(world).ok
        assert not list(world.root.rglob("*partial*"))
        assert uninstall(world).ok
        assert snapshot(world.root) == before, f"write {at}"


@pytest.mark.parametrize("act", [install, upgrade, uninstall], ids=lambda act: act.__name__)
@pytest.mark.parametrize("tells", [True, False], ids=["tells", "mute"])
def test_killed_by_its_own_restart_the_next_run_finishes(
    act: Callable[[World], InstallResult], tells: bool, tmp_path: Path
) -> None:
    world = a_world(tmp_path, "k3s-v2")
    prepared(world, act)
    world.runtime.tells = tells
    before = world.runtime.restarts
    world.runtime.dies = Killed
    with pytest.raises(Killed):
        act(world)
    journal = parse_journal(world.disk.read(Layout("/opt/trellis").journal), "")
    assert journal is not None
    assert journal.phase is Phase.RESTARTING
    mended(world)
    assert act(world).ok
    # A runtime that tells its handlers came up with them: a second restart would disturb the node for nothing.
    # Of changed options it tells nothing, so there it takes one to be sure.
    assert world.runtime.restarts - before == (1 if tells and act is not upgrade else 2)
    assert act(world).outcome is Outcome.UNCHANGED


@pytest.mark.parametrize(
    ("act", "code"),
    [(install, errno.ENOSPC), (upgrade, errno.EIO), (install, errno.EROFS)],
    ids=["install-full", "upgrade-broken", "install-read-only"],
)
def test_an_effect_the_disk_refuses_leaves_the_node_untouched(
    act: Callable[[World], InstallResult], code: int, tmp_path: Path
) -> None:
    total = effects(tmp_path, "containerd-v2", act)
    refused = 0
    for at in range(1, total + 1):
        world = a_world(tmp_path / f"{at}", "containerd-v2")
        prepared(world, act)
        before = snapshot(world.root)
        restarts = world.runtime.restarts
        broken(world, at, lambda: OSError(code, os.strerror(code), "/somewhere"), after=False)
        result = act(world)
        mended(world)
        if result.ok or result.outcome is Outcome.ROLLED_BACK or world.runtime.restarts > restarts:
            continue  # after the restart: what is left to do is done by the next run
        refused += 1
        assert result.outcome is Outcome.FAILED
        assert os.strerror(code) in result.message
        assert snapshot(world.root) == before, f"effect {at}: {result.message}"
    assert refused > 5


def test_a_runtime_that_does_not_come_up_gets_its_former_configuration_back(tmp_path: Path) -> None:
    world = a_world(tmp_path)
    before, loaded = snapshot(world.root), world.runtime.loaded
    world.runtime.refuses = "spin"
    result = install(world)
    assert result.outcome is Outcome.ROLLED_BACK
    assert result.reason is FailureReason.RUNTIME_START_FAILED
    assert result.restarted, "its pods may have noticed"
    assert snapshot(world.root) == before
    assert world.runtime.loaded == loaded
    assert world.runtime.up
    assert world.runtime.restarts == 2


def test_a_configuration_file_that_is_a_mount_point_is_written_into_and_put_back(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nodes that are containers have it: neither rename nor link reach a file that is bound into them."""

    def refusing(effect: Callable[..., Any], code: int) -> Callable[..., Any]:
        def act(*paths: Path) -> Any:
            if any(path.name == "config.toml" for path in paths):
                raise OSError(code, os.strerror(code), str(paths[0]))
            return effect(*paths)

        return act

    monkeypatch.setattr(Path, "replace", refusing(Path.replace, errno.EBUSY))
    monkeypatch.setattr(os, "link", refusing(os.link, errno.EXDEV))
    world = a_world(tmp_path)
    before, inode = snapshot(world.root), (world.root / "etc/containerd/config.toml").stat().st_ino
    assert install(world).ok
    assert "spin" in world.read("/etc/containerd/config.toml")
    assert uninstall(world).ok
    assert snapshot(world.root) == before
    world.runtime.refuses = "spin"
    assert install(world).outcome is Outcome.ROLLED_BACK
    assert snapshot(world.root) == before
    assert (world.root / "etc/containerd/config.toml").stat().st_ino == inode


def test_an_upgrade_that_breaks_the_runtime_leaves_the_former_version(tmp_path: Path) -> None:
    world = a_world(tmp_path)
    assert install(world).ok
    before = snapshot(world.root)
    world.runtime.refuses = "fast"
    result = world.install(
        a_wanted_shim(world.image, content=a_shim("new")), a_wanted_shim(world.image, handler="fast")
    )
    assert result.outcome is Outcome.ROLLED_BACK
    assert snapshot(world.root) == before
    assert world.perform("verify").ok


def test_killed_while_rolling_back_the_next_run_rolls_back_first(tmp_path: Path) -> None:
    total = 60
    for at in range(1, total):
        world = a_world(tmp_path / f"{at}")
        before = snapshot(world.root)
        world.runtime.refuses = "spin"
        broken(world, at, Killed, after=True)
        try:
            result = install(world)
        except Killed:
            mended(world)
            result = install(world)
            # Killed when all was back already: then there is nothing left to do but to say so.
            over = result.reason is FailureReason.REFUSED_BEFORE
            assert over or result.outcome is Outcome.ROLLED_BACK, f"effect {at}: {result.message}"
        else:
            assert at > 20
            return
        assert snapshot(world.root) == before, f"effect {at}"
    pytest.fail("the disk never got through")


def test_a_runtime_that_stays_down_is_reported_loudly(tmp_path: Path) -> None:
    world = a_world(tmp_path)
    world.runtime.refuses = "runc"
    result = install(world)
    assert result.outcome is Outcome.ROLLED_BACK
    assert "either" in result.message


def test_a_shim_that_does_not_run_here_never_reaches_the_configuration(tmp_path: Path) -> None:
    world = a_world(tmp_path)
    before = snapshot(world.root)
    result = world.install(a_wanted_shim(world.image, content=a_shim("broken")))
    assert (result.outcome, result.reason) == (Outcome.FAILED, FailureReason.SHIM_NOT_EXECUTABLE)
    assert "GLIBC_2.38" in result.message
    assert "(ShimNotExecutable: " in world.progress[-1]
    assert not any("config.toml" in line for line in world.progress), "what was not begun is not said"
    assert snapshot(world.root) == before
    assert world.runtime.restarts == 0


def test_a_second_installer_waits_and_then_reports_it(tmp_path: Path) -> None:
    world = a_world(tmp_path)
    lock = world.root / "run" / "trellis-node-installer.lock"
    with lock.open("w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        result = install(world)
    assert result.reason is FailureReason.LOCKED
    assert install(world).ok, "the lock of a process that is gone holds nobody up"
    assert not lock.exists()


def test_sigterm_before_the_restart_rolls_everything_back(tmp_path: Path) -> None:
    world = a_world(tmp_path)
    before = snapshot(world.root)
    real = world.run

    def ending(command: Any, seconds: float) -> Any:
        assert world.session is not None
        world.session.interruption.requested = True
        return real(command, seconds)

    world.run = ending  # type: ignore[method-assign]
    result = install(world)
    assert result.reason is FailureReason.INTERRUPTED
    assert snapshot(world.root) == before
    assert world.runtime.restarts == 0


@pytest.mark.parametrize("name", ["state.json", "journal.json"])
@pytest.mark.parametrize("content", [b"", b"{", b"[]", b'{"version": 99}', b'{"version": 1}', b"\xff"])
def test_a_broken_state_is_refused_and_left_alone(name: str, content: bytes, tmp_path: Path) -> None:
    world = a_world(tmp_path)
    assert install(world).ok
    path = world.root / "opt/trellis/installer" / name
    path.write_bytes(content)
    for act in (install, uninstall):
        result = act(world)
        assert result.reason is FailureReason.STATE_UNREADABLE
        assert name in result.message
    assert path.read_bytes() == content


def test_a_damaged_shim_is_restored_without_a_restart(tmp_path: Path) -> None:
    world = a_world(tmp_path)
    assert install(world).ok
    (world.root / "opt/trellis/bin/containerd-shim-spin").write_bytes(b"rubbish")
    assert world.perform("verify").reason is FailureReason.VERIFICATION_FAILED
    assert install(world).outcome is Outcome.INSTALLED
    assert world.perform("verify").ok
    assert world.runtime.restarts == 1


def test_a_runtime_that_forgot_its_configuration_is_restarted(tmp_path: Path) -> None:
    world = a_world(tmp_path)
    assert install(world).ok
    del world.runtime.loaded["plugins"]["io.containerd.grpc.v1.cri"]["containerd"]["runtimes"]["spin"]
    result = install(world)
    assert result.restarted
    assert result.ok


@pytest.mark.skipif(os.geteuid() != 0, reason="mounting needs root")
def test_a_full_disk_is_refused_and_nothing_is_left(tmp_path: Path) -> None:
    world = a_world(tmp_path)
    small = world.root / "opt"
    small.mkdir(exist_ok=True)
    mounted = subprocess.run(["mount", "-t", "tmpfs", "-o", "size=64k", "tmpfs", small], check=False)
    if mounted.returncode != 0:
        pytest.skip("no tmpfs can be mounted here")
    try:
        before = snapshot(world.root)
        result = world.install(a_wanted_shim(world.image, content=a_shim("x" * 200_000)))
        assert result.reason is FailureReason.NO_SPACE
        assert "/opt/trellis" in result.message
        assert snapshot(world.root) == before
        subprocess.run(["mount", "-o", "remount,ro", small], check=True)
        assert world.install(a_wanted_shim(world.image)).ok, "the next directory of the table is used"
        assert world.disk.exists("/var/lib/trellis/bin/containerd-shim-spin")
    finally:
        subprocess.run(["umount", small], check=True)


def test_the_process_itself_killed_leaves_a_node_that_the_next_one_finishes(tmp_path: Path) -> None:
    """A real process and a real SIGKILL, from inside of the restart's command."""
    world = a_world(tmp_path)
    script = tmp_path / "killed.py"
    script.write_text(
        "import os, signal, sys\n"
        f"sys.path.insert(0, {str(Path(__file__).parents[2])!r})\n"
        "from pathlib import Path\n"
        "from unit.node_installer.test_faults import install\n"
        "from unit.node_installer.world import FakeRuntime, World\n"
        "from node_installer.node.disk import Disk\n"
        "class Deadly(FakeRuntime):\n"
        "    def restart(self, found, wanted):\n"
        "        os.kill(os.getpid(), signal.SIGKILL)\n"
        f"disk = Disk(Path({str(world.root)!r}))\n"
        f"install(World(disk.root, Path({str(world.image)!r}), Deadly(disk), disk))\n"
    )
    done = subprocess.run([sys.executable, script], check=False, capture_output=True, text=True)
    assert done.returncode == -9, done.stderr
    assert install(world).ok
    assert world.perform("verify").ok
    assert world.runtime.restarts == 1
