"""Several shims, several owners, and what other installers left."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from node_installer.containerd import config
from trellis.installer_api.result import FailureReason, Outcome
from unit.node_installer.world import World, a_shim, a_wanted_shim, a_world, sha256, snapshot

CRI = "io.containerd.grpc.v1.cri"


def kwasm_on(world: World, handler: str = "spin", folder: str = "opt/kwasm") -> None:
    """Create the files of KWasm's installer: a shim, a marker, an entry without any comment."""
    binary = world.root / folder / "bin" / f"containerd-shim-{handler}-v2"
    binary.parent.mkdir(parents=True, exist_ok=True)
    binary.write_bytes(a_shim("kwasm's"))
    binary.chmod(0o755)
    (world.root / folder / "active").touch()
    main = world.disk.real(world.runtime.preset.config)
    entry = f'\n[plugins."{CRI}".containerd.runtimes.{handler}]\n    runtime_type = "/{folder}/bin/{binary.name}"\n'
    main.write_text(main.read_text() + entry)
    world.runtime.base = main.read_bytes()
    world.runtime.load()


def rcm_comment(handler: str) -> str:
    """Return the comment of runtime-class-manager above an entry."""
    return f"# RCM runtime config for {handler}"


def rcm_on(world: World, *handlers: str) -> None:
    """Create the files of runtime-class-manager: shims, a lock file, entries below a comment."""
    folder = world.root / "opt/rcm"
    (folder / "bin").mkdir(parents=True)
    shims = {}
    main = world.root / "etc/containerd/config.toml"
    for handler in handlers:
        path = folder / "bin" / f"containerd-shim-{handler}"
        path.write_bytes(a_shim("rcm's"))
        path.chmod(0o755)
        shims[handler] = {"sha256": sha256(a_shim("rcm's")), "path": f"/opt/rcm/bin/{path.name}"}
        main.write_text(
            f"{main.read_text()}\n{rcm_comment(handler)}\n"
            f'[plugins."{CRI}".containerd.runtimes.{handler}]\nruntime_type = "/opt/rcm/bin/{path.name}"\n'
        )
    (folder / "rcm-lock.json").write_text(json.dumps({"shims": shims}, indent=1))
    world.runtime.load()


def test_several_shims_are_one_restart(tmp_path: Path) -> None:
    world = a_world(tmp_path)
    requested_shims = [
        a_wanted_shim(world.image, handler=name, content=a_shim(name)) for name in ("spin", "slight", "wws")
    ]
    assert world.install(*requested_shims).ok
    assert world.runtime.restarts == 1
    assert {"spin", "slight", "wws", "runc"} == set(world.runtime.runtimes())


def test_a_new_version_needs_no_restart(tmp_path: Path) -> None:
    world = a_world(tmp_path)
    assert world.install(a_wanted_shim(world.image)).ok
    before = world.read("/etc/containerd/config.toml")
    result = world.install(a_wanted_shim(world.image, content=a_shim("new")))
    assert result.outcome is Outcome.INSTALLED
    assert not result.restarted
    assert world.runtime.restarts == 1
    assert world.read("/etc/containerd/config.toml") == before
    assert world.disk.sha256("/opt/trellis/bin/containerd-shim-spin") == sha256(a_shim("new"))


def test_changed_options_are_a_restart(tmp_path: Path) -> None:
    world = a_world(tmp_path)
    assert world.install(a_wanted_shim(world.image)).ok
    assert world.install(a_wanted_shim(world.image, containerdRuntimeOptions={"Debug": "true"})).restarted
    assert world.runtime.loaded["plugins"][CRI]["containerd"]["runtimes"]["spin"]["options"] == {"Debug": True}


def test_a_shim_goes_with_its_last_owner(tmp_path: Path) -> None:
    world = a_world(tmp_path)
    before = snapshot(world.root)
    item, two = (a_wanted_shim(world.image, owner=owner) for owner in ("shim/spin", "kwasm"))
    assert world.install(item).ok
    assert world.install(two).ok
    assert world.runtime.restarts == 1
    result = world.uninstall(item)
    assert result.ok
    assert world.runtime.restarts == 1
    assert "spin" in world.runtime.runtimes()
    assert world.uninstall(two).outcome is Outcome.REMOVED
    assert snapshot(world.root) == before


