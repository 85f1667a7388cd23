"""``trellis secrets``: groups its commands, each in a separate module."""

from __future__ import annotations

import typer

from trellis_cli.secrets.check import check
from trellis_cli.secrets.keys import drop_previous, rotate
from trellis_cli.secrets.roles import roles

app = typer.Typer(help="Check access to Secrets, print its Roles, rotate the key.", no_args_is_help=True)
app.command()(check)
app.command()(roles)
app.command()(rotate)
app.command("drop-previous")(drop_previous)
