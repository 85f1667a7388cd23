"""Builds the console's page when a wheel is built, so that it is inside.

In: the checkout. Out: ``services/console/static``. Called by hatchling, where there is nothing but the standard
library. Invariant: a page that is newer than its sources is taken as it is (`trellis dev page` made it); without node
the wheel is built all the same, and its console says what to do instead of the page.
"""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface

_NOT_SOURCES = {"node_modules", "build", "test"}


class PageHook(BuildHookInterface[Any]):
    """What hatchling calls before it gathers files."""

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        """Build the page unless it is there; an editable install is made in a moment, and gets it by command."""
        del build_data
        sources = Path(self.root) / "services" / "console" / "page"
        index = sources.parent / "static" / "index.html"
        if version == "editable" or _is_newer(index, sources):
            return
        if shutil.which("node") is None or shutil.which("npm") is None:
            self.app.display_warning("there is no node: the wheel's console has no page, or an old one")
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