def test_a_stranger_cannot_uninstall(tmp_path: Path) -> None:
    world = a_world(tmp_path)
    assert world.install(a_wanted_shim(world.image)).ok
    result = world.uninstall(a_wanted_shim(world.image, owner="someone"))
    assert result.outcome is Outcome.UNCHANGED
    assert "shim/spin" in result.warnings[0]


def test_two_owners_with_two_versions_are_refused(tmp_path: Path) -> None:
    world = a_world(tmp_path)
    assert world.install(a_wanted_shim(world.image)).ok
    before = snapshot(world.root)
    result = world.install(a_wanted_shim(world.image, content=a_shim("new"), owner="kwasm"))
    assert result.reason is FailureReason.HANDLER_CONFLICT
    assert "shim/spin" in result.message
    assert snapshot(world.root) == before


def test_a_handler_configured_by_hand_is_refused(tmp_path: Path) -> None:
    world = a_world(tmp_path)
    main = world.root / "etc/containerd/config.toml"
    main.write_text(main.read_text() + f'[plugins."{CRI}".containerd.runtimes.spin]\nruntime_type = "io.my.spin"\n')
    before = snapshot(world.root)
    result = world.install(a_wanted_shim(world.image))
    assert result.reason is FailureReason.HANDLER_CONFLICT
    assert "io.my.spin" in result.message
    assert snapshot(world.root) == before


@pytest.mark.parametrize("force", [False, True])
def test_shims_with_running_pods_are_not_removed_unless_forced(force: bool, tmp_path: Path) -> None:
    world = a_world(tmp_path)
    before = snapshot(world.root)
    assert world.install(a_wanted_shim(world.image)).ok
    world.running(4711, "/opt/trellis/bin/containerd-shim-spin")
    result = world.uninstall(force=force)
    if force:
        assert result.ok
        assert {path for path in snapshot(world.root) if not path.startswith("proc")} == set(before)
    else:
        assert result.reason is FailureReason.SHIMS_IN_USE
        assert "4711" in result.message
        assert "spin" in world.runtime.runtimes()


def test_concurrent_edits_stay(tmp_path: Path) -> None:
    world = a_world(tmp_path)
    main = world.root / "etc/containerd/config.toml"
    original = main.read_text()
    assert world.install(a_wanted_shim(world.image)).ok
    main.write_text("# edited by hand\n" + main.read_text() + '[debug]\nlevel = "debug"\n')
    assert world.uninstall().ok
    assert main.read_text() == "# edited by hand\n" + original + '[debug]\nlevel = "debug"\n'


def test_kwasms_shim_is_taken_over_and_not_doubled(tmp_path: Path) -> None:
    world = a_world(tmp_path)
    original = snapshot(world.root)
    kwasm_on(world)
    result = world.install(a_wanted_shim(world.image))
    assert result.ok, result.message
    assert "kwasm" in result.warnings[0]
    assert world.read("/etc/containerd/config.toml").count("runtimes.spin]") == 1
    assert world.runtime.runtimes()["spin"] == "/opt/trellis/bin/containerd-shim-spin"
    assert not world.disk.exists("/opt/kwasm")
    assert world.install(a_wanted_shim(world.image)).outcome is Outcome.UNCHANGED
    assert world.uninstall().ok
    after = snapshot(world.root)
    main = "etc/containerd/config.toml"
    assert after.pop(main)[0].rstrip() == original.pop(main)[0].rstrip()
    assert after == original


def test_a_former_shim_that_runs_pods_stays_until_nothing_runs_it(tmp_path: Path) -> None:
    world = a_world(tmp_path)
    kwasm_on(world)
    former = "/opt/kwasm/bin/containerd-shim-spin-v2"
    world.running(99, former)
    assert world.install(a_wanted_shim(world.image)).ok
    assert world.disk.exists(former)
    assert world.install(a_wanted_shim(world.image)).outcome is Outcome.UNCHANGED
    for file in (world.root / "proc/99").iterdir():
        file.unlink()
    (world.root / "proc/99").rmdir()
    assert world.install(a_wanted_shim(world.image)).ok
    assert not world.disk.exists(former)
    assert world.runtime.restarts == 1


