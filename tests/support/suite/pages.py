"""The code blocks of a page in docs, by language and name: ```` ```python live ````."""

from __future__ import annotations

import re
from pathlib import Path

DOCS = Path(__file__).parents[3] / "docs"
BUS_PAGE = DOCS / "bus.md"
DOCUMENTED_URL = "nats://127.0.0.1:4222"

_BLOCK = re.compile(r"^```(\w+)(?: ([\w-]+))?\n(.*?)^```$", re.DOTALL | re.MULTILINE)
_ROW = re.compile(r"^\| (.+) \|$", re.MULTILINE)

Block = tuple[str, str]


def blocks(page: Path) -> dict[Block, str]:
    """All blocks; the name is empty where there is none."""
    found = [((language, name), code) for language, name, code in _BLOCK.findall(page.read_text())]
    assert len(dict(found)) == len(found), f"{page.name} has two blocks of one name"
    return dict(found)


def table(page: Path, first_column: str) -> list[list[str]]:
    """The rows of the table whose first column has this title."""
    (head, *_) = [line for line in page.read_text().splitlines() if line.startswith(f"| {first_column} |")]
    after = page.read_text().partition(f"{head}\n")[2].partition("\n\n")[0]
    return [[cell.strip() for cell in row.split(" | ")] for row in _ROW.findall(after)]
