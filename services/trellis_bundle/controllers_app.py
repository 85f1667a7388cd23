"""``trellis controllers``: the group of its commands, each of which has a module of its own."""

from __future__ import annotations

import typer

from trellis_bundle.controllers_roles import roles

app = typer.Typer(help="Controllers in Wasm: the rights that they need.", no_args_is_help=True)
app.command()(roles)
