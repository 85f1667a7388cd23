"""Entries of users in a node's files stay unchanged, and secrets in them are not shown."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from trellis.installer_api.result import Outcome
from unit.node_installer.world import World, a_shim, a_wanted_shim, a_world

MAIN = "/etc/containerd/config.toml"
STATE = "opt/trellis/installer/state.json"


def mode(world: World, path: str) -> int:
    return (world.root / path).stat().st_mode & 0o777


def edited(world: World, path: str, old: str, new: str) -> str:
    text = world.read(path)
    assert old in text
    world.disk.real(path).write_text(text.replace(old, new))
    return path


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ('imports = ["/etc/containerd/conf.d/*.toml"]', 'imports = ["/etc/company/*.toml"]'),
        ("version = 3\n", "version = 3\nroot = '/data'\n"),
        ("version = 3\n", "# ours\nversion = 3\n"),
    ],
    ids=["imports", "setting", "comment"],
)
def test_a_config_file_edited_by_a_user_keeps_the_edit(old: str, new: str, tmp_path: Path) -> None:
    world = a_world(tmp_path, "containerd-no-config", version="2.1.4")
    assert world.install(a_wanted_shim(world.image)).ok
    beginning = world.read(MAIN).partition("# >>>")[0]
    edited(world, MAIN, old, new)
    world.runtime.load()
    assert world.uninstall().ok
    assert world.read(MAIN) == beginning.replace(old, new)


def test_a_drop_in_edited_by_a_user_keeps_the_edit(tmp_path: Path) -> None:
    world = a_world(tmp_path, "containerd-v3-imports")
    assert world.install(a_wanted_shim(world.image)).ok
    [path] = [f"/{found.relative_to(world.root)}" for found in world.root.rglob("*trellis*.toml")]
    edited(world, path, "version = 3\n", 'version = 3\nimports = ["/x/*.toml"]\n')
    assert world.uninstall().ok
    assert world.read(path) == 'version = 3\nimports = ["/x/*.toml"]\n'


def test_the_state_holds_a_former_configuration_and_is_roots_alone(tmp_path: Path) -> None:
    world = a_world(tmp_path)
    main = world.root / MAIN.lstrip("/")
    main.write_text(main.read_text() + '[plugins."x"]\npassword = "hunter2"\n')
    main.chmod(0o600)
    world.runtime.load()
    assert world.install(a_wanted_shim(world.image)).ok
    assert mode(world, STATE) == 0o600
    assert world.install(a_wanted_shim(world.image, handler="wws")).ok
    assert mode(world, STATE) == 0o600
    assert mode(world, MAIN.lstrip("/")) == 0o600


@pytest.mark.parametrize("operation", ["install", "uninstall"])
def test_a_state_that_others_could_read_is_closed(operation: str, tmp_path: Path) -> None:
    world = a_world(tmp_path)
    spin, wws = a_wanted_shim(world.image), a_wanted_shim(world.image, handler="wws", content=a_shim("wws"))
    assert world.install(spin, wws).ok
    (world.root / STATE).chmod(0o644)
    result = world.install(spin, wws) if operation == "install" else world.uninstall(spin)
    assert result.ok
    assert mode(world, STATE) == 0o600
    assert world.runtime.restarts == (1 if operation == "install" else 2)
    assert set(json.loads(world.read(f"/{STATE}"))["shims"]) >= {"wws"}
    if operation == "install":
        assert world.install(spin, wws).outcome is Outcome.UNCHANGED
