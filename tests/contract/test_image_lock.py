"""The image of the services installs all packages that the services import, from any extra."""

from __future__ import annotations

import ast
import re
import sys
from collections.abc import Iterator
from functools import cache
from importlib.metadata import packages_distributions
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
DOCKERFILE = (ROOT / "deploy" / "images" / "services.Dockerfile").read_text()
# The bundle has commands besides, that need a machine to build on, and the installer has an image of its own.
SERVICES = sorted(
    path.name
    for path in (ROOT / "services").iterdir()
    if (path / "__main__.py").exists() and path.name not in {"trellis_cli", "node_installer"}
)
PINNED = re.compile(r"^([A-Za-z0-9._-]+)==(\S+)", re.MULTILINE)


def lock(name: str) -> dict[str, str]:
    """Return the versions that a lock pins, by normalised name."""
    return {normalised(found): version for found, version in PINNED.findall((ROOT / name).read_text())}


def normalised(name: str) -> str:
    return re.sub(r"[-_.]+", "-", name).lower()


def lock_of_the_image() -> str:
    (name,) = re.findall(r"--require-hashes -r ([\w.-]+\.lock)", DOCKERFILE)
    assert f"COPY {name} " in DOCKERFILE
    return str(name)


def file_of(module: str) -> Path | None:
    """Return the source of a module of Trellis, None for anybody else's."""
    for root in ("services", "shared"):
        path = ROOT / root / module.replace(".", "/")
        for candidate in (path / "__init__.py", path.with_suffix(".py")):
            if candidate.exists():
                return candidate
    return None


@cache
def imported(path: Path) -> frozenset[str]:
    """Return what a file imports anywhere in it: a name from a module may be a module itself."""
    found: set[str] = set()
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module:
            found |= {node.module, *(f"{node.module}.{alias.name}" for alias in node.names)}
    return frozenset(found)


def needs(service: str) -> Iterator[tuple[str, str]]:
    """Yield each module of others that a service comes to import, and the file of Trellis that does."""
    todo, seen = sorted((ROOT / "services" / service).rglob("*.py")), set[Path]()
    while todo:
        path = todo.pop()
        if path in seen:
            continue
        seen.add(path)
        for module in imported(path):
            top = module.partition(".")[0]
            if (ours := file_of(module)) is not None:
                todo.append(ours)
            elif file_of(top) is None and top not in sys.stdlib_module_names:
                yield top, str(path.relative_to(ROOT))


@pytest.mark.parametrize("service", SERVICES)
def test_the_image_has_what_a_service_imports(service: str) -> None:
    installed = lock(lock_of_the_image())
    owners = packages_distributions()
    for module, importer in needs(service):
        assert module in owners, f"{importer} imports {module}, which nothing installs"
        names = {normalised(name) for name in owners[module]}
        assert names & set(installed), f"{importer} imports {module} of {names}, which the image's lock lacks"


def test_the_walk_reaches_what_only_one_service_needs() -> None:
    assert "wasmtime" in dict(needs("controller_host"))
    assert "wasmtime" not in dict(needs("node_watcher"))


def test_the_locks_agree() -> None:
    image, everything = lock(lock_of_the_image()), lock("requirements-dev.lock")
    assert lock("requirements.lock").items() <= image.items() <= everything.items(), "`make lock`"
    assert lock("requirements-images.lock").items() <= everything.items(), "`make lock`"
