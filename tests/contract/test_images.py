"""The Dockerfiles of our images: what they take, what they leave behind, and that all that names their parts agrees."""

from __future__ import annotations

import ast
import re
import sys
import tomllib
from collections.abc import Iterator
from pathlib import Path

import pytest

from trellis_dev.localcluster.own_images import INSTALLER, SERVICES, OwnImage
from trellis_dev.localcluster.wasmshim import IN_IMAGE

RUNTIME = "devtools/trellis_dev/localcluster/runtime"
ROOT = Path(__file__).parents[2]
sys.path.insert(0, str(ROOT / "deploy" / "images"))

import assemble  # noqa: E402 - a script beside the Dockerfiles
import inventory  # noqa: E402

PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
IMAGES = pytest.mark.parametrize("image", [SERVICES, INSTALLER], ids=lambda image: image.key)


def stages(image: OwnImage) -> tuple[str, str]:
    """Return the stage that builds and the one that is the image, without comments, each instruction on one line."""
    text = re.sub(r"^ *#.*\n", "", (ROOT / image.dockerfile).read_text(), flags=re.MULTILINE).replace("\\\n", " ")
    first, second = re.split(r"^FROM \$\{BASE\}", text, flags=re.MULTILINE)[1:]
    return first, second


def page_stage() -> str:
    """Return the stage that builds the console's page."""
    text = (ROOT / SERVICES.dockerfile).read_text().replace("\\\n", " ")
    return re.split(r"^FROM ", text, flags=re.MULTILINE)[1]


def copied(stage: str) -> list[str]:
    """Return what a stage copies out of the context."""
    lines = [line.split()[1:-1] for line in stage.splitlines() if re.match(r"COPY (?!--from=)", line)]
    return [found_name for found_names in lines for found_name in found_names]


@IMAGES
def test_the_image_takes_files_only_from_the_stage_that_builds(image: OwnImage) -> None:
    _, result = stages(image)
    lines = [line for line in result.splitlines() if line.startswith("COPY ")]
    assert lines
    assert all(line.startswith("COPY --from=build ") for line in lines)
    assert not re.search(r"\b(pip3? +install|apt|apk|dnf|curl|wget)\b", result)


@IMAGES
def test_packages_come_from_a_lock_with_hashes_or_not_at_all(image: OwnImage) -> None:
    build, _ = stages(image)
    commands = re.findall(r"-m pip install [^;&]+", build)
    assert len(commands) == 2
    for command in commands:
        assert "--require-hashes" in command
        assert "--no-cache-dir" in command
        assert "index" not in command
        # Building a package would fetch what no lock names.
        assert "--only-binary :all:" in command


@IMAGES
def test_the_image_copies_exactly_the_sources_that_the_scripts_take(image: OwnImage) -> None:
    build, _ = stages(image)
    contents = assemble.IMAGES[image.key]
    wanted = {"pyproject.toml", "LICENSE", image.lock, "requirements-images.lock"}
    wanted |= {f"deploy/images/{name}.py" for name in ("assemble", "inventory")}
    sources = {found_name for found_name in copied(build) if not found_name.endswith("-packages*/")} - wanted
    taken = {source.removesuffix("/*") for source in contents.sources}
    assert sources == taken
    ours = {re.sub(r"(/\*\*)?/\*(\.py)?$", "", source) for source in image.sources}
    assert ours - {RUNTIME} == taken
    roots = {
        found_name
        for found_name in re.findall(r"COPY --from=build (\S+)", stages(image)[1])
        if found_name.startswith("/opt/")
    }
    assert roots == {str(contents.root)} | ({IN_IMAGE} if RUNTIME in ours else set())


@IMAGES
def test_imported_modules_of_trellis_are_in_the_image(image: OwnImage) -> None:
    found = {path for pattern in image.sources for path in ROOT.glob(pattern) if path.suffix == ".py"}
    for path in sorted(found):
        for name in imported(path):
            module = ROOT / "shared" / name.replace(".", "/")
            places = [
                where for item in (module, module.parent) for where in (item.with_suffix(".py"), item / "__init__.py")
            ]
            place = next(item for item in places if item.exists())
            assert place in found, f"{path} imports {name}, which the image has not"


def imported(path: Path) -> Iterator[str]:
    """Yield the modules of trellis that a file imports, with what it takes of them where that may be a module."""
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.ImportFrom) and (node.module or "").partition(".")[0] == "trellis":
            yield from (f"{node.module}.{name.name}" for name in node.names)
        elif isinstance(node, ast.Import):
            yield from (name.name for name in node.names if name.name.partition(".")[0] == "trellis")


@IMAGES
def test_the_image_states_its_version(image: OwnImage) -> None:
    _, result = stages(image)
    assert re.findall(r"ARG VERSION=(\S+)", result) == [PROJECT["version"]]
    assert f'org.opencontainers.image.licenses="{PROJECT["license"]}"' in result


def test_the_page_is_built_from_its_lock_unless_the_context_has_it() -> None:
    stage = page_stage()
    assert stage.startswith("${NODE} AS page\n")
    assert re.findall(r"npm (\S+)", stage) == ["ci"], "nothing that the lock does not name"
    assert "npm ci --ignore-scripts" in stage
    assert stage.count("[ -f static/index.html ] ||") == 2
    assert "COPY --from=page /src/static services/console/static" in stages(SERVICES)[0]


def test_an_engine_takes_no_page_and_no_packages_of_npm_from_a_checkout() -> None:
    ignored = (ROOT / ".dockerignore").read_text().splitlines()
    assert {"**/node_modules", "services/console/static"} <= set(ignored)


def test_only_the_installer_is_root() -> None:
    assert re.findall(r"^USER (\S+)", stages(SERVICES)[1], flags=re.MULTILINE) == ["65532:65532"]
    assert re.findall(r"^USER (\S+)", stages(INSTALLER)[1], flags=re.MULTILINE) == ["0:0"]


@pytest.mark.parametrize("lock", ["requirements-services.lock", "requirements-installer.lock"])
def test_every_line_of_a_lock_is_understood(lock: str) -> None:
    text = (ROOT / lock).read_text()
    found = inventory.pins(text)
    assert len(found) == sum("==" in line for line in text.splitlines())
    assert sum(len(pin.hashes) for pin in found.values()) == text.count("--hash=sha256:")
    assert all(pin.hashes for pin in found.values())


def test_no_service_uses_what_the_image_leaves_out() -> None:
    for path in sorted([*(ROOT / "services").rglob("*.py"), *(ROOT / "shared").rglob("*.py")]):
        found_names = re.findall(r"(?:from|import) (kubernetes[\w.]*)", path.read_text())
        assert not [
            found_name
            for found_name in found_names
            if re.match(r"kubernetes(\.aio)?\.client(\.(api|models)\b|$)", found_name)
        ], path
