"""What a process of ``support.suite.typed`` is: ``trellis`` with all commands and services imported, then forked."""

from __future__ import annotations

import typer

from trellis.services import SERVICES
from trellis_cli import command_line
from trellis_cli.commands import register

register(typer.Typer())  # imports all commands
for _one in SERVICES.values():
    _one.load("app")


def main() -> None:
    """Be ``trellis``, with what is in ``sys.argv``."""
    command_line.main()
