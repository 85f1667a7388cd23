"""``trellis run``: parses the flags and runs the services."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from trellis.config.errors import SettingsError
from trellis_cli.common.messages import EXIT_USAGE, print_error
from trellis_cli.common.options import KubeconfigOption
from trellis_cli.run.services import NAMED, RunFlags
from trellis_cli.run.services import run as run_chosen


def run(
    services: Annotated[
        list[str] | None,
        typer.Argument(metavar="SERVICE", help="of " + ", ".join(NAMED) + "; default: all except the console"),
    ] = None,
    kubeconfig: KubeconfigOption = None,
    nats_url: Annotated[str | None, typer.Option(help="address of the bus [env: TRELLIS_NATS_URL]")] = None,
    cluster: Annotated[str | None, typer.Option(help="name of the cluster on the bus [env: TRELLIS_CLUSTER]")] = None,
    health_port: Annotated[
        int | None, typer.Option(help="port of /readyz, /livez and /metrics [env: TRELLIS_HEALTH_PORT]")
    ] = None,
    own_nats: Annotated[
        Path | None, typer.Option(metavar="DIR", help="start a nats-server with its store in this directory")
    ] = None,
) -> None:
    """Run services in one process.

    Every setting is also a TRELLIS_* variable.
    """
    try:
        run_chosen(services or [], RunFlags(kubeconfig, nats_url, cluster, health_port, own_nats))
    except SettingsError as error:
        for problem in error.problems:
            print_error(problem)
        raise SystemExit(EXIT_USAGE) from None
