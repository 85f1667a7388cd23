"""The ``trellis`` command line: the program, its version, and the command that is called.

In: arguments. Out: the effects of the command. Called by ``__main__``. Invariant: no command imports the modules of
another: ``run`` lives long in little memory, and the others start often.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import Annotated, Any, Final

import typer

from trellis_cli.commands import COMMANDS, RENAMED, Commands, load
from trellis_cli.common.messages import EXIT_USAGE, print_error

PROGRAM: Final = "trellis"
COMPLETE: Final = "_TRELLIS_COMPLETE"
"""Set by completion scripts to what they ask for."""

app = typer.Typer(
    cls=Commands,
    name=PROGRAM,
    help="Run WebAssembly on Kubernetes: nodes, lattices, applications, controllers.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,  # help and errors as plain text, as of kubectl; rich takes time to import
    context_settings={"help_option_names": ["-h", "--help"]},
)


def _version() -> str:
    from importlib.metadata import version as of_distribution  # noqa: PLC0415 - takes longer than all of help

    return of_distribution("trellis-wasm")


def _print_version(wanted: bool) -> None:
    if wanted:
        typer.echo(_version())
        raise typer.Exit


@app.callback()
def _program(
    version: Annotated[
        bool, typer.Option("--version", callback=_print_version, is_eager=True, help="Print the version.")
    ] = False,
) -> None:
    pass


@app.command("version")
def print_version() -> None:
    """Print the version."""
    typer.echo(_version())


def all_commands() -> Any:  # noqa: ANN401 (typer keeps click's types to itself)
    """Return the program with every command imported, for tools and tests that read them."""
    program: Any = typer.main.get_command(app)
    program.commands |= {name: load(name) for name in COMMANDS}
    return program


def main() -> None:
    """Run the command that the arguments name."""
    called = sys.argv[1] if len(sys.argv) > 1 else ""
    if called in RENAMED:
        print_error(f'command "trellis {called}": renamed to "trellis {RENAMED[called]}"')
        raise SystemExit(EXIT_USAGE)
    if COMPLETE in os.environ:
        from typer._completion_classes import completion_init  # noqa: PLC0415 - only while a shell completes

        completion_init()
    plugin = Path(sys.argv[0]).name.startswith("kubectl-")
    app(prog_name=f"kubectl {PROGRAM}" if plugin else PROGRAM, complete_var=COMPLETE)
