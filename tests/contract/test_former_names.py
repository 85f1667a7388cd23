"""Former names of reasons, metrics, annotations and settings are nowhere that users read, code and examples included.

Vale finds them in prose only: it ignores code spans, which is where a name of this kind is.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import pytest
import yaml

from trellis.config.errors import RENAMED_SETTINGS

ROOT = Path(__file__).parents[2]
RULE = ROOT / ".vale/styles/Trellis/Identifiers.yml"
FOLDERS = ("docs", "deploy", "services", "shared", "devtools", "sdk", ".github")
PAGES = ("README.md", "CONTRIBUTING.md", "SECURITY.md", "MAINTAINERS.md", "docker-compose.yml")
REFUSED_BY = {"deploy/helm/trellis/values.schema.json", "shared/trellis/config/errors.py"}
"""Files that refuse a former name with the current one."""
FORMER = [*yaml.safe_load(RULE.read_text(encoding="utf-8"))["swap"], *RENAMED_SETTINGS]
NAME = re.compile("|".join(rf"(?<![\w-])(?:{pattern})(?![\w-])" for pattern in FORMER))
TEXTS = {".md", ".py", ".yaml", ".yml", ".json", ".tpl", ".txt", ".ts", ".tsx", ".html", ".svg", ".conf", ".go", ".rs"}


def files() -> Iterator[Path]:
    """Yield the files that users read or copy."""
    yield from (ROOT / name for name in PAGES)
    for folder in FOLDERS:
        for path in sorted((ROOT / folder).rglob("*")):
            if path.suffix in TEXTS and path.is_file() and "node_modules" not in path.parts:
                yield path


def found(text: str) -> list[str]:
    """Return the former names in a text."""
    return [match[0] for match in NAME.finditer(text)]


def test_no_file_has_a_former_name() -> None:
    names = {path.relative_to(ROOT).as_posix(): found(path.read_text(encoding="utf-8")) for path in files()}
    assert {path: items for path, items in names.items() if items and path not in REFUSED_BY} == {}
    assert all(names[path] for path in REFUSED_BY), "a file without a former name needs no exception"


@pytest.mark.parametrize(
    ("text", "names"),
    [
        ("`reason: WadmAway`", ["WadmAway"]),
        ("set TRELLIS_LET_GO=true", ["TRELLIS_LET_GO"]),
        ("trellis_facts_published_total{type}", ["trellis_facts_published_total"]),
        ("`trellis dead list`", ["trellis dead"]),
        ("`trellis dead-letters list`", []),
        ("WadmUnavailable", []),
    ],
)
def test_former_names_are_found_in_code(text: str, names: list[str]) -> None:
    assert found(text) == names
