"""Writes the subject table into a documentation page, or checks it: ``make generate``, ``make verify``.

In: the subject table and a Markdown file with two marks. Out: the file with a table between the marks, or an exit
status. Invariant: text outside the marks is not changed.
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path
from typing import Final

from trellis.events.subjects import EVENT_SPECS
from trellis_tools.events.schemas import address, schema_file, summary

BEGIN: Final = "<!-- events: written by make generate from shared/trellis/events/subjects.py -->"
END: Final = "<!-- end of events -->"


def main(argv: list[str] | None = None) -> int:
    """Run the command and return its exit status."""
    parser = argparse.ArgumentParser(prog="python -m trellis_tools.events.table", description=__doc__)
    parser.add_argument("page", type=Path, help="page of the table: docs/bus.md")
    parser.add_argument("--schemas", default="../deploy/events", help="directory of the schemas, relative to the page")
    parser.add_argument("--check", action="store_true", help="write nothing; fail if the table differs")
    arguments = parser.parse_args(argv)
    text = arguments.page.read_text()
    if BEGIN not in text or END not in text.partition(BEGIN)[2]:
        sys.stderr.write(f"{arguments.page}: has no place for the table: {BEGIN} and {END}\n")
        return 1
    wanted = with_table(text, arguments.schemas)
    if arguments.check and text != wanted:
        sys.stderr.write(f"{arguments.page}: the table of events is out of date, run make generate\n")
        return 1
    if not arguments.check:
        arguments.page.write_text(wanted)
    return 0


def with_table(text: str, schemas: str) -> str:
    """Return a page with the current table between the marks."""
    before, _, rest = text.partition(BEGIN)
    return f"{before}{BEGIN}\n{subject_table(schemas)}{END}{rest.partition(END)[2]}"


def subject_table(schemas: str) -> str:
    """Return the events as a Markdown table, each with a link to its schema in the directory ``schemas``."""
    rows = [
        f"| `{address(spec).replace('{', '<').replace('}', '>')}` | {summary(spec.model)} "
        f"| `{spec.owner}` | [`{spec.type}`]({schemas}/{schema_file(spec)}) |\n"
        for spec in EVENT_SPECS
    ]
    return "".join(("| subject | event | publisher | type and schema |\n", "|---|---|---|---|\n", *rows))


if __name__ == "__main__":
    sys.exit(main())
