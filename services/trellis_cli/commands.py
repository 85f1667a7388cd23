"""The commands of ``trellis`` with their one-line help; the module of a command is imported when it is called.

In: the name of a command. Out: the command. Called by ``command_line``, and by tools that need all commands.
Invariant: the help of ``trellis`` imports no command. ``dev`` and ``demo`` belong to another distribution; if it is
missing, they print how to install it.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final

import typer
from typer.core import TyperCommand

from trellis.runtime import gc
from trellis_cli.common import additions
from trellis_cli.common.messages import EXIT_FAILED, print_error
from trellis_cli.common.usage import CommandGroup, usage_errors, word_arguments


@dataclass(frozen=True, slots=True)
class Command:
    """One command. ``place``: module and attribute, "" in another distribution; ``help``: first line of its help."""

    place: str
    help: str


COMMANDS: Final = {
    "run": Command("run.command:run", "Run services in one process."),
    "nodes": Command("nodes:nodes", "List nodes with their opt-in, state and last error."),
    "status": Command("status.command:status", "Show the state of the installation, with causes."),
    "explain": Command("explain.command:explain", "Show the cause of an object's state and the resolution."),
    "top": Command("top.command:top", "Watch nodes, Shims, hosts, applications and Services."),
    "check": Command("check.command:check", "Check that the services and the bus are ready."),
    "uninstall": Command("uninstall.command:uninstall", "Remove the finalizers of Trellis from all objects."),
    "trace": Command("trace.command:trace", "Show the spans of one change as a tree, from Jaeger."),
    "apps": Command("apps.command:app", "List, compare with wadm and roll back applications."),
    "shims": Command("shims.command:app", "List known Wasm runtimes, and create Shims of them."),
    "rollout": Command("rollout.command:app", "Manage the rollout of a Shim."),
    "events": Command("events:app", "Follow and replay the events on the bus."),
    "dead-letters": Command("dead_letters.command:app", "List, show and replay dead-lettered messages."),
    "circuit-breaker": Command("circuit_breaker.command:app", "Show paused deletions, and permit them."),
    "bus": Command("bus.users:app", "Create the users of the bus."),
    "crds": Command("crds:app", "Check and apply the CRDs of Trellis."),
    "secrets": Command("secrets.command:app", "Check access to Secrets, print its Roles, rotate the key."),
    "controllers": Command("controllers.command:app", "List Wasm controllers, print their Roles."),
    "migrate": Command("migrate.command:app", "Migrate from a retired operator, or to wasmCloud v2."),
    "completion": Command("completion:completion", "Print the completion script of a shell."),
    "demo": Command("", "Run a demo on simulated nodes."),
    "dev": Command("", "Run local clusters."),
}
RENAMED: Final = {"breaker": "circuit-breaker", "dead": "dead-letters", "let-go": "uninstall --remove-finalizers"}
"""Current commands by their former names, which are rejected."""


class Commands(CommandGroup):
    """The program. It has the name and help of each command, and imports a command when it is called."""

    def __init__(self, **attributes: Any) -> None:  # noqa: ANN401 (as of typer)
        """Add each command as a name with its help."""
        super().__init__(**attributes)
        for name, item in COMMANDS.items():
            self.commands.setdefault(name, TyperCommand(name, help=item.help))

    def make_context(self, *args: Any, **extra: Any) -> Any:  # noqa: ANN401 (click's types in typer are private)
        """Read the options of the program: typer imports pydantic for it."""
        with gc.importing(), usage_errors():
            return super().make_context(*args, **extra)

    def resolve_command(self, ctx: Any, args: list[str]) -> Any:  # noqa: ANN401 (click's types in typer are private)
        """Return the name, the command and its arguments."""
        name, command, rest = super().resolve_command(ctx, args)
        return name, load(name) if name in COMMANDS else command, rest

    def invoke(self, ctx: Any) -> Any:  # noqa: ANN401 (as above)
        """Run a command; its usage errors have the form of all errors."""
        with usage_errors():
            return super().invoke(ctx)


def load(name: str) -> Any:  # noqa: ANN401 (as above)
    """Import a command and return it."""
    with gc.importing():
        return _imported(name)


def _imported(name: str) -> Any:  # noqa: ANN401 (as above)
    module, _, attribute = COMMANDS[name].place.partition(":")
    found: typer.Typer | Callable[..., Any] | None
    if module:
        found = getattr(importlib.import_module(f"trellis_cli.{module}"), attribute)
    else:
        found = additions.addition(additions.COMMANDS, name)
    around = typer.Typer(rich_markup_mode=None, add_completion=False)
    if found is None:
        around.command(name, context_settings={"allow_extra_args": True, "ignore_unknown_options": True})(_missing)
    elif isinstance(found, typer.Typer):
        around.add_typer(found, name=name, cls=CommandGroup)
    else:
        around.command(name)(found)
    group: Any = typer.main.get_group(around)
    word_arguments(group.commands[name])
    _summarise(group.commands[name])
    return group.commands[name]


def _summarise(command: Any) -> None:  # noqa: ANN401 (as above)
    """Set the summaries in the list of commands: whole first paragraphs, which click would cut off."""
    for found in getattr(command, "commands", {}).values():
        found.short_help = found.short_help or " ".join((found.help or "").partition("\n\n")[0].split())
        _summarise(found)


def _missing() -> None:
    """Report the missing distribution `trellis-wasm-dev`."""
    print_error(f"this command needs the development tools: {additions.HOW}")
    raise SystemExit(EXIT_FAILED)
