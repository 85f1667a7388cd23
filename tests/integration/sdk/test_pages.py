"""The pages about writing controllers are so: their first controllers greet, their commands make what they say."""

from __future__ import annotations

import os
import shlex
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
import yaml

from controller_host.guest.modules import ModuleRefused, Modules, RefusalReason
from support.guests import built as guests
from support.guests import rust_guests
from support.guests.guest_api import FakeApi, Json, config_map, key_of
from support.guests.guest_host import GuestHost
from support.suite.pages import DOCS, blocks
from trellis.crds.wasm_controllers import WasmController
from trellis_dev.localcluster.gotoolchain import environment, go_program
from trellis_dev.localcluster.progress import Quiet

pytestmark = pytest.mark.timeout(900)

PAGE = DOCS / "controllers-writing.md"
HELLO = "hello.wasm"


def readme(language: str) -> dict[tuple[str, str], str]:
    return blocks(guests.SDK / language / "README.md")


def shell(line: str, directory: Path) -> None:
    """Run a command of a page: variables before it, ``src/*.c`` in it; Python and Go are the project's."""
    arguments = shlex.split(line)
    variables = dict(argument.split("=", 1) for argument in arguments if argument.partition("=")[0].isupper())
    arguments = [
        part
        for argument in arguments[len(variables) :]
        for part in (sorted_names(directory, argument) if "*" in argument else [argument])
    ]
    go = go_program(Quiet())
    arguments[0] = {"python": sys.executable, "go": str(go)}[arguments[0]]
    around = environment(go) if Path(arguments[0]) == go else dict(os.environ)
    subprocess.run(arguments, cwd=directory, env={**around, **variables}, check=True)


def sorted_names(directory: Path, pattern: str) -> list[str]:
    return sorted(str(path.relative_to(directory)) for path in directory.glob(pattern))


def build_c(folder: Path) -> Path:
    sdk = folder / "c"
    shutil.copytree(guests.SDK / "c", sdk)
    (sdk / "hello.c").write_text(readme("c")["c", "hello"])
    install, compile_line = readme("c")["sh", "build"].splitlines()
    assert install == "pip install ziglang"
    shell(compile_line, sdk)
    return sdk / HELLO


def build_go(folder: Path) -> Path:
    (folder / "go.mod").write_text(readme("go")["text", "go-mod"].replace("../trellis/sdk/go", str(guests.SDK / "go")))
    (folder / "main.go").write_text(readme("go")["go", "hello"])
    shell(readme("go")["sh", "build"], folder)
    return folder / HELLO


def build_rust(folder: Path) -> Path:
    page = readme("rust")
    manifest = page["toml", "hello"].replace("../trellis/sdk/rust", "../sdk")
    files = {"Cargo.toml": manifest, "src/lib.rs": page["rust", "hello"]}
    _, build = page["sh", "build"].splitlines()
    assert build == f"cargo build --release --target {rust_guests.TARGET}"
    return rust_guests.build_user(files, guests.SDK / "rust", folder / HELLO, folder / "log")


@pytest.mark.thorough
@pytest.mark.parametrize(
    ("language", "build"), [("c", build_c), ("go", build_go), ("rust", build_rust)], ids=["c", "go", "rust"]
)
def test_the_first_controller_of_a_readme_greets_new_objects(
    tmp_path: Path, modules: Modules, language: str, build: Callable[[Path], Path]
) -> None:
    guests.needed(language)
    host = GuestHost(modules.load(build(tmp_path).read_bytes()), FakeApi())
    settings = config_map("settings")
    assert host.init() == {}
    assert host.reconcile(key_of(settings), settings) == {}
    assert host.reconcile(key_of(settings), None) == {}
    assert host.logged == [(1, "hello, settings")]
    host.close()


