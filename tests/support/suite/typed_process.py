"""What a process of ``support.suite.typed`` is: ``trellis`` with all commands and services imported, then forked."""

from __future__ import annotations

import importlib

import typer

from trellis_cli import command_line
from trellis_cli.commands import register
from trellis_cli.run.services import SERVICES

register(typer.Typer())  # imports all commands
for _one in SERVICES.values():
    importlib.import_module(f"{_one.package}.app")


def main() -> None:
    """Be ``trellis``, with what is in ``sys.argv``."""
    command_line.main()
