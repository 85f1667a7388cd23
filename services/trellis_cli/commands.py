"""Which commands there are, and where; each is imported when it is asked for.

In: the application, the name of a command. Out: that command, or all. Called by ``command_line``, and by what documents
or tests all of them. ``dev`` and ``demo`` are of another distribution; without it they say how to get it.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable
from typing import Any, Final

import typer

from trellis_cli.common import additions
from trellis_cli.common.errors import EXIT_FAILED, say

COMMANDS: Final = {
    "run": "run.command:run",
    "nodes": "nodes:nodes",
    "status": "status.command:status",
    "explain": "explain.command:explain",
    "top": "top.command:top",
    "check": "check.command:check",
    "uninstall": "uninstall.command:uninstall",
    "trace": "trace.command:trace",
    "apps": "apps.command:app",
    "rollout": "rollout.command:app",
    "events": "events:app",
    "dead-letters": "dead_letters.command:app",
    "circuit-breaker": "circuit_breaker.command:app",
    "bus": "bus.users:app",
    "crds": "crds:app",
    "secrets": "secrets.command:app",
    "controllers": "controllers.command:app",
    "migrate": "migrate.command:app",
}
"""Module and attribute by the command's name; an attribute ``app`` has commands of its own."""
RENAMED: Final = {"breaker": "circuit-breaker", "dead": "dead-letters", "let-go": "uninstall --remove-finalizers"}
"""Present commands by their former names, which are refused."""
ADDED: Final = ("demo", "dev")
"""Commands of the distribution ``trellis-wasm-dev``."""


def register(app: typer.Typer, asked: str = "") -> None:
    """Add the command that is asked for to the application; all of them for help, or for what is none."""
    names = [*COMMANDS, *ADDED]
    for name in [asked] if asked in names else names:
        found = _imported(COMMANDS[name]) if name in COMMANDS else additions.addition(additions.COMMANDS, name)
        if found is None:
            app.command(name, context_settings={"allow_extra_args": True, "ignore_unknown_options": True})(_missing)
        elif isinstance(found, typer.Typer):
            app.add_typer(found, name=name)
        else:
            app.command(name)(found)


def _imported(place: str) -> typer.Typer | Callable[..., Any]:
    module, _, attribute = place.partition(":")
    found: typer.Typer | Callable[..., Any] = getattr(importlib.import_module(f"trellis_cli.{module}"), attribute)
    return found


def _missing() -> None:
    """Need the distribution `trellis-wasm-dev`, which is not installed."""
    say(f"this needs a control plane on this machine: {additions.HOW}")
    raise SystemExit(EXIT_FAILED)
