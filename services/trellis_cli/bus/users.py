"""``trellis bus users``: a key for each user of the bus, and the configuration of the NATS server.

In: a directory, names of clusters. Out: ``accounts.conf``, ``keys.conf`` and a seed file per user; ``routes.conf`` for
a cluster of servers. Called by the command line. Invariants: an existing key or password is never replaced; only its
owner can read a seed or a password; neither is printed.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Annotated, Final

import typer

from trellis.bus.accounts.accounts import (
    ACCOUNTS_FILE,
    KEYS_FILE,
    ROUTES_FILE,
    accounts,
    keys,
    public_keys,
    routes,
    routes_password,
)
from trellis.bus.accounts.permissions import User, users
from trellis.config.nats_credentials import Credentials, CredentialsError, Kind, new_routes_password, new_seed
from trellis.config.settings import ServiceSettings, load
from trellis_cli.bus.secret import secret
from trellis_cli.common.errors import CommandError, exit_on_error
from trellis_cli.common.output import DocumentOption, Format, make_table, print_document, print_result

app = typer.Typer(help="Create the users of the bus.", no_args_is_help=True)

SEEDS: Final = "seeds"
_ELSEWHERE: Final = "(in another directory)"


@dataclass(frozen=True, slots=True)
class UserRow:
    """One user: its public key, and the file with its seed, "" if the file is in another directory."""

    name: str
    description: str
    public_key: str
    seed_file: str
    created: bool


app.command("secret")(secret)


@app.command("users")
def users_command(
    directory: Annotated[Path, typer.Argument(help="directory of the files")],
    cluster: Annotated[
        list[str], typer.Option(metavar="NAME", help="name of a cluster on the bus, its TRELLIS_CLUSTER (repeatable)")
    ],
    replicas: Annotated[int, typer.Option(min=1, max=5, help="replicas of each JetStream stream")] = 1,
    route: Annotated[
        list[str] | None, typer.Option(metavar="HOST:PORT", help="cluster port of each server (repeatable)")
    ] = None,
    output: DocumentOption = Format.TABLE,
) -> None:
    """Create a key for each user of the bus, and the configuration of the NATS server.

    Writes `accounts.conf` and `keys.conf` (public keys) for the server, with --route also `routes.conf` for its block
    `cluster`, and `seeds/<user>.nk` for the services, which read it by TRELLIS_NATS_NKEY_FILE. Existing keys are kept.
    To rotate a key, delete its seed file and its line in `keys.conf`, run the command again and reload the server
    (`nats-server --signal reload`). JSON: `[{name, description, public_key, seed_file, created}]`.
    """
    with exit_on_error():
        clusters = list(dict.fromkeys(_name(name) for name in cluster))
        try:
            rows = write(directory, clusters, replicas, route or ())
        except OSError as error:
            raise CommandError(f"{error.filename or directory}: {error.strerror}") from None
        _show(rows, output)


def write(directory: Path, clusters: list[str], replicas: int, hosts: Sequence[str] = ()) -> list[UserRow]:
    """Write the files and return one row per user; ``hosts``: ``host:port`` of the servers of a cluster.

    Raises:
        CommandError: a seed file is invalid, or an existing cluster was not named.
        OSError: the directory cannot be written.
    """
    seeds, path = directory / SEEDS, directory / KEYS_FILE
    known = public_keys(path.read_text()) if path.exists() else {}
    unnamed = sorted(known.keys() - {user.variable for user in users(clusters)})
    if unnamed:
        raise CommandError(
            f"users in {path} would lose access: {', '.join(unnamed)}; name their clusters with --cluster too, or "
            "delete their lines"
        )
    seeds.mkdir(mode=0o700, parents=True, exist_ok=True)
    rows = [_row(user, seeds / f"{user.name}.nk", known) for user in users(clusters)]
    path.write_text(keys(clusters, {row.name: row.public_key for row in rows}))
    (directory / ACCOUNTS_FILE).write_text(accounts(clusters, replicas))
    if hosts:
        _write_routes(directory / ROUTES_FILE, hosts)
    return rows


def _write_routes(path: Path, hosts: Sequence[str]) -> None:
    password = routes_password(path.read_text()) if path.exists() else ""
    with os.fdopen(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), "w") as file:
        file.write(routes(password or new_routes_password(), hosts))


def _row(user: User, path: Path, known: dict[str, str]) -> UserRow:
    if not path.exists() and user.variable in known:
        return UserRow(user.name, user.about, known[user.variable], "", created=False)
    created = not path.exists()
    if created:
        with os.fdopen(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "w") as file:
            file.write(new_seed() + "\n")
    try:
        public = Credentials(path, Kind.NKEY).read().public_key
    except CredentialsError as error:
        raise CommandError(f"{path}: {error}; delete it to create a new one") from None
    return UserRow(user.name, user.about, public, str(path), created=created)


def _name(name: str) -> str:
    """Return the name of a cluster. Raise SettingsError for a name that TRELLIS_CLUSTER does not accept."""
    return load(ServiceSettings, cluster=name).cluster or name


def _show(rows: list[UserRow], output: Format) -> None:
    if output.structured:
        print_document(output, [asdict(row) for row in rows])
        return
    table = make_table("USER", "PUBLIC KEY", "SEED FILE", "STATUS", fold={"USER", "PUBLIC KEY", "SEED FILE"})
    for row in rows:
        table.add_row(row.name, row.public_key, row.seed_file or _ELSEWHERE, "created" if row.created else "unchanged")
    print_result(table)