def test_others_of_kwasm_stay(tmp_path: Path) -> None:
    world = a_world(tmp_path)
    kwasm_on(world)
    kwasm_on(world, "wws")
    assert world.install(a_wanted_shim(world.image)).ok
    assert world.runtime.runtimes()["wws"] == "/opt/kwasm/bin/containerd-shim-wws-v2"
    assert world.disk.exists("/opt/kwasm/bin/containerd-shim-wws-v2")
    assert world.disk.exists("/opt/kwasm/active")
    assert not world.disk.exists("/opt/kwasm/bin/containerd-shim-spin-v2")


def test_runtime_class_managers_books_are_kept_right(tmp_path: Path) -> None:
    world = a_world(tmp_path)
    rcm_on(world, "spin", "wws")
    assert world.install(a_wanted_shim(world.image)).ok
    assert set(json.loads(world.read("/opt/rcm/rcm-lock.json"))["shims"]) == {"wws"}
    assert rcm_comment("spin") not in world.read("/etc/containerd/config.toml")
    assert rcm_comment("wws") in world.read("/etc/containerd/config.toml")
    assert world.install(a_wanted_shim(world.image, handler="wws")).ok
    assert not world.disk.exists("/opt/rcm")
    assert set(world.runtime.runtimes()) == {"runc", "spin", "wws"}


def test_entries_that_kwasm_copied_into_a_template_are_taken_over(tmp_path: Path) -> None:
    world = a_world(tmp_path, "k3s-v2")
    kwasm_on(world)
    folder = world.root / "var/lib/rancher/k3s/agent/etc/containerd"
    (folder / "config.toml.tmpl").write_bytes((folder / "config.toml").read_bytes())
    assert world.install(a_wanted_shim(world.image)).ok
    template = (folder / "config.toml.tmpl").read_text()
    assert "kwasm" not in template
    assert config.runtimes_of_template(template)["spin"] == "/opt/trellis/bin/containerd-shim-spin"


def test_a_handler_that_k3s_defines_by_itself_from_kwasms_directory_is_not_defined_twice(tmp_path: Path) -> None:
    world = a_world(tmp_path, "k3s-v2")
    main = world.root / "var/lib/rancher/k3s/agent/etc/containerd/config.toml"
    binary = world.root / "opt/kwasm/bin/containerd-shim-spin-v2"
    binary.parent.mkdir(parents=True)
    binary.write_bytes(a_shim("kwasm's"))
    binary.chmod(0o755)
    plain = main.read_bytes()
    main.write_bytes(plain + f'[plugins."{CRI}".containerd.runtimes.spin]\nruntime_type = "io.x.spin.v2"\n'.encode())
    real = world.runtime._render

    def render() -> None:
        world.runtime.base = plain if not binary.exists() else main.read_bytes()
        real()

    world.runtime._render = render  # type: ignore[method-assign]
    result = world.install(a_wanted_shim(world.image))
    assert result.ok, result.message
    assert not binary.exists()
    assert world.runtime.runtimes()["spin"] == "/opt/trellis/bin/containerd-shim-spin"


def test_a_node_upgraded_to_containerd_2_moves_its_entries(tmp_path: Path) -> None:
    world = a_world(tmp_path, "k3s-v2")
    original = snapshot(world.root)
    assert world.install(a_wanted_shim(world.image)).ok
    folder = world.root / "var/lib/rancher/k3s/agent/etc/containerd"
    (folder / "config.toml.tmpl").unlink()  # what one does before such an upgrade
    modern = (world.root.parent / "modern").resolve()
    other = a_world(modern, "k3s-v3")
    world.runtime.base = other.runtime.base
    (folder / "config.toml").write_bytes(other.runtime.base)
    world.runtime.load()
    assert world.install(a_wanted_shim(world.image)).ok
    assert (folder / "config-v3.toml.tmpl").exists()
    assert not (folder / "config.toml.tmpl").exists()
    assert world.uninstall().ok
    after = {path for path in snapshot(world.root) if not path.startswith("var")}
    assert after == {path for path in original if not path.startswith("var")}
