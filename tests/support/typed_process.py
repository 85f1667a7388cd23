"""What a process of ``support.typed`` is: ``trellis`` with every command and service imported before it is forked."""

from __future__ import annotations

import importlib
import os
import sys
from pathlib import Path

import typer

from support.suite_accounts import DIRECTORY_VARIABLE, KUBECONFIG_VARIABLE, come_as_accounts
from trellis_bundle import command_line
from trellis_bundle.commands import register
from trellis_bundle.run import SERVICES

register(typer.Typer())  # imports all commands
for _one in SERVICES.values():
    importlib.import_module(f"{_one.package}.app")


def main() -> None:
    """Be ``trellis``, with what is in ``sys.argv``; services come as their accounts, as in any process of tests."""
    if sys.argv[1:2] == ["run"] and KUBECONFIG_VARIABLE in os.environ:
        come_as_accounts(Path(os.environ[KUBECONFIG_VARIABLE]), Path(os.environ[DIRECTORY_VARIABLE]))
    command_line.main()
