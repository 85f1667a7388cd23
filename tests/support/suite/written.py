"""Sections of documents that are generated from records: a pair of marks, and the command that writes or checks a page.

Used by the records of fuzzing and of ``make test-all``.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True, slots=True)
class Section:
    """The text between two marks of a page; ``source``: the record that it is made of."""

    source: str

    @property
    def begin(self) -> str:
        """The mark before it."""
        return f"<!-- from here on by `make generate`, from {self.source} -->\n"

    @property
    def end(self) -> str:
        """The mark behind it, which is the first one after ``begin``."""
        return "<!-- up to here -->\n"

    def replace(self, page: str, content: str) -> str:
        """Return the page with the section's content; a page without the marks stays as it is."""
        head, begin, rest = page.partition(self.begin)
        _, end, tail = rest.partition(self.end)
        return f"{head}{begin}\n{content}\n{end}{tail}" if begin and end else page


def write_or_check(arguments: Sequence[str], render: Callable[[str], str]) -> int:
    """Write a page as ``render`` makes it of its present text; with ``--check`` return 1 if it differs."""
    parser = argparse.ArgumentParser(description="Write a record into a page.")
    parser.add_argument("--check", action="store_true")
    parser.add_argument("page", type=Path)
    options = parser.parse_args(arguments)
    former = options.page.read_text(encoding="utf-8")
    new = render(former)
    if options.check and new != former:
        sys.stderr.write(f"{options.page} differs from what `make generate` writes\n")
        return 1
    if not options.check:
        options.page.write_text(new, encoding="utf-8")
    return 0
