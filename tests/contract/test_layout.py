"""The folders, files and decisions that pages list are those that exist; production has no development code."""

from __future__ import annotations

import re
import tomllib
from importlib.metadata import packages_distributions
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
ADRS = ROOT / "docs/adr"
CONTRIBUTING = (ROOT / "CONTRIBUTING.md").read_text()
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())
OURS = {"trellis-wasm", "trellis-wasm-dev"}
NAMED = sorted(
    set(re.findall(r"`((?:services|shared|devtools|tools|deploy|docs|tests|bench|sdk)/[^`\s<]*)`", CONTRIBUTING))
)


def test_the_page_of_the_architecture_lists_every_package() -> None:
    page = (ROOT / "docs/architecture.md").read_text()
    listed = re.findall(r"^\| `((?:services|shared|devtools|tools)/[^`]+)` \|", page, re.MULTILINE)
    roots = ("services", "shared/trellis", "devtools/trellis_dev", "tools/trellis_tools")
    folders = [path.parent.relative_to(ROOT) for root in roots for path in (ROOT / root).glob("*/__init__.py")]
    unlisted = [folder for folder in folders if folder.as_posix() not in listed]
    assert len(listed) == len(folders) - len(unlisted)
    assert {folder.parent.name for folder in unlisted} <= {"services"}, "docs/services/index.md lists the services"


@pytest.mark.parametrize("name", NAMED)
def test_every_path_that_contributing_names_exists(name: str) -> None:
    assert (ROOT / name).exists()


def test_the_index_lists_every_decision_once_by_its_number() -> None:
    listed = re.findall(r"^- \[(\d+)\]\(([^)]+)\) \S", (ADRS / "index.md").read_text(), re.MULTILINE)
    files = sorted(path.name for path in ADRS.glob("*.md") if path.name != "index.md")
    assert sorted(name for _, name in listed) == files
    assert all(int(name.partition("-")[0]) == int(number) for number, name in listed)


@pytest.mark.parametrize(
    ("folder", "limit"), [("shared/trellis", 18), ("services/controller_host", 15), ("services/trellis_cli", 32)]
)
def test_a_folder_is_small_enough_to_be_read(folder: str, limit: int) -> None:
    """Each entry is a part of the source root or of the service that a reader has to know."""
    files = [path for path in (ROOT / folder).rglob("*.*") if "__pycache__" not in path.parts]
    entries = {path.relative_to(ROOT / folder).parts[0] for path in files}
    assert len(entries) <= limit


def test_the_wheel_of_production_has_services_and_what_they_share() -> None:
    wheel = PROJECT["tool"]["hatch"]["build"]["targets"]["wheel"]
    assert wheel["only-include"] == wheel["sources"] == ["services", "shared"]


def test_no_dependency_has_a_package_named_like_one_of_trellis() -> None:
    ours = {path.parent.name for root in ("services", "shared") for path in (ROOT / root).glob("*/__init__.py")}
    installed = packages_distributions()
    assert {name: installed[name] for name in ours if {*installed.get(name, ())} - OURS} == {}


@pytest.mark.parametrize("flow", [0, 1, 2])
def test_a_flow_names_files_that_are_there_and_counts_them_and_its_hops(flow: int) -> None:
    page = (ROOT / "docs/architecture.md").read_text()
    section = page.split("## Three changes, step by step\n")[1].split("\n## ")[0]
    heading, drawing = re.findall(r"^### (.+?)\n\n```\n(.+?)```", section, re.MULTILINE | re.DOTALL)[flow]
    files = set(re.findall(r"[a-z_/]+\.py", drawing)) - {"progress.py"}  # of which the text speaks
    missing = [
        file for file in files if not any((ROOT / root / file).is_file() for root in ("services", "shared/trellis"))
    ]
    assert not missing
    hops = re.findall(r"^\d+", drawing, re.MULTILINE)
    assert hops == [str(number) for number in range(1, len(hops) + 1)]
    assert heading.endswith(f": {len(files)} files, {len(hops)} hops")
