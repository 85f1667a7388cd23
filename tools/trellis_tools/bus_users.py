"""Writes the user configuration of a NATS server, or checks it: ``make generate``, ``make verify``.

In: a directory. Out: ``accounts.conf`` for one cluster named ``trellis`` and the template of its keys, or an exit
status with the reasons. For other clusters ``trellis bus users`` writes the same.
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path
from typing import Final

from trellis.bus.accounts.accounts import ACCOUNTS_FILE, TEMPLATE_FILE, accounts, keys

CLUSTER: Final = "trellis"


def main(argv: list[str] | None = None) -> int:
    """Run the command and return its exit status."""
    parser = argparse.ArgumentParser(prog="python -m trellis_tools.bus_users", description=__doc__)
    parser.add_argument("directory", type=Path, help="directory of the files: deploy/nats")
    parser.add_argument("--check", action="store_true", help="write nothing; fail if a file differs")
    arguments = parser.parse_args(argv)
    wanted = documents()
    problems = differences(arguments.directory, wanted) if arguments.check else []
    if not arguments.check:
        arguments.directory.mkdir(parents=True, exist_ok=True)
        for name, text in wanted.items():
            (arguments.directory / name).write_text(text)
    sys.stderr.write("".join(f"{problem}\n" for problem in problems))
    return 1 if problems else 0


def documents() -> dict[str, str]:
    """Return the files by name."""
    return {ACCOUNTS_FILE: accounts([CLUSTER]), TEMPLATE_FILE: keys([CLUSTER], {})}


def differences(directory: Path, wanted: dict[str, str]) -> list[str]:
    """Return the files that are missing or out of date."""
    return [
        f"{directory / name}: out of date, run make generate"
        for name, text in wanted.items()
        if not (directory / name).exists() or (directory / name).read_text() != text
    ]


if __name__ == "__main__":
    sys.exit(main())
