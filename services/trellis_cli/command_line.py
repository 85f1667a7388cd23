"""The ``trellis`` command line: the program, its version, and of its commands the one that is asked for.

In: arguments. Out: what the command does. Called by ``__main__``. Invariant: no command imports what another needs:
``run`` lives long in little memory, and the others are typed again and again.
"""

from __future__ import annotations

import sys
from importlib.metadata import version as distribution_version

import typer

from trellis.runtime import gc as heap
from trellis_cli.commands import RENAMED, register
from trellis_cli.common.errors import EXIT_USAGE, say

app = typer.Typer(
    name="trellis",
    help="Make Kubernetes run WebAssembly: nodes, lattices, applications, controllers.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    rich_markup_mode="markdown",
)


@app.callback()
def _program() -> None:  # with it a program that has one command is still asked for that command by its name
    pass


@app.command()
def version() -> None:
    """Print the version."""
    typer.echo(distribution_version("trellis-wasm"))


def main() -> None:
    """Do what the arguments ask for."""
    asked = sys.argv[1] if len(sys.argv) > 1 else ""
    if asked in RENAMED:
        say(f"trellis {asked}: renamed to trellis {RENAMED[asked]}")
        raise SystemExit(EXIT_USAGE)
    if asked != "version":
        with heap.importing():
            register(app, asked)
    app()
