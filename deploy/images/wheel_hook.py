"""Builds the console's page when a wheel is built, so that the wheel contains it.

In: the checkout. Out: ``services/console/static``. Called by hatchling; standard library only. Invariant: a page that
is newer than its sources is kept (`trellis dev page` built it); without node the wheel is built without the page, and
its console shows instructions instead.
"""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface

_NOT_SOURCES = {"node_modules", "build", "test"}


class PageHook(BuildHookInterface[Any]):
    """Build hook, which hatchling calls before it collects files."""

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        """Build the page unless it is up to date; editable installs build it by a separate command."""
        del build_data
        sources = Path(self.root) / "services" / "console" / "page"
        index = sources.parent / "static" / "index.html"
        if version == "editable" or _is_newer(index, sources):
            return
        if shutil.which("node") is None or shutil.which("npm") is None:
            self.app.display_warning("node or npm not found: the wheel's console has no page, or an outdated one")
            return
        if not (sources / "node_modules").exists():
            subprocess.run(["npm", "ci", "--ignore-scripts", "--no-audit", "--no-fund"], cwd=sources, check=True)
        subprocess.run(["node", "build.mjs"], cwd=sources, check=True)


def _is_newer(index: Path, sources: Path) -> bool:
    if not index.is_file():
        return False
    built = index.stat().st_mtime
    return all(path.stat().st_mtime <= built for path in _sources(sources))


def _sources(sources: Path) -> list[Path]:
    below = (path for path in sources.rglob("*") if not _NOT_SOURCES & {*path.relative_to(sources).parts})
    return [path for path in below if path.is_file()]
