"""Run the command of the chart's Job: the Secret of the bus, its certificates, and credentials of users.

In: the rendered Job. Out: the contents of both Secrets, as the command writes them; files with the seeds of users.
Called by tests that run the chart's servers without a cluster.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from support.chart.rendered import Manifest
from trellis.bus.accounts.accounts import ACCOUNTS_FILE, KEYS_FILE, ROUTES_FILE
from trellis.config.nats_credentials import Credentials, Kind, new_routes_password
from trellis_cli.bus.certificates import make_certificate
from trellis_cli.bus.secret import Servers, contents, seed_key

SERVERS_FILES = (ACCOUNTS_FILE, KEYS_FILE, ROUTES_FILE)
"""What a server reads of the Secret."""


def job_of(found: Sequence[Manifest]) -> Manifest:
    """Return the Job that makes the keys."""
    [job] = [item for item in found if item["kind"] == "Job"]
    return job


def options_of(found: Sequence[Manifest], name: str) -> list[str]:
    """Return the values of an option of the Job's command."""
    [container] = job_of(found)["spec"]["template"]["spec"]["containers"]
    return [argument.partition("=")[2] for argument in container["command"] if argument.startswith(f"--{name}=")]


def users_of(found: Sequence[Manifest]) -> dict[str, str]:
    """Return what the Job writes into the Secret of the bus. ``found``: the hooks before an installation."""
    [cluster], [replicas] = options_of(found, "cluster"), options_of(found, "replicas")
    servers = Servers(cluster, int(replicas), tuple(options_of(found, "route")))
    return contents(servers, {}, new_routes_password())


def certificates_of(found: Sequence[Manifest]) -> dict[str, str]:
    """Return the certificates that the Job makes, {} if it makes none."""
    return make_certificate(options_of(found, "tls-name")) if options_of(found, "tls-secret") else {}


def credentials_of(users: dict[str, str], user: str, directory: Path, authority: Path | None = None) -> Credentials:
    """Return how a service or the command line connects. ``user``: ``node_watcher.<cluster>``, ``cli``."""
    directory.mkdir(parents=True, exist_ok=True)
    path = directory / seed_key(user)
    path.write_text(users[seed_key(user)], encoding="utf-8")
    return Credentials(path, Kind.NKEY, authority)
