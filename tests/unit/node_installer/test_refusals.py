"""A runtime that does not come up, or a shim that breaks: undone, and not tried again and again."""

from __future__ import annotations

import json
import time
from collections.abc import Sequence
from pathlib import Path

import pytest

from node_installer.command_line import exit_code
from node_installer.domain import refusal
from node_installer.node.commands import Answer
from trellis.installer_api.result import FailureReason, InstallResult, Outcome
from unit.node_installer.world import Killed, World, a_shim, a_spec, a_wanted_shim, a_world, snapshot


def install(world: World, text: str = "one") -> InstallResult:
    return world.install(a_wanted_shim(world.image, content=a_shim(text)))


def refused(tmp_path: Path) -> World:
    """A node whose runtime has not come up with the shim."""
    world = a_world(tmp_path)
    world.runtime.refuses = "spin"
    assert install(world).outcome is Outcome.ROLLED_BACK
    assert world.runtime.restarts == 2
    return world


def test_the_same_is_not_tried_again(tmp_path: Path) -> None:
    world = refused(tmp_path)
    before = snapshot(world.root)
    for _ in range(3):
        result = install(world)
        assert result.reason is FailureReason.REFUSED_BEFORE
        assert refusal.PATH in result.message
        assert not result.restarted
    assert world.runtime.restarts == 2
    assert snapshot(world.root) == before


def test_a_rolled_back_installation_ends_its_job_and_a_retryable_failure_does_not(tmp_path: Path) -> None:
    world = a_world(tmp_path)
    world.runtime.refuses = "spin"
    assert exit_code(install(world)) == 2
    assert exit_code(install(world)) == 2
    cut_off = InstallResult("install", Outcome.ROLLED_BACK, FailureReason.INTERRUPTED)
    assert exit_code(cut_off) == 1
    assert exit_code(InstallResult("install", Outcome.FAILED, FailureReason.LOCKED)) == 1
    assert exit_code(InstallResult("install", Outcome.INSTALLED)) == 0


@pytest.mark.parametrize("change", ["version", "config", "forgotten", "hour", "garbage"])
def test_another_try_is_made_when_something_changed(change: str, tmp_path: Path) -> None:
    world = refused(tmp_path)
    remembered = world.root / refusal.PATH.lstrip("/")
    value = json.loads(remembered.read_text())
    match change:
        case "config":
            main = world.root / "etc/containerd/config.toml"
            main.write_text("# mended\n" + main.read_text())
        case "forgotten":
            remembered.unlink()
        case "hour":
            remembered.write_text(json.dumps({**value, "at": time.time() - refusal.HOLD_SECONDS}))
        case "garbage":
            remembered.write_text("[]")
    world.runtime.refuses = None
    result = install(world, "two" if change == "version" else "one")
    assert result.outcome is Outcome.INSTALLED, result.message
    assert not remembered.exists()


def test_a_user_may_request_a_retry_at_once(tmp_path: Path) -> None:
    world = refused(tmp_path)
    wanted = a_wanted_shim(world.image, content=a_shim("one"))
    again = json.dumps({**json.loads(a_spec(wanted)), "retryRefused": True})
    assert world.perform("install", again).outcome is Outcome.ROLLED_BACK
    assert world.runtime.restarts == 4
    assert install(world).reason is FailureReason.REFUSED_BEFORE  # that was one try, and it is remembered
    world.runtime.refuses = None
    assert world.perform("install", again).outcome is Outcome.INSTALLED


def test_skipped_parts_are_reported_by_inspect(tmp_path: Path) -> None:
    world = refused(tmp_path)
    world.progress.clear()
    world.perform("inspect")
    assert [line for line in "\n".join(world.progress).splitlines() if line.startswith("not retried ")] != []


def test_only_root_may_read_the_record_of_refusals(tmp_path: Path) -> None:
    world = refused(tmp_path)
    assert (world.root / refusal.PATH.lstrip("/")).stat().st_mode & 0o777 == 0o600