def test_the_build_of_the_page_makes_the_committed_module(tmp_path: Path) -> None:
    guests.needed("c")
    install, enter, compile_line = blocks(PAGE)["sh", "build"].splitlines()
    assert (install, enter) == ("pip install ziglang", "cd sdk/c")
    shutil.copytree(guests.SDK / "c", tmp_path / "c")
    shell(compile_line, tmp_path / "c")
    assert (tmp_path / "c" / "mirror.wasm").read_bytes() == (guests.PREBUILT / "mirror.wasm").read_bytes()


@pytest.mark.parametrize("language", guests.LANGUAGE_PARAMETERS)
def test_modules_have_the_sizes_on_the_page(language: str) -> None:
    guests.needed(language)
    (row,) = [line for line in PAGE.read_text().splitlines() if line.startswith("| module")]
    stated = dict(zip(guests.LANGUAGES, [cell.strip() for cell in row.split("|")[2:5]], strict=True))[language]
    size = guests.example(language, "mirror").stat().st_size
    assert stated == (f"{size / 1e6:.1f} MB" if size > 1e6 else f"{size / 1e3:.0f} kB")


def test_a_component_is_refused_as_documented(modules: Modules) -> None:
    with pytest.raises(ModuleRefused) as refused:
        modules.load(b"\0asm\x0d\0\x01\0")
    assert refused.value.reason is RefusalReason.NOT_WASM
    assert f"`{refused.value.reason}`" in PAGE.read_text()


def test_the_page_shows_the_file_that_is_applied() -> None:
    assert blocks(PAGE)["yaml", "mirror"] == (guests.PREBUILT / "mirror.yaml").read_text()


VERBS = {"apply": "patch", "event": "create"}


@pytest.mark.parametrize("name", ["mirror", "ttl"])
def test_an_example_is_a_controller_that_may_do_what_it_does_and_nothing_else(modules: Modules, name: str) -> None:
    manifests = list(yaml.safe_load_all((guests.PREBUILT / f"{name}.yaml").read_text()))
    (controller,) = [manifest for manifest in manifests if manifest["kind"] == "WasmController"]
    spec = WasmController.model_validate(controller).spec
    assert spec.model_dump(by_alias=True, exclude_unset=True) == controller["spec"]
    granted = {
        (manifest["metadata"]["namespace"], resource, verb)
        for manifest in manifests
        if manifest["kind"] == "Role"
        for rule in manifest["rules"]
        for resource in rule["resources"]
        for verb in rule["verbs"]
    }
    api = FakeApi()
    host = GuestHost(modules.load((guests.PREBUILT / f"{name}.wasm").read_bytes()), api)
    assert host.init(spec.config) == {}
    for shown in LIFE[name]:
        host.reconcile(key_of(LIFE[name][0]), shown and api.put(shown))
    host.close()
    resources = {"ConfigMap": "configmaps", "Job": "jobs"}
    done = {
        (
            place.get("namespace") or place["metadata"]["namespace"],
            resource,
            VERBS.get(requested["op"], requested["op"]),
        )
        for requested in api.requests
        for place in [requested.get("object") or requested.get("regarding") or requested]
        for resource in ["events" if requested["op"] == "event" else resources[place["kind"]]]
    }
    watched = {
        (namespace, resources[watch.kind], verb)
        for watch in spec.watches
        for namespace in watch.namespaces or ["team-a"]
        for verb in ("get", "list", "watch")
    }
    module = {("team-a", "configmaps", "get")}
    assert done | watched | module == granted


ENDED = {"type": "Complete", "status": "True", "lastTransitionTime": "2020-01-01T00:00:00Z"}
JOB = {"apiVersion": "batch/v1", "kind": "Job", "metadata": {"name": "once", "namespace": "team-a"}}
LIFE: dict[str, list[Json | None]] = {
    "mirror": [config_map("settings"), config_map("settings", data={"colour": "blue"}), None],
    "ttl": [JOB, JOB | {"status": {"conditions": [ENDED]}}],
}
