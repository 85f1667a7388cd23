"""The removals of an uninstallation: by owner or by handler, and also of shims that a migration took over."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from support.suite.naming import lacking
from trellis.installer_api.result import FailureReason, InstallResult, Outcome
from unit.node_installer.test_owners import CRI, kwasm_on, rcm_on
from unit.node_installer.world import World, a_shim, a_wanted_shim, a_world, snapshot


def remove(world: World, name: str = "spin", **fields: Any) -> InstallResult:
    """Ask for a Shim's removal as it is asked when nothing of it is known any more but its name."""
    return world.uninstall({"name": name, "owner": f"shim/{name}", **fields})


def installed(world: World, handler: str, **fields: Any) -> None:
    assert world.install(a_wanted_shim(world.image, handler=handler, content=a_shim(handler), **fields)).ok


def with_owner(world: World, owner: str) -> None:
    """Let the node's state be of the time when every Shim had the same owner."""
    path = world.root / "opt/trellis/installer/state.json"
    state = json.loads(path.read_text())
    for shim in state["shims"].values():
        shim["owners"] = [owner]
    path.write_text(json.dumps(state, indent=1) + "\n")


def test_name_and_owner_select_every_handler_of_the_others(tmp_path: Path) -> None:
    world = a_world(tmp_path)
    before = snapshot(world.root)
    for handler in ("spin", "spin-next"):
        installed(world, handler, name="spin", owner="shim/spin")
    restarts = world.runtime.restarts
    result = remove(world)
    assert result.outcome is Outcome.REMOVED
    assert [shim.handler for shim in result.shims] == ["spin", "spin-next"]
    assert world.runtime.restarts == restarts + 1
    assert snapshot(world.root) == before


def test_other_shims_stay(tmp_path: Path) -> None:
    world = a_world(tmp_path)
    installed(world, "spin")
    installed(world, "wws")
    result = remove(world, handler="spin")
    assert [shim.handler for shim in result.shims] == ["spin"]
    assert set(world.runtime.runtimes()) == {"runc", "wws"}


def test_a_handler_that_is_named_is_all_that_goes(tmp_path: Path) -> None:
    world = a_world(tmp_path)
    for handler in ("spin", "spin-next"):
        installed(world, handler, name="spin", owner="shim/spin")
    assert [shim.handler for shim in remove(world, handler="spin-next").shims] == ["spin-next"]
    assert "spin" in world.runtime.runtimes()


@pytest.mark.parametrize("owner", ["shim/spin", "trellis"])
def test_with_one_owner_the_name_determines_the_owner(owner: str, tmp_path: Path) -> None:
    world = a_world(tmp_path)
    installed(world, "spin-h", name="spin")
    installed(world, "wws-h", name="wws")
    with_owner(world, "trellis")
    result = world.uninstall({"name": "spin", "owner": owner})
    assert [shim.handler for shim in result.shims] == ["spin-h"]
    assert set(world.runtime.runtimes()) == {"runc", "wws-h"}


def test_a_state_of_one_owner_gets_a_shims_own_one_with_its_next_version(tmp_path: Path) -> None:
    world = a_world(tmp_path)
    installed(world, "spin")
    with_owner(world, "trellis")
    result = world.install(a_wanted_shim(world.image, content=a_shim("new")))
    assert result.ok, result.message
    state = json.loads(world.read("/opt/trellis/installer/state.json"))
    assert state["shims"]["spin"]["owners"] == ["shim/spin"]


def test_another_shim_cannot_take_a_handler_of_that_one_owner(tmp_path: Path) -> None:
    world = a_world(tmp_path)
    installed(world, "spin")
    with_owner(world, "trellis")
    assert remove(world, "other", handler="spin").outcome is Outcome.UNCHANGED
    other = a_wanted_shim(world.image, content=a_shim("new"), name="other", owner="shim/other")
    assert world.install(other).reason is FailureReason.HANDLER_CONFLICT


def test_a_missing_shim_is_distinguished_from_a_removed_one(tmp_path: Path) -> None:
    world = a_world(tmp_path)
    before = snapshot(world.root)
    result = remove(world)
    assert result.outcome is Outcome.UNCHANGED
    assert result.shims == ()
    assert "'spin'" in result.message
    assert snapshot(world.root) == before
    installed(world, "wws")
    assert remove(world).outcome is Outcome.UNCHANGED
    assert world.runtime.restarts == 1


def test_the_removal_of_one_of_several_owners_is_reported(tmp_path: Path) -> None:
    world = a_world(tmp_path)
    installed(world, "spin")
    installed(world, "spin", owner="kwasm")
    result = remove(world)
    assert result.outcome is Outcome.REMOVED
    assert result.shims == ()
    [warning] = result.warnings
    assert lacking(warning, "'spin'", "kwasm") == []


