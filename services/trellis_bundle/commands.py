"""Registers every command but ``run`` and ``version``: those of people, which come and go.

In: the application. Out: the commands. Called by ``__main__``, unless the process is to run services.
"""

from __future__ import annotations

import typer

from trellis_bundle.apps import app as apps
from trellis_bundle.breaker import app as breaker
from trellis_bundle.bus_users import app as bus
from trellis_bundle.check import check
from trellis_bundle.controllers_app import app as controllers
from trellis_bundle.crds import app as crds
from trellis_bundle.dead import app as dead
from trellis_bundle.events import app as events
from trellis_bundle.explain import explain
from trellis_bundle.let_go import let_go
from trellis_bundle.local_commands import register as register_local_commands
from trellis_bundle.migrate import app as migrate
from trellis_bundle.nodes import nodes
from trellis_bundle.rollout import app as rollout
from trellis_bundle.secrets_app import app as secrets
from trellis_bundle.status import status
from trellis_bundle.trace import trace


def register(app: typer.Typer) -> None:
    """Add the commands to the application."""
    app.command()(nodes)
    app.command()(status)
    app.command()(explain)
    app.command()(check)
    app.command("let-go")(let_go)
    app.command()(trace)
    app.add_typer(apps, name="apps")
    app.add_typer(rollout, name="rollout")
    app.add_typer(events, name="events")
    app.add_typer(dead, name="dead")
    app.add_typer(breaker, name="breaker")
    app.add_typer(bus, name="bus")
    app.add_typer(crds, name="crds")
    app.add_typer(secrets, name="secrets")
    app.add_typer(controllers, name="controllers")
    app.add_typer(migrate, name="migrate")
    register_local_commands(app)
