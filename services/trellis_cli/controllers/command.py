"""``trellis controllers``: lists controllers, and groups their commands, each in a separate module."""

from __future__ import annotations

import typer

from trellis_cli.controllers.roles import roles
from trellis_cli.controllers.table import controllers

app = typer.Typer(help="List Wasm controllers, print their Roles.")
app.callback(invoke_without_command=True)(controllers)
app.command()(roles)