@pytest.mark.parametrize("named", [{}, {"handler": "spin"}], ids=["by name", "by handler"])
def test_a_shim_taken_over_by_a_migration_is_removed_without_an_installation(
    named: dict[str, str], tmp_path: Path
) -> None:
    world = a_world(tmp_path)
    before = snapshot(world.root)
    rcm_on(world, "spin")
    result = remove(world, **named)
    assert result.outcome is Outcome.REMOVED, result.message
    assert [shim.handler for shim in result.shims] == ["spin"]
    assert world.runtime.restarts == 1
    assert set(world.runtime.runtimes()) == {"runc"}
    after = snapshot(world.root)
    main = "etc/containerd/config.toml"
    assert after.pop(main)[0].rstrip() == before.pop(main)[0].rstrip()
    assert after == before
    assert remove(world, **named).outcome is Outcome.UNCHANGED
    assert world.runtime.restarts == 1


def test_of_a_migrated_node_only_the_named_handler_goes(tmp_path: Path) -> None:
    world = a_world(tmp_path)
    rcm_on(world, "spin", "wws")
    installed(world, "slight")
    assert [shim.handler for shim in remove(world, handler="spin").shims] == ["spin"]
    assert set(world.runtime.runtimes()) == {"runc", "wws", "slight"}
    assert set(json.loads(world.read("/opt/rcm/rcm-lock.json"))["shims"]) == {"wws"}


def test_a_migrated_shim_that_runs_pods_stays_unless_forced(tmp_path: Path) -> None:
    world = a_world(tmp_path)
    kwasm_on(world)
    former = "/opt/kwasm/bin/containerd-shim-spin-v2"
    world.running(99, former)
    result = remove(world)
    assert result.reason is FailureReason.SHIMS_IN_USE
    assert "99" in result.message
    assert world.disk.exists(former)
    assert remove_with_force(world).outcome is Outcome.REMOVED
    assert not world.disk.exists("/opt/kwasm")


def remove_with_force(world: World) -> InstallResult:
    return world.uninstall({"name": "spin", "owner": "shim/spin"}, force=True)


def test_a_shim_that_k3s_finds_by_itself_is_removed_with_its_program_and_a_restart(tmp_path: Path) -> None:
    world = a_world(tmp_path, "k3s-v2")
    main = world.root / "var/lib/rancher/k3s/agent/etc/containerd/config.toml"
    binary = world.root / "opt/kwasm/bin/containerd-shim-spin-v2"
    binary.parent.mkdir(parents=True)
    binary.write_bytes(a_shim("kwasm's"))
    binary.chmod(0o755)
    plain = main.read_bytes()
    both = plain + f'[plugins."{CRI}".containerd.runtimes.spin]\nruntime_type = "io.x.spin.v2"\n'.encode()
    real = world.runtime._render

    def render() -> None:
        world.runtime.base = plain if not binary.exists() else both
        real()

    world.runtime._render = render  # type: ignore[method-assign]
    world.runtime.load()
    assert "spin" in world.runtime.runtimes()
    world.runtime.tells = False
    result = remove(world)
    assert result.outcome is Outcome.REMOVED, result.message
    assert world.runtime.restarts == 1
    assert not binary.exists()
    assert "spin" not in world.runtime.runtimes()


def test_a_shim_configured_by_hand_is_never_removed(tmp_path: Path) -> None:
    world = a_world(tmp_path)
    main = world.root / "etc/containerd/config.toml"
    main.write_text(main.read_text() + f'[plugins."{CRI}".containerd.runtimes.spin]\nruntime_type = "io.my.spin"\n')
    before = snapshot(world.root)
    result = remove(world)
    assert result.outcome is Outcome.UNCHANGED
    assert "stays" in result.message
    assert snapshot(world.root) == before


def test_everything_is_removed_even_if_the_target_is_unreadable(tmp_path: Path) -> None:
    world = a_world(tmp_path)
    installed(world, "spin")
    assert world.perform("uninstall", "{", everything=True).outcome is Outcome.REMOVED


def test_a_directory_that_was_there_before_stays(tmp_path: Path) -> None:
    world = a_world(tmp_path)
    (world.root / "opt/trellis/bin").mkdir(parents=True)
    before = snapshot(world.root)
    world.runtime.refuses = "spin"
    assert world.install(a_wanted_shim(world.image)).outcome is Outcome.ROLLED_BACK
    assert snapshot(world.root) == before
    world.runtime.refuses = None
    installed(world, "spin")
    installed(world, "wws")
    assert world.uninstall().ok
    assert snapshot(world.root) == before


def test_the_target_of_a_link_stays_although_a_killed_run_left_it_empty(tmp_path: Path) -> None:
    world = a_world(tmp_path)
    (world.root / "opt").mkdir(exist_ok=True)
    (world.root / "opt/trellis").symlink_to("/home/trellis")
    (world.root / "home/trellis/installer/backup").mkdir(parents=True)
    installed(world, "spin")
    assert world.uninstall().ok
    assert (world.root / "home/trellis").is_dir()
    assert not any((world.root / "home/trellis").iterdir())


def test_the_target_of_a_link_of_the_node_stays(tmp_path: Path) -> None:
    world = a_world(tmp_path)
    (world.root / "home/trellis").mkdir(parents=True)
    (world.root / "opt").mkdir(exist_ok=True)
    (world.root / "opt/trellis").symlink_to("/home/trellis")
    before = snapshot(world.root)
    installed(world, "spin")
    assert world.uninstall().ok
    assert snapshot(world.root) == before
