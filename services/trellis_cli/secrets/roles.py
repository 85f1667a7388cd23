"""``trellis secrets roles``: Roles for an administrator, which permit reading Secrets as an account.

In: flags. Out: manifests as YAML or JSON, for ``kubectl apply -f -``. Called by the command line; needs no cluster.
Invariant: the output grants only what the flags name.
"""

from __future__ import annotations

import re
from typing import Annotated, Any, Final

import typer

from secrets_backend.domain.resources import Reader, account_of, make_impersonation, make_reading
from trellis.config.settings import SettingsError
from trellis_cli.common.complete import complete_namespace
from trellis_cli.common.errors import exit_on_error
from trellis_cli.common.output import Format, ManifestOption, print_manifests
from trellis_cli.common.settings import client_settings

_NAMESPACE: Final = re.compile(r"[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?")
_NAME: Final = re.compile(r"[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*")
_NAME_MAX: Final = 253

Manifest = dict[str, Any]


def roles(
    namespace: Annotated[
        str,
        typer.Option("--namespace", "-n", help="namespace of the Secrets", autocompletion=complete_namespace),
    ],
    service_account: Annotated[
        list[str] | None,
        typer.Option("--service-account", "-a", metavar="NAME", help="ServiceAccount that reads them (repeatable)"),
    ] = None,
    user: Annotated[
        list[str] | None, typer.Option("--user", metavar="NAME", help="user that reads them, by full name (repeatable)")
    ] = None,
    secret: Annotated[
        list[str] | None,
        typer.Option(
            "--secret", "-s", metavar="NAME", help="Secret to read (repeatable); default: no permission to read"
        ),
    ] = None,
    output: ManifestOption = Format.YAML,
) -> None:
    """Print the Roles to read Secrets of a namespace as an account, for `kubectl apply -f -`.

    For each account: a Role that permits secrets_backend to impersonate it, and with --secret a Role that permits it to
    get these Secrets, each with its binding. For a user the first is a ClusterRole. The account need not exist.
    """
    with exit_on_error():
        home = client_settings().namespace
        readers = readers_of(namespace, service_account or [], user or [])
        for item in secret or []:
            _checked("--secret", item, "a Secret")
        found = manifests_of(readers, secret or [], home)
        print_manifests(output, found)


def readers_of(namespace: str, accounts: list[str], users: list[str]) -> list[Reader]:
    """Return the accounts and users that read Secrets of a namespace, without duplicates.

    Raises:
        SettingsError: a name is invalid, or no account is given.
    """
    if not _NAMESPACE.fullmatch(namespace):
        raise SettingsError(f"--namespace: has {namespace!r}, needs the name of a namespace")
    if not accounts and not users:
        raise SettingsError("--service-account: is missing, or --user (both repeatable)")
    for account in accounts:
        _checked("--service-account", account, "one ServiceAccount")
    for account in users:
        if (
            not account.isprintable()
            or not account.strip()
            or (account.startswith("system:") and not account_of(account))
        ):
            raise SettingsError(f"--user: has {account!r}, needs a user; names with system: are reserved")
    readers = [Reader(namespace, account) for account in accounts] + [
        Reader(namespace, user, is_user=True) for user in users
    ]
    return list(dict.fromkeys(readers))


def manifests_of(readers: list[Reader], secrets: list[str], home: str) -> list[Manifest]:
    """Return the roles and bindings by reader; ``home``: namespace of the installation."""
    found: list[Manifest] = []
    for reader in readers:
        found += make_impersonation(reader, home)
        found += make_reading(reader, secrets) if secrets else []
    return found


def _checked(option: str, name: str, what: str) -> None:
    if len(name) > _NAME_MAX or not _NAME.fullmatch(name):
        raise SettingsError(f"{option}: has {name!r}, needs the name of {what}")
