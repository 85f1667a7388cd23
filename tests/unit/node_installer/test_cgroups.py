"""The cgroup driver of a shim's containers: that of the node, as far as containerd and the node permit it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from node_installer.domain.cgroups import CGROUP_V2, SYSTEM_BUS
from trellis.installer_api.result import FailureReason, Outcome
from unit.node_installer.world import World, a_wanted_shim, a_world, snapshot


@pytest.fixture
def world(tmp_path: Path) -> World:
    """A node whose driver is systemd."""
    world = a_world(tmp_path)
    world.runtime.systemd_cgroup = True
    (world.root / "run/dbus").mkdir(parents=True)
    (world.root / "run/dbus/system_bus_socket").touch()
    if not (world.root / "var/run").exists():
        (world.root / "var").mkdir(exist_ok=True)
        (world.root / "var/run").symlink_to("/run")
    assert world.disk.exists(SYSTEM_BUS)
    controllers = world.root / CGROUP_V2.lstrip("/")
    controllers.parent.mkdir(parents=True)
    controllers.touch()
    return world


def options(world: World) -> dict[str, Any]:
    [plugin] = [each for each in world.runtime.loaded["plugins"].values() if "containerd" in each]
    table: dict[str, Any] = plugin["containerd"]["runtimes"]["spin"]
    return dict(table.get("options", {}))


def test_a_shim_gets_the_driver_systemd_of_the_node(world: World) -> None:
    wanted = a_wanted_shim(world.image)
    result = world.install(wanted)
    assert result.outcome is Outcome.INSTALLED
    assert options(world) == {"SystemdCgroup": True}
    assert not result.warnings
    assert world.install(wanted).outcome is Outcome.UNCHANGED


def test_a_shim_keeps_its_own_driver_and_further_options(world: World) -> None:
    assert world.install(a_wanted_shim(world.image, containerdRuntimeOptions={"SystemdCgroup": "false"})).ok
    assert options(world) == {"SystemdCgroup": False}
    assert world.install(a_wanted_shim(world.image, containerdRuntimeOptions={"Level": "3"})).ok
    assert options(world) == {"Level": 3, "SystemdCgroup": True}


def test_a_node_with_the_driver_cgroupfs_gets_no_option(world: World) -> None:
    world.runtime.systemd_cgroup = False
    result = world.install(a_wanted_shim(world.image))
    assert options(world) == {}
    assert not result.warnings


@pytest.mark.parametrize("version", ["1.6.36", "v1.6.20~ds1"])
def test_containerd_that_does_not_pass_options_gets_none(world: World, version: str) -> None:
    world.runtime.version = version
    result = world.install(a_wanted_shim(world.image))
    assert options(world) == {}
    assert len(result.warnings) == 1


def test_a_node_without_d_bus_gets_none(world: World) -> None:
    (world.root / "run/dbus/system_bus_socket").unlink()
    result = world.install(a_wanted_shim(world.image))
    assert options(world) == {}
    assert len(result.warnings) == 1


def test_a_node_with_cgroup_v1_gets_none(world: World) -> None:
    (world.root / CGROUP_V2.lstrip("/")).unlink()
    result = world.install(a_wanted_shim(world.image))
    assert options(world) == {}
    assert len(result.warnings) == 1


def test_an_unresponsive_runtime_keeps_its_driver(world: World) -> None:
    assert world.install(a_wanted_shim(world.image)).ok
    before = snapshot(world.root)
    world.runtime.up = False
    assert world.install(a_wanted_shim(world.image)).reason is FailureReason.VERIFICATION_FAILED
    assert snapshot(world.root) == before
    assert world.runtime.restarts == 1
