"""Lists the input of Vale: Markdown files as they are, and the extracted texts of other files.

In: the root of the repository. Out: pages, each of one area and one source file. Called by the command.
Generated copies are omitted: ``deploy/schemas`` and ``docs/reference/crds`` have the texts of ``deploy/crds``.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from itertools import groupby
from pathlib import Path
from typing import Final

from trellis_tools.language.code_comments import code_comments
from trellis_tools.language.deploy_texts import comments, descriptions, labels, notes, targets, template_texts
from trellis_tools.language.page_texts import page_texts
from trellis_tools.language.python_texts import python_texts
from trellis_tools.language.texts import Text, document

Extract = Callable[[str, str], Iterable[Text]]

CHART: Final = "deploy/helm/trellis"
_MARKDOWN: Final = (
    ("README.md", "readme"),
    ("CONTRIBUTING.md", "readme"),
    ("CHANGELOG.md", "readme"),
    ("MAINTAINERS.md", "readme"),
    ("SECURITY.md", "readme"),
    (".github/*.md", "readme"),
    ("docs/reference/commands.md", "cli"),
    ("docs/adr/*.md", "adr"),
    ("docs/**/*.md", "docs"),
    ("sdk/*/README.md", "docs"),
    ("deploy/examples/README.md", "docs"),
    ("bench/RESULTS.md", "docs"),
)
"""Markdown files and their area; the first match counts."""
_COPIES: Final = ("docs/reference/crds",)
_EXTRACTED: Final[tuple[tuple[str, str, Extract], ...]] = (
    ("deploy/crds/**/*.yaml", "crds", descriptions),
    ("deploy/events/*.json", "events", descriptions),
    (f"{CHART}/values.schema.json", "chart", descriptions),
    (f"{CHART}/monitoring/*", "chart", descriptions),
    (f"{CHART}/Chart.yaml", "chart", descriptions),
    (f"{CHART}/values*.yaml", "chart", comments),
    (f"{CHART}/templates/**/*.yaml", "chart", template_texts),
    (f"{CHART}/templates/*.tpl", "chart", template_texts),
    (f"{CHART}/templates/NOTES.txt", "chart", notes),
    ("deploy/examples/**/*.yaml", "examples", comments),
    ("deploy/rbac/*.yaml", "examples", comments),
    ("docker-compose.yml", "examples", comments),
    ("docs/drawings/*.svg", "docs", labels),
    (".github/ISSUE_TEMPLATE/*.yml", "readme", descriptions),
    ("services/console/page/src/**/*.ts*", "console", page_texts),
    ("services/console/page/src/*.html", "console", page_texts),
    ("Makefile", "cli", targets),
    ("sdk/rust/**/*.rs", "sdk", code_comments),
    ("sdk/go/**/*.go", "sdk", code_comments),
)
_PYTHON: Final = ("services", "shared", "devtools", "tools", "bench")
_REST: Final = (
    ("services/trellis_cli/", "cli"),
    ("devtools/", "cli"),
    ("tools/", "cli"),
    ("services/console/", "console"),
    ("shared/trellis/provisioning/", "conditions"),
)
"""Areas of Python prose without an area from its place in the code; other prose below ``domain`` is ``conditions``."""


@dataclass(frozen=True, slots=True)
class Page:
    """Input of Vale from one source file. ``text`` None: the source itself, which is Markdown."""

    area: str
    source: str
    text: str | None = None


def pages(root: Path) -> Iterator[Page]:
    """Yield the pages of a repository."""
    seen: set[str] = set()
    for pattern, area in _MARKDOWN:
        for source in _files(root, pattern):
            if source not in seen and not source.startswith(_COPIES):
                yield Page(area, source)
            seen.add(source)
    for pattern, area, extract in _EXTRACTED:
        for source in _files(root, pattern):
            yield from _extracted(source, extract((root / source).read_text(), area))
    for folder in _PYTHON:
        for source in _files(root, f"{folder}/**/*.py"):
            yield from _extracted(source, python_texts((root / source).read_text(), _rest(source)))


def _files(root: Path, pattern: str) -> list[str]:
    return sorted(path.relative_to(root).as_posix() for path in root.glob(pattern) if path.is_file())


def _extracted(source: str, texts: Iterable[Text]) -> Iterator[Page]:
    """Yield a page for each area of the texts of a file."""
    by_area = sorted(texts, key=lambda text: (text.area, text.line))
    for area, found in groupby(by_area, key=lambda text: text.area):
        yield Page(area, source, document(found))


def _rest(source: str) -> str:
    for folder, area in _REST:
        if source.startswith(folder):
            return area
    return "conditions" if "/domain/" in source else "messages"
