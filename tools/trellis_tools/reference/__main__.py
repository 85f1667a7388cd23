"""Writes the reference pages, or checks them: ``make generate``, ``make verify``.

In: the directory of the pages, and the one of deploy/rbac. Out: Markdown files, or an exit status with the reasons.
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path
from typing import Final

import yaml

from trellis.crds.kinds import BY_DIRECTORY, make_definition
from trellis.events.envelope import event_type
from trellis.services import SERVICES
from trellis_cli.command_line import all_commands
from trellis_tools.reference.commands_page import commands_page
from trellis_tools.reference.events_page import events_page
from trellis_tools.reference.kind_page import kind_page
from trellis_tools.reference.permissions_page import permissions_page
from trellis_tools.reference.settings_page import settings_page

SETTINGS: Final = {package: SERVICES[package].settings for package in sorted(SERVICES)}


def main(argv: list[str] | None = None) -> int:
    """Run the command and return its exit status."""
    parser = argparse.ArgumentParser(prog="python -m trellis_tools.reference", description=__doc__)
    parser.add_argument("directory", type=Path, help="directory of the pages: docs/reference")
    parser.add_argument("permissions", type=Path, help="directory of the permissions: deploy/rbac")
    parser.add_argument("--check", action="store_true", help="write nothing; fail if a page differs")
    arguments = parser.parse_args(argv)
    wanted = pages(arguments.permissions)
    if arguments.check:
        problems = differences(arguments.directory, wanted)
        sys.stderr.write("".join(f"{problem}\n" for problem in problems))
        return 1 if problems else 0
    for name, text in wanted.items():
        path = arguments.directory / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    return 0


def pages(permissions: Path) -> dict[str, str]:
    """Return the text of each page by its path below the directory."""
    definitions = [make_definition(kind) for kinds in BY_DIRECTORY.values() for kind in kinds]
    found = {f"crds/{definition['spec']['names']['singular']}.md": kind_page(definition) for definition in definitions}
    files = {path.stem: list(yaml.safe_load_all(path.read_text())) for path in sorted(permissions.glob("*.yaml"))}
    return found | {
        "events.md": events_page(subscribers()),
        "settings.md": settings_page(SETTINGS),
        "commands.md": commands_page(all_commands()),
        "permissions.md": permissions_page(files),
    }


def subscribers() -> dict[str, list[str]]:
    """Return the subscribed services by event type."""
    found: dict[str, list[str]] = {}
    for package, service in sorted(SERVICES.items()):
        for model in service.load("handlers").CONSUMED if service.subscriptions else ():
            found.setdefault(event_type(model), []).append(package)
    return found


def differences(directory: Path, wanted: dict[str, str]) -> list[str]:
    """Return the pages that are missing, out of date, or unexpected."""
    present = {path.relative_to(directory).as_posix(): path.read_text() for path in sorted(directory.rglob("*.md"))}
    stale = [
        f"{directory / name}: out of date, run make generate" for name in wanted if present.get(name) != wanted[name]
    ]
    return stale + [f"{directory / name}: unexpected file, delete it" for name in present if name not in wanted]


if __name__ == "__main__":
    sys.exit(main())
