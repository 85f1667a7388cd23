"""Imports, as containerd follows them: patterns, in every part of a path, and imports of imports."""

from __future__ import annotations

from pathlib import Path

import pytest

from node_installer.containerd import globs
from node_installer.domain.target import imported_name
from node_installer.gather import inspect
from trellis.installer_api.result import FailureReason, Outcome
from unit.node_installer.world import World, a_wanted_shim, a_world, snapshot

CRI = "io.containerd.grpc.v1.cri"
MAIN = "etc/containerd/config.toml"


def write(world: World, path: str, text: str) -> None:
    file = world.root / path.lstrip("/")
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(text)


def imported(world: World) -> tuple[str, ...]:
    return inspect(world.disk, world.runtime.preset, world.runtime, world.run).imported


@pytest.mark.parametrize(
    ("pattern", "name", "answer"),
    [
        ("*.toml", "a.toml", True),
        ("*.toml", ".toml", True),
        ("*.toml", "a.tom", False),
        ("[0-9]*.toml", "90-trellis.toml", True),
        ("[0-9]*.toml", "trellis.toml", False),
        ("[^0-9]*.toml", "trellis.toml", True),
        ("[!0]*.toml", "!x.toml", True),  # no negation for containerd
        ("[!0]*.toml", "x.toml", False),
        ("??-*.toml", "90-trellis.toml", True),
        ("a\\*", "a*", True),
        ("a\\*", "ab", False),
        ("[\\]]x", "]x", True),
        ("[a.+]x", ".x", True),
        ("[1.toml", "[1.toml", False),  # malformed
        ("[z-a]", "b", False),
        ("a.c", "abc", False),
        ("{a,b}", "a", False),
    ],
)
def test_a_pattern_matches_as_containerds_does(pattern: str, name: str, answer: bool) -> None:
    assert globs.matches(pattern, name) is answer


@pytest.mark.parametrize(
    ("pattern", "path"),
    [
        ("/e/conf.d/*.toml", "/e/conf.d/trellis.toml"),
        ("/e/conf.d/[0-9]*.toml", "/e/conf.d/90-trellis.toml"),
        ("/e/conf.d/??-*.toml", "/e/conf.d/90-trellis.toml"),
        ("/e/conf.d/*-runtime.toml", "/e/conf.d/trellis-runtime.toml"),
        ("/e/conf.d/*", "/e/conf.d/trellis.toml"),
        ("/e/conf.d/[a-c]*.toml", None),
        ("/e/conf.d/*.conf", None),
        ("/e/*/x.toml", None),
        ("/e/*/*.toml", None),
        ("/e/x.toml", None),
        ("/e/conf.d/[1*.toml", None),
    ],
)
def test_the_drop_in_of_trellis_matches_the_imports_pattern(pattern: str, path: str | None) -> None:
    assert imported_name(pattern) == path


@pytest.mark.parametrize("pattern", ["[0-9]*.toml", "[a-c]*.toml", "*.conf"])
def test_a_handler_is_imported_or_in_the_main_file(pattern: str, tmp_path: Path) -> None:
    world = a_world(tmp_path, "containerd-v3")
    text = world.read(f"/{MAIN}").replace("version = 3\n", "").replace("imports", "#imports")
    write(world, MAIN, f'version = 3\nimports = ["/etc/containerd/conf.d/{pattern}"]\n{text}')
    world.runtime.load()
    before = snapshot(world.root)
    result = world.install(a_wanted_shim(world.image))
    assert result.outcome is Outcome.INSTALLED, result.message
    assert world.runtime.restarts == 1
    assert world.disk.exists("/etc/containerd/conf.d/90-trellis.toml") == (pattern == "[0-9]*.toml")
    assert world.uninstall().ok
    assert snapshot(world.root) == before


def test_the_files_come_in_containerds_order(tmp_path: Path) -> None:
    world = a_world(tmp_path)
    patterns = '["/etc/z.d/*.toml", "/etc/*/c.toml", "own.toml"]'
    write(world, MAIN, f"version = 2\nimports = {patterns}\n")
    write(world, "/etc/z.d/1.toml", 'version = 2\nimports = ["nested.toml", "/etc/containerd/config.toml"]\n')
    write(world, "/etc/z.d/nested.toml", "version = 2\n")
    write(world, "/etc/a/c.toml", "version = 2\n")
    write(world, "/etc/b/c.toml", 'version = 2\nimports = ["/etc/deep/*.conf"]\n')
    write(world, "/etc/deep/x.conf", "version = 2\n")
    write(world, "/etc/containerd/own.toml", "version = 2\n")
    assert imported(world) == (
        "/etc/z.d/1.toml",
        "/etc/z.d/nested.toml",
        "/etc/a/c.toml",
        "/etc/b/c.toml",
        "/etc/containerd/own.toml",
        "/etc/deep/x.conf",
    )


@pytest.mark.parametrize("where", ["/etc/a/c.toml", "/etc/deep/x.conf"])
def test_a_handler_in_a_nested_import_is_found(where: str, tmp_path: Path) -> None:
    world = a_world(tmp_path)
    write(world, MAIN, 'version = 2\nimports = ["/etc/*/c.toml"]\n')
    write(world, "/etc/a/c.toml", 'version = 2\nimports = ["/etc/deep/*.conf"]\n')
    write(world, "/etc/deep/x.conf", "version = 2\n")
    write(world, where, world.read(where) + f'[plugins."{CRI}".containerd.runtimes.spin]\nruntime_type = "io.x.v2"\n')
    result = world.install(a_wanted_shim(world.image))
    assert result.reason is FailureReason.HANDLER_CONFLICT, result.message
    assert where in result.message


def test_containerd_1_obeys_the_last_file_it_reads(tmp_path: Path) -> None:
    world = a_world(tmp_path, "containerd-v2-overridden")
    text = world.read(f"/{MAIN}")
    write(
        world,
        MAIN,
        'version = 2\nimports = ["/etc/z.toml", "/etc/a.toml"]\n' + text.partition("\n[")[2].join(["[", ""]),
    )
    cri = f'version = 2\n[plugins."{CRI}".containerd.runtimes.runc]\nruntime_type = "io.containerd.runc.v2"\n'
    write(world, "/etc/z.toml", cri)
    write(world, "/etc/a.toml", cri)
    world.runtime.load()
    assert world.install(a_wanted_shim(world.image)).ok
    assert "spin" in world.read("/etc/a.toml")
    assert "spin" not in world.read("/etc/z.toml")
