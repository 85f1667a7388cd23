"""Writes the event schemas to a directory, or checks that they are up to date: ``make generate``, ``make verify``.

In: the subject table and a directory. Out: JSON files, or an exit status with the reasons.
Invariant: a published schema is never replaced by an incompatible one; a breaking change is a new version.
"""

from __future__ import annotations

import argparse
import json
import sys
from pathlib import Path

from trellis.events.compatibility import breaking_changes, moved_channels
from trellis_tools.events.schemas import ASYNCAPI_FILE, Document, documents


def main(argv: list[str] | None = None) -> int:
    """Run the command and return its exit status."""
    parser = argparse.ArgumentParser(prog="python -m trellis_tools.events.generate", description=__doc__)
    parser.add_argument("directory", type=Path, help="directory of the files: deploy/events")
    parser.add_argument("--check", action="store_true", help="write nothing; fail if a file differs")
    arguments = parser.parse_args(argv)
    wanted = documents()
    problems = breaks(arguments.directory, wanted)
    if not problems:
        problems = differences(arguments.directory, wanted) if arguments.check else []
    if problems:
        sys.stderr.write("".join(f"{problem}\n" for problem in problems))
        return 1
    if not arguments.check:
        write(arguments.directory, wanted)
    return 0


def breaks(directory: Path, wanted: dict[str, Document]) -> list[str]:
    """Return the incompatible changes of the documents in the directory."""
    problems = []
    for path in sorted(directory.glob("*.json")):
        if path.name == ASYNCAPI_FILE:
            problems += [
                f"{path}: {change}; subscribers filter on it: publish the event under another name in addition"
                for change in moved_channels(json.loads(path.read_text()), wanted[ASYNCAPI_FILE])
            ]
            continue
        if path.name not in wanted:
            problems.append(f"{path}: the type is missing; restore it, or delete the file if it was never published")
            continue
        problems += [
            f"{path}: {change}; add a new version of the type (version: ClassVar[int] = 2)"
            for change in breaking_changes(json.loads(path.read_text()), wanted[path.name])
        ]
    return problems


def differences(directory: Path, wanted: dict[str, Document]) -> list[str]:
    """Return the files that are missing or out of date."""
    return [
        f"{directory / name}: out of date, run make generate"
        for name, document in wanted.items()
        if not (directory / name).exists() or (directory / name).read_text() != render(document)
    ]


def write(directory: Path, wanted: dict[str, Document]) -> None:
    """Write all files; a missing directory is created."""
    directory.mkdir(parents=True, exist_ok=True)
    for name, document in wanted.items():
        (directory / name).write_text(render(document))


def render(document: Document) -> str:
    """Return the text of a document in its file."""
    return json.dumps(document, indent=2, ensure_ascii=False) + "\n"


if __name__ == "__main__":
    sys.exit(main())
