"""The process of ``support.suite.typed``: ``trellis`` with all commands and services imported, then forked."""

from __future__ import annotations

from trellis.services import SERVICES
from trellis_cli import command_line

command_line.all_commands()  # imports them
for _one in SERVICES.values():
    _one.load("app")


def main() -> None:
    """Be ``trellis``, with what is in ``sys.argv``."""
    command_line.main()
