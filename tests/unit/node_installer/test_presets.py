"""Each distribution as a tree of files: what an installation makes of it, and that it is undone to the byte."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from node_installer.domain.presets import PRESETS
from node_installer.gather import inspect
from trellis.installer_api.result import FailureReason, Outcome
from unit.node_installer.world import DATA, World, a_wanted_shim, a_world, snapshot

REFUSED = ("talos", "bottlerocket", "cri-o")
FIXTURES = sorted(path.name for path in DATA.iterdir())
USABLE = [name for name in FIXTURES if name not in REFUSED]
OPTIONS = {"SystemdCgroup": "true", "ConfigPath": "/etc/spin.toml"}


def changed(world: World, before: dict[str, tuple[object, ...]]) -> dict[str, str]:
    """Return the text files that are new or other than before, without our state and shims."""
    base = inspect(world.disk, world.runtime.preset, world.runtime, world.run).base
    return {
        path: entry[0].decode()
        for path, entry in snapshot(world.root).items()
        if isinstance(entry[0], bytes) and before.get(path) != entry and not f"/{path}".startswith(base)
    }


@pytest.mark.parametrize("fixture", USABLE)
def test_the_result_is_the_expected_tree(fixture: str, tmp_path: Path, request: pytest.FixtureRequest) -> None:
    world = a_world(tmp_path, fixture)
    before = snapshot(world.root)
    result = world.install(a_wanted_shim(world.image, containerdRuntimeOptions=OPTIONS))
    assert result.ok, result.message
    found = changed(world, before)
    expected = DATA / fixture / "expected"
    if request.config.getoption("--update-golden"):
        for path, text in found.items():
            (expected / path).parent.mkdir(parents=True, exist_ok=True)
            (expected / path).write_bytes(text.encode())
    kept = {str(path.relative_to(expected)): path for path in expected.rglob("*") if path.is_file()}
    assert found == {path: file.read_bytes().decode() for path, file in kept.items()}


@pytest.mark.parametrize("fixture", USABLE)
def test_the_runtime_has_the_handler_of_trellis_and_all_former_ones(fixture: str, tmp_path: Path) -> None:
    world = a_world(tmp_path, fixture)
    before = world.runtime.runtimes()
    settings = {key: value for key, value in world.runtime.loaded.items() if key not in ("plugins", "version")}
    result = world.install(a_wanted_shim(world.image, containerdRuntimeOptions=OPTIONS))
    assert result.outcome is Outcome.INSTALLED, result.message
    after = world.runtime.runtimes()
    assert {handler: kind for handler, kind in after.items() if handler != "spin"} == before
    assert after["spin"].endswith("/bin/containerd-shim-spin")
    assert world.runtime.restarts == 1
    assert {key: world.runtime.loaded[key] for key in settings} == settings
    plugins = world.runtime.loaded["plugins"]
    [table] = [
        plugin["containerd"]["runtimes"]["spin"]
        for plugin in plugins.values()
        if "spin" in plugin.get("containerd", {}).get("runtimes", {})
    ]
    assert table["options"] == {"SystemdCgroup": True, "ConfigPath": "/etc/spin.toml"}


@pytest.mark.parametrize("fixture", USABLE)
def test_a_second_installation_does_nothing(fixture: str, tmp_path: Path) -> None:
    world = a_world(tmp_path, fixture)
    wanted = a_wanted_shim(world.image, containerdRuntimeOptions=OPTIONS)
    assert world.install(wanted).ok
    before = snapshot(world.root)
    result = world.install(wanted)
    assert result.outcome is Outcome.UNCHANGED
    assert snapshot(world.root) == before
    assert world.runtime.restarts == 1


@pytest.mark.parametrize("fixture", USABLE)
def test_uninstalling_leaves_the_node_as_it_was(fixture: str, tmp_path: Path) -> None:
    world = a_world(tmp_path, fixture)
    for path in world.root.rglob("*"):
        if path.is_file():
            path.chmod(0o640)
            os.setxattr(path, "user.trellis", b"kept")
            if os.geteuid() == 0:
                os.chown(path, 1234, 4321)
    world.runtime.load()
    before = snapshot(world.root)
    loaded = world.runtime.loaded
    wanted = a_wanted_shim(world.image, containerdRuntimeOptions=OPTIONS)
    assert world.install(wanted).ok
    result = world.uninstall(wanted)
    assert result.outcome is Outcome.REMOVED, result.message
    assert snapshot(world.root) == before
    assert world.runtime.loaded == loaded
    assert world.runtime.restarts == 2
    assert world.uninstall(wanted).outcome is Outcome.UNCHANGED


@pytest.mark.parametrize("fixture", USABLE)
def test_it_stays_correct_if_the_runtime_reports_nothing(fixture: str, tmp_path: Path) -> None:
    world = a_world(tmp_path, fixture)
    world.runtime.tells = False
    before = snapshot(world.root)
    wanted = a_wanted_shim(world.image)
    assert world.install(wanted).ok
    assert world.install(wanted).outcome is Outcome.UNCHANGED
    assert world.uninstall().ok
    assert snapshot(world.root) == before


@pytest.mark.parametrize("fixture", REFUSED)
@pytest.mark.parametrize("operation", ["install", "uninstall"])
def test_an_unsupported_node_is_refused_with_advice(fixture: str, operation: str, tmp_path: Path) -> None:
    world = a_world(tmp_path, fixture)
    before = snapshot(world.root)
    wanted = a_wanted_shim(world.image)
    result = world.install(wanted) if operation == "install" else world.uninstall(wanted)
    if operation == "install":
        assert result.reason is FailureReason.UNSUPPORTED_NODE
        assert fixture in result.message
        assert len(result.message) > 80
    else:
        assert result.outcome is Outcome.UNCHANGED
    assert snapshot(world.root) == before


@pytest.mark.parametrize(
    ("fixture", "command"),
    [
        ("containerd-v2", "systemctl restart containerd.service"),
        ("k3s-v2-own-template", "systemctl restart k3s-agent.service"),
        ("rke2-agent", "systemctl restart rke2-agent.service"),
        ("rke2-server", "systemctl restart rke2-server.service"),
        ("k0s-v3", "systemctl restart k0scontroller.service"),
        ("microk8s", "systemctl restart snap.microk8s.daemon-containerd.service"),
        ("k3d", "kill 1"),
        ("containerd-openrc", "rc-service containerd restart"),
        ("containerd-initd", "/etc/init.d/containerd restart"),
    ],
)
def test_each_init_has_its_command(fixture: str, command: str, tmp_path: Path) -> None:
    world = a_world(tmp_path, fixture)
    found = inspect(world.disk, world.runtime.preset, world.runtime, world.run)
    assert found.restart is not None
    assert " ".join(found.restart.command).endswith(command)


def test_every_preset_has_a_fixture() -> None:
    assert {preset.name for preset in PRESETS} <= {
        a_preset for name in FIXTURES for a_preset in [name, name.partition("-")[0], *name.split("-")[:1], "gke-cos"]
    } | {"cri-o"}


def test_on_a_read_only_opt_another_directory_is_used(tmp_path: Path) -> None:
    world = a_world(tmp_path, "gke-cos")
    assert world.install(a_wanted_shim(world.image)).ok
    assert world.disk.exists("/home/kubernetes/bin/trellis/bin/containerd-shim-spin")
    assert not world.disk.exists("/opt")


def test_a_file_that_is_lost_at_boot_is_pointed_out(tmp_path: Path) -> None:
    world = a_world(tmp_path, "eks-al2023")
    assert any("each boot" in text for text in world.install(a_wanted_shim(world.image)).warnings)


def test_containerds_own_config_flag_is_followed(tmp_path: Path) -> None:
    world = a_world(tmp_path)
    (world.root / "etc/other.toml").write_text("version = 2\n")
    folder = world.root / "proc" / "17"
    folder.mkdir(parents=True)
    (folder / "cmdline").write_bytes(b"/usr/bin/containerd\0--config=/etc/other.toml\0")
    assert inspect(world.disk, world.runtime.preset, world.runtime, world.run).config == "/etc/other.toml"


def test_a_symbolic_link_to_the_configuration_stays_one(tmp_path: Path) -> None:
    world = a_world(tmp_path)
    main = world.root / "etc/containerd/config.toml"
    main.rename(world.root / "etc/containerd/real.toml")
    main.symlink_to("/etc/containerd/real.toml")  # absolute: it means the node's root, not ours
    before = snapshot(world.root)
    assert world.install(a_wanted_shim(world.image)).ok
    assert main.is_symlink()
    assert "spin" in (world.root / "etc/containerd/real.toml").read_text()
    assert world.uninstall().ok
    assert snapshot(world.root) == before
