"""Building the console's page, as far as it needs no node."""

from __future__ import annotations

import re
import shutil
import threading
from pathlib import Path

import pytest

from trellis_dev.localcluster import page
from trellis_dev.localcluster.building import How
from trellis_dev.localcluster.errors import ToolError
from trellis_dev.localcluster.progress import Quiet

HOW = How(Quiet(), threading.Event())


@pytest.fixture
def checkout(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    sources = tmp_path / "checkout" / page.SOURCES
    (sources / "src").mkdir(parents=True)
    (sources / "test").mkdir()
    for name in ("package.json", "package-lock.json", ".npmrc", "build.mjs", "tsconfig.json", "src/main.tsx"):
        (sources / name).write_text(name)
    return tmp_path / "checkout"


@pytest.fixture
def built(checkout: Path, monkeypatch: pytest.MonkeyPatch) -> list[Path]:
    """Stand in for node: what is built has the script's text; return of which checkouts it was."""
    made: list[Path] = []

    def build(directory: Path, how: How) -> Path:
        del how
        made.append(directory)
        found = directory / f"built-{len(made)}"
        (found / "assets").mkdir(parents=True)
        (found / "index.html").write_text("page")
        (found / "assets" / "page.js").write_text((checkout / page.SOURCES / "src/main.tsx").read_text())
        return found

    monkeypatch.setattr(page, "page_of", build)
    return made


def test_without_node_the_missing_tool_is_reported(checkout: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(shutil, "which", lambda _: None)
    with pytest.raises(ToolError, match=r"\bnode, npm\b.*\bnode 20\b"):
        page.build_page(checkout, HOW)


def test_a_folder_that_is_not_a_checkout_is_reported(tmp_path: Path) -> None:
    with pytest.raises(ToolError, match=re.escape(str(tmp_path))):
        page.build_page(tmp_path, HOW)


def test_the_built_page_takes_the_place_of_the_former_one(checkout: Path, built: list[Path], tmp_path: Path) -> None:
    (tmp_path / "cache" / "trellis" / "build").mkdir(parents=True)
    target = page.build_page(checkout, HOW)
    (target / "assets" / "old.js").write_text("of a build before")
    (checkout / page.SOURCES / "src/main.tsx").write_text("changed")
    assert page.build_page(checkout, HOW) == target
    assert sorted(path.name for path in (target / "assets").iterdir()) == ["page.js"]
    assert (target / "assets" / "page.js").read_text() == "changed"
    assert len(built) == 2
