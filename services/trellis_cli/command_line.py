"""The ``trellis`` command line: the program, its version, and the dispatch of commands.

In: arguments. Out: the effects of the command. Called by ``__main__``. Invariant: a command imports only its own
modules: ``run`` is a long-running process with little memory, and all other commands start often.
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
"""Environment variable of completion scripts with the requested action."""

app = typer.Typer(
    cls=Commands,
    name=PROGRAM,
    help="Run WebAssembly on Kubernetes: nodes, lattices, applications, controllers.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,  # plain text for help and errors, as in kubectl; rich is slow to import
    context_settings={"help_option_names": ["-h", "--help"]},
)


def _version() -> str:
    from importlib.metadata import version as of_distribution  # noqa: PLC0415 - slower than the rest of the help

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


def all_commands() -> Any:  # noqa: ANN401 (click's types in typer are private)
    """Return the program with every command imported, for tools and tests."""
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
        from typer._completion_classes import completion_init  # noqa: PLC0415 - only for completion

        completion_init()
    plugin = Path(sys.argv[0]).name.startswith("kubectl-")
    app(prog_name=f"kubectl {PROGRAM}" if plugin else PROGRAM, complete_var=COMPLETE)
