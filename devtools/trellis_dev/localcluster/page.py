"""The page of the console, built from its sources with node, once per state of the sources.

In: a checkout. Out: the files of the page in the cache, and next to the modules of the console, where its server finds
them. Its dependencies (`npm ci`, with the versions and hashes of the lock) come from the registry in the configuration
of npm. Called by `trellis dev page`, `trellis dev image` and tests. Invariants: the same sources give the same bytes
under the same name; only the finished page is written into the checkout; no scripts of packages are run.
"""

from __future__ import annotations

import filecmp
import hashlib
import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

from filelock import FileLock

from trellis_dev.localcluster.building import How, LoggedBuild, make_once
from trellis_dev.localcluster.errors import ToolError
from trellis_dev.localcluster.paths import cache_root

SOURCES: Final = "services/console/page"
BUILT: Final = "services/console/static"
_MODULES: Final = "node_modules"
_LOCK: Final = ("package.json", "package-lock.json", ".npmrc")
_MADE: Final = ("src", "test", "build.mjs", "tsconfig.json", *_LOCK)
_HINT: Final = "The page needs node 20 or later, and an npm registry for the first build."


def missing() -> str | None:
    """Return in one line why this machine cannot build the page; None if it can."""
    lacks = [program for program in ("node", "npm") if shutil.which(program) is None]
    return f"the console's page cannot be built here; missing: {', '.join(lacks)}" if lacks else None


def build_page(checkout: Path, how: How) -> Path:
    """Build the page, copy it to the console of this checkout, and return that directory.

    Raises:
        ToolError: not a checkout, node is missing, or the build fails; with its last output.
    """
    found = page_of(checkout, how)
    target = checkout / BUILT
    with FileLock(cache_root() / "build" / "page-static.lock"):
        if not _same(found, target):
            temporary = target.with_name(f".{target.name}.tmp")
            shutil.rmtree(temporary, ignore_errors=True)
            shutil.copytree(found, temporary)
            shutil.rmtree(target, ignore_errors=True)
            temporary.rename(target)
        # The wheel includes the page only if it is newer than the sources, else rebuilds it.
        os.utime(target / "index.html")
    return target


def page_of(checkout: Path, how: How) -> Path:
    """Return the cache directory with the page of this checkout. Raise ToolError as :func:`build_page`."""

    def make(target: Path, log: Path) -> None:
        with _laid_out(checkout, target, log, how) as build:
            build.run(["node", "build.mjs", str(target)])

    return make_once(cache_root() / "page" / f"page-{_digest(checkout, _MADE)}", "build the console's page", how, make)


def check_page(checkout: Path, how: How) -> None:
    """Run the type checks and the unit tests of the page, once per state of the sources.

    Raises:
        ToolError: as :func:`build_page`, and if a check fails.
    """

    def make(target: Path, log: Path) -> None:
        with _laid_out(checkout, target, log, how) as build:
            build.run(["node", f"{_MODULES}/typescript/bin/tsc", "--noEmit"])
            build.run(["node", "build.mjs", "--tests"])
            tests = sorted((build.directory / "build/tests").glob("*.mjs"))
            build.run(["node", "--test", *map(str, tests)])
        target.touch()

    make_once(cache_root() / "page" / f"checked-{_digest(checkout, _MADE)}", "check the console's page", how, make)


def packages(checkout: Path, how: How) -> Path:
    """Return the packages of the lock of the page: runtime, build and test dependencies.

    Raises:
        ToolError: as :func:`build_page`.
    """
    _require(checkout)

    def make(target: Path, log: Path) -> None:
        target.mkdir()
        for name in _LOCK:
            shutil.copyfile(checkout / SOURCES / name, target / name)
        build = LoggedBuild(target, log, how.abort, dict(os.environ), _HINT)
        build.run(["npm", "ci", "--ignore-scripts", "--no-audit", "--no-fund"])

    name = f"packages-{_digest(checkout, _LOCK)}"
    return make_once(cache_root() / "page" / name, "fetch the packages of the console's page", how, make) / _MODULES


@contextmanager
def _laid_out(checkout: Path, target: Path, log: Path, how: How) -> Iterator[LoggedBuild]:
    """Create a directory with the sources and their packages for one build."""
    modules = packages(checkout, how)
    folder = target.with_name(f"{target.name}.work")
    shutil.rmtree(folder, ignore_errors=True)  # left by a killed build; the lock excludes other builds
    try:
        for source in _files(checkout, _MADE):
            (folder / source).parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(checkout / SOURCES / source, folder / source)
        (folder / _MODULES).symlink_to(modules)
        yield LoggedBuild(folder, log, how.abort, dict(os.environ), _HINT)
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def _require(checkout: Path) -> None:
    if not (checkout / SOURCES / "package-lock.json").is_file():
        raise ToolError(f"{checkout} has no {SOURCES}: the page is built from a checkout of Trellis")
    if (reason := missing()) is not None:
        raise ToolError(f"{reason}; {_HINT}")


def _files(checkout: Path, names: tuple[str, ...]) -> Iterator[str]:
    """Yield files below the sources of the page, relative to these, in the same order on each machine."""
    root = checkout / SOURCES
    for name in sorted(names):
        found = root / name
        below = sorted(path for path in found.rglob("*") if path.is_file()) if found.is_dir() else [found]
        yield from (path.relative_to(root).as_posix() for path in below)


def _digest(checkout: Path, names: tuple[str, ...]) -> str:
    _require(checkout)
    digest = hashlib.sha256()
    for source in _files(checkout, names):
        content = (checkout / SOURCES / source).read_bytes()
        digest.update(f"{source}\0{len(content)}\0".encode() + content)
    return digest.hexdigest()[:12]


def _same(item: Path, other: Path) -> bool:
    """Return whether two directories have the same files."""
    names = [{path.relative_to(root) for path in root.rglob("*") if path.is_file()} for root in (item, other)]
    return names[0] == names[1] and all(filecmp.cmp(item / name, other / name, shallow=False) for name in names[0])
