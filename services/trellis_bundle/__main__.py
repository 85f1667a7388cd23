"""The ``trellis`` command line."""

from __future__ import annotations

import sys
from importlib.metadata import version as distribution_version
from pathlib import Path
from typing import Annotated

import typer

from trellis.settings import exit_on_settings_error
from trellis_bundle.run import SERVICES, RunFlags
from trellis_bundle.run import run as run_chosen

app = typer.Typer(
    name="trellis",
    help="Make Kubernetes run WebAssembly: nodes, lattices, applications, controllers.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    rich_markup_mode="markdown",
)


@app.command()
def run(
    services: Annotated[
        list[str] | None,
        typer.Argument(metavar="[SERVICE]...", help="of " + ", ".join(SERVICES) + "; none is all"),
    ] = None,
    kubeconfig: Annotated[Path | None, typer.Option(help="kubeconfig file [env: TRELLIS_KUBECONFIG]")] = None,
    nats_url: Annotated[str | None, typer.Option(help="the bus [env: TRELLIS_NATS_URL]")] = None,
    cluster: Annotated[str | None, typer.Option(help="the cluster's name on the bus [env: TRELLIS_CLUSTER]")] = None,
    health_port: Annotated[
        int | None, typer.Option(help="port of /readyz, /livez and /metrics [env: TRELLIS_HEALTH_PORT]")
    ] = None,
    own_nats: Annotated[
        Path | None, typer.Option(metavar="DIR", help="bring a nats-server along, its store in this directory")
    ] = None,
) -> None:
    """Run services in one process; every setting is also a TRELLIS_* variable."""
    with exit_on_settings_error():
        run_chosen(services or [], RunFlags(kubeconfig, nats_url, cluster, health_port, own_nats))


@app.command()
def version() -> None:
    """Print the version."""
    typer.echo(distribution_version("trellis-wasm"))


def main() -> None:
    """Entry point of the console script."""
    if sys.argv[1:2] != ["run"]:  # the one that lives long: what the others import would cost it 16 MiB
        from trellis_bundle.commands import register  # noqa: PLC0415 - as above

        register(app)
    app()


if __name__ == "__main__":
    main()
