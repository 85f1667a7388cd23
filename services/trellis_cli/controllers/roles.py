"""``trellis controllers roles``: Roles for an administrator, which permit controllers to act as an account.

In: flags. Out: manifests as YAML or JSON, for ``kubectl apply -f -``. Called by the command line; needs no cluster.
Invariant: the output grants only what the flags name.
"""

from __future__ import annotations

import re
from typing import Annotated, Final

import typer

from controller_host.domain.resources import Actor, Manifest, Watched, make_impersonation, make_seeing
from trellis.config.settings import SettingsError
from trellis_cli.common.complete import complete_namespace
from trellis_cli.common.errors import exit_on_error
from trellis_cli.common.output import Format, ManifestOption, print_manifests
from trellis_cli.common.settings import client_settings

_NAMESPACE: Final = re.compile(r"[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?")
_NAME: Final = re.compile(r"[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*")
_RESOURCE: Final = re.compile(r"(?P<plural>[a-z]([-a-z0-9]*[a-z0-9])?)(\.(?P<group>[a-z0-9]([-a-z0-9.]*[a-z0-9])?))?")
_NAME_MAX: Final = 253


def roles(
    namespace: Annotated[
        str,
        typer.Option(
            "--namespace",
            "-n",
            help="namespace of the controllers and their account",
            autocompletion=complete_namespace,
        ),
    ],
    service_account: Annotated[
        list[str] | None,
        typer.Option("--service-account", "-a", metavar="NAME", help="ServiceAccount of the controllers (repeatable)"),
    ] = None,
    watch: Annotated[
        list[str] | None,
        typer.Option(
            "--watch",
            metavar="RESOURCE",
            help="resource to list and watch, as jobs.batch (repeatable); default: none",
        ),
    ] = None,
    output: ManifestOption = Format.YAML,
) -> None:
    """Print the Roles for controllers of a namespace that act as an account, for `kubectl apply -f -`.

    For each account: a Role that permits controller_host to impersonate it, and with --watch a Role that permits it to
    get, list and watch these resources of its namespace, each with its binding. The owner of the namespace grants all
    other permissions.
    """
    with exit_on_error():
        home = client_settings().namespace
        found = manifests_of(
            actors_of(namespace, service_account or []), [_watched(item) for item in watch or []], home
        )
        print_manifests(output, found)


def actors_of(namespace: str, accounts: list[str]) -> list[Actor]:
    """Return the accounts that controllers of a namespace act as, without duplicates.

    Raises:
        SettingsError: a name is invalid, or no account is given.
    """
    if not _NAMESPACE.fullmatch(namespace):
        raise SettingsError(f"--namespace: has {namespace!r}, needs the name of a namespace")
    if not accounts:
        raise SettingsError("--service-account: is missing (repeatable)")
    for account in accounts:
        if len(account) > _NAME_MAX or not _NAME.fullmatch(account):
            raise SettingsError(f"--service-account: has {account!r}, needs the name of one ServiceAccount")
    return [Actor(namespace, fromkey) for fromkey in dict.fromkeys(accounts)]


def manifests_of(actors: list[Actor], watched: list[Watched], home: str) -> list[Manifest]:
    """Return the roles and bindings by account; ``home``: namespace of the installation."""
    found: list[Manifest] = []
    for actor in actors:
        found += make_impersonation(actor, home)
        found += make_seeing(actor, sorted(set(watched))) if watched else []
    return found


def _watched(text: str) -> Watched:
    found = _RESOURCE.fullmatch(text)
    if found is None:
        raise SettingsError(f"--watch: has {text!r}, needs a resource as configmaps or jobs.batch")
    if found["plural"] == "secrets" and not found["group"]:
        raise SettingsError("--watch: Secrets cannot be watched: permit the account to get those that it needs")
    return Watched(found["group"] or "", found["plural"])
