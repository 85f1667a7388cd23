"""Checks the language of texts for users and developers: ``make language``, ``make lint``.

In: the root of the repository; paths, or all of it. Out: findings with file and line on standard error, or their
counts. Exit status: 0 no findings, 1 findings, 2 no text to check, or Vale or its rules failed.
"""

from __future__ import annotations

import argparse
import sys
from dataclasses import dataclass
from pathlib import Path

from trellis_dev.localcluster import tools
from trellis_dev.localcluster.errors import ToolError
from trellis_dev.localcluster.progress import Lines
from trellis_tools.language.findings import ValeError, check_rules, counts, findings
from trellis_tools.language.pages import Page, pages


@dataclass(frozen=True, slots=True)
class Scope:
    """A file or a folder, and the areas of its texts; without areas, all."""

    path: str
    areas: frozenset[str] = frozenset()

    def has(self, page: Page) -> bool:
        """Return whether a page is in the scope."""
        path = self.path.rstrip("/")
        inside = path in {".", page.source} or page.source.startswith(f"{path}/")
        return inside and (not self.areas or page.area in self.areas)


def main(argv: list[str] | None = None) -> int:
    """Run the command and return its exit status."""
    parser = argparse.ArgumentParser(prog="python -m trellis_tools.language", description=__doc__)
    parser.add_argument("root", type=Path, help="the repository")
    parser.add_argument("paths", nargs="*", metavar="PATH", help="files and folders; default: all")
    parser.add_argument("--area", action="append", default=[], help="only texts of this area (repeatable)")
    parser.add_argument("--counts", action="store_true", help="print the number of findings by rule and area")
    arguments = parser.parse_args(argv)
    root: Path = arguments.root
    scopes = [Scope(path, frozenset(arguments.area)) for path in arguments.paths or ["."]]
    wanted = [page for page in pages(root) if any(scope.has(page) for scope in scopes)]
    if not wanted:
        sys.stderr.write("no text to check\n")
        return 2
    try:
        vale = tools.ensure("vale", Lines())
        check_rules(vale, root)
        found = findings(vale, root.resolve(), wanted)
    except (ToolError, ValeError) as error:
        sys.stderr.write(f"{error}\n")
        return 2
    sys.stderr.write(counts(found) if arguments.counts else "".join(f"{item}\n" for item in found))
    return 1 if found and not arguments.counts else 0


if __name__ == "__main__":
    sys.exit(main())