def test_a_runtime_that_does_not_come_up_with_its_former_configuration_may_be_tried_again(tmp_path: Path) -> None:
    world = a_world(tmp_path)
    real = world.runtime.load

    def load() -> None:
        real()
        world.runtime.up = False

    world.runtime.load = load  # type: ignore[method-assign]
    result = install(world)
    assert (result.outcome, result.reason) == (Outcome.ROLLED_BACK, FailureReason.RUNTIME_START_FAILED)
    assert not world.runtime.up
    world.runtime.load = real  # type: ignore[method-assign]
    world.runtime.load()
    assert install(world).outcome is Outcome.INSTALLED


def test_a_run_killed_while_the_runtime_goes_back_has_remembered_why(tmp_path: Path) -> None:
    world = a_world(tmp_path)
    world.runtime.refuses = "spin"
    real, calls = world.runtime.restart, []

    def restart(found: object, wanted: object) -> None:
        calls.append(wanted)
        if len(calls) == 2:
            raise Killed
        real(found, wanted)  # type: ignore[arg-type]

    world.runtime.restart = restart  # type: ignore[method-assign, assignment]
    with pytest.raises(Killed):
        install(world)
    assert install(world).reason is FailureReason.INTERRUPTED
    assert len(calls) == 3
    assert install(world).reason is FailureReason.REFUSED_BEFORE
    assert len(calls) == 3


def test_uninstalling_is_not_tried_again_and_again_either(tmp_path: Path) -> None:
    world = a_world(tmp_path)
    assert install(world).ok
    before = snapshot(world.root)
    restart = world.runtime.restart

    def failing(found: object, wanted: object) -> None:
        world.runtime.up = "spin" in world.read("/etc/containerd/config.toml")
        restart(found, wanted)  # type: ignore[arg-type]

    load = world.runtime.load
    world.runtime.load = lambda: None  # type: ignore[method-assign]
    world.runtime.restart = failing  # type: ignore[method-assign, assignment]
    assert world.uninstall().outcome is Outcome.ROLLED_BACK
    restarts = world.runtime.restarts
    assert world.uninstall().reason is FailureReason.REFUSED_BEFORE
    assert world.runtime.restarts == restarts
    assert snapshot(world.root) == before
    world.runtime.load = load  # type: ignore[method-assign]


def test_a_shim_that_breaks_after_the_restart_is_rolled_back(tmp_path: Path) -> None:
    world = a_world(tmp_path)
    before, loaded = snapshot(world.root), world.runtime.loaded
    requested = 0
    real = world.run

    def run(command: Sequence[str], seconds: float) -> Answer:
        nonlocal requested
        requested += command[0].endswith("containerd-shim-spin")
        return Answer(1, "Illegal instruction") if requested > 2 else real(command, seconds)

    world.run = run  # type: ignore[method-assign]
    result = install(world)
    assert result.outcome is Outcome.ROLLED_BACK
    assert result.reason is FailureReason.VERIFICATION_FAILED
    assert "Illegal instruction" in result.message
    assert [(shim.handler, shim.verified) for shim in result.shims] == [("spin", False)]
    assert snapshot(world.root) == before
    assert world.runtime.loaded == loaded
    assert install(world).reason in (FailureReason.REFUSED_BEFORE, FailureReason.SHIM_NOT_EXECUTABLE)
    assert world.runtime.restarts == 2


def test_a_later_version_that_cannot_be_verified_leaves_the_former(tmp_path: Path) -> None:
    world = a_world(tmp_path)
    assert install(world).ok
    before = snapshot(world.root)
    requested = 0
    real = world.run

    def run(command: Sequence[str], seconds: float) -> Answer:
        nonlocal requested
        requested += command[0].endswith("containerd-shim-spin")
        return Answer(1, "Illegal instruction") if requested > 2 else real(command, seconds)

    world.run = run  # type: ignore[method-assign]
    result = install(world, "two")
    assert result.outcome is Outcome.FAILED
    assert result.reason is FailureReason.VERIFICATION_FAILED
    assert not result.restarted
    assert snapshot(world.root) == before
