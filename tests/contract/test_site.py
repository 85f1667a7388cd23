"""docs/ as a site: it builds strictly and reaches no other host; commands, settings and figures of its pages are so."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
import yaml

from support.suite.commands import expect_command
from trellis_tools.reference.__main__ import SETTINGS

ROOT = Path(__file__).parents[2]
DOCS = ROOT / "docs"
NUMBER = re.compile(r"[0-9][0-9.,]*[0-9]|[0-9]")
RESULTS = {
    number
    for page in ("bench/RESULTS.md", "docs/operations/scale.md")
    for number in NUMBER.findall((ROOT / page).read_text())
}
NAMES = (
    "quickstart", "index", "concepts", "install", "releases", "security", "shims", "host-groups", "applications",
)  # fmt: skip
# Pages of a service that are tried line by line have tests of their own.
PAGES = sorted(
    [DOCS / f"{name}.md" for name in NAMES]
    + [
        path
        for folder in ("services", "operations", "migration", "installation", "security", "shims", "applications")
        for path in (DOCS / folder).glob("*.md")
    ]
)
VARIABLES = {f"TRELLIS_{name.upper()}" for model in SETTINGS.values() for name in model.model_fields}
LINES = sorted(
    {
        line.split(" #")[0].strip()
        for path in PAGES
        for line in re.findall(r"(?:^ *|`)(?:\.venv/bin/)?trellis ([a-z][^`\n]*)", path.read_text(), re.MULTILINE)
    }
)
MEASURED = [DOCS / "operations/sizing.md", DOCS / "operations/availability.md"]
FIGURE = re.compile(r"(?<![\w.-])([0-9][0-9.,]*[0-9]|[0-9]) (s|ms|MiB|µs|MB)(?![\w])")


def built(config: Path, into: Path) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "mkdocs", "build", "--strict", "-f", str(config), "-d", str(into)]
    environment = os.environ | {"NO_MKDOCS_2_WARNING": "1"}
    return subprocess.run(command, env=environment, capture_output=True, text=True, timeout=120, check=False)


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    into = tmp_path_factory.mktemp("site")
    done = built(ROOT / "mkdocs.yml", into)
    assert done.returncode == 0, done.stdout + done.stderr
    return into


def test_every_page_is_built_and_the_navigation_leads_to_it(site: Path) -> None:
    front = (site / "index.html").read_text()
    for path in DOCS.rglob("*.md"):
        target = path.relative_to(DOCS).with_suffix(".html").as_posix()
        assert (site / target).exists(), target
        assert f'href="{target}"' in front, target


def test_no_page_fetches_anything_from_another_host(site: Path) -> None:
    for page in site.rglob("*.html"):
        text = page.read_text()
        assert not re.findall(r'<(?:script|img|iframe|source)\b[^>]*\bsrc="(?:https?:)?//', text), page
        assert not re.findall(r'<link\b[^>]*rel="(?:stylesheet|preload|preconnect)"[^>]*href="(?:https?:)?//', text), (
            page
        )
        assert 'class="mermaid"' not in text, f"{page}: a library would be fetched to draw it"


def test_a_block_with_a_name_is_code(site: Path) -> None:
    assert "nats subscribe" not in re.sub(r"<pre.*?</pre>", "", (site / "bus.html").read_text(), flags=re.DOTALL)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("[x](nowhere.md)", "nowhere.md"),
        ("[x](index.md#nowhere)", "nowhere"),
        ("[x](../deploy/nowhere.yaml)", "deploy/nowhere.yaml"),
    ],
)
def test_a_link_that_leads_nowhere_fails(tmp_path: Path, text: str, message: str) -> None:
    config = yaml.safe_load((ROOT / "mkdocs.yml").read_text())
    docs = tmp_path / "docs"
    docs.mkdir()
    (docs / "index.md").write_text(f"# Here\n\n{text}\n")
    (docs / "hooks.py").write_text((DOCS / "hooks.py").read_text())
    config |= {"docs_dir": str(docs), "hooks": [str(docs / "hooks.py")], "nav": [{"Here": "index.md"}], "plugins": []}
    (tmp_path / "mkdocs.yml").write_text(yaml.safe_dump(config))
    done = built(tmp_path / "mkdocs.yml", tmp_path / "site")
    assert done.returncode != 0
    assert message in done.stdout + done.stderr


@pytest.mark.parametrize("line", LINES)
def test_every_command_of_a_page_exists(line: str) -> None:
    expect_command(line)


@pytest.mark.parametrize("page", PAGES, ids=lambda path: path.relative_to(DOCS).as_posix())
def test_every_setting_of_a_page_exists(page: Path) -> None:
    named = {name for name in re.findall(r"TRELLIS_[A-Z_]+[A-Z]", page.read_text()) if f"`{name}" in page.read_text()}
    streams = {"TRELLIS_EVENTS", "TRELLIS_LATTICE", "TRELLIS_DEAD", "TRELLIS_CLUSTERS", "TRELLIS_INSTALLER"}
    assert named - streams <= VARIABLES


@pytest.mark.parametrize("page", MEASURED, ids=lambda path: path.name)
def test_every_figure_of_a_page_was_measured(page: Path) -> None:
    limits = {"13 s", "60 s", "8 s", "256 MiB"}  # what is promised or was set, not what was measured
    found = {" ".join(item) for item in FIGURE.findall(page.read_text())} - limits
    assert found
    for figure in found:
        assert figure.split()[0] in RESULTS, f"{page.name}: {figure}"


def test_every_drawing_is_on_a_page() -> None:
    pages = "".join(path.read_text() for path in DOCS.rglob("*.md"))
    drawings = sorted(path.name for path in (DOCS / "drawings").iterdir())
    assert drawings
    for name in drawings:
        assert f"drawings/{name})" in pages, name
