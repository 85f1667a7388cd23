"""``trellis bus secret``: creates the keys of the users of the bus inside the cluster, in a Secret.

In: the Secret, if it exists. Out: the Secret with the configuration of the NATS servers (``accounts.conf``,
``keys.conf``, ``routes.conf``) and a seed per user, as ``trellis bus users`` writes them to files; and a Secret with
TLS certificates. Called by the command line, and by the Job of the chart and of ``deploy/base``, whose manifests
contain no keys. Invariants: existing seeds, passwords and certificates are kept; no secret is printed.
"""

from __future__ import annotations

import asyncio
import base64
import hashlib
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from enum import StrEnum
from typing import Annotated, Final

import typer

from trellis import names
from trellis.bus.accounts.accounts import (
    ACCOUNTS_FILE,
    KEYS_FILE,
    ROUTES_FILE,
    accounts,
    keys,
    routes,
    routes_password,
)
from trellis.bus.accounts.permissions import users
from trellis.config.errors import SettingsError
from trellis.config.nats_credentials import CredentialsError, Kind, identity_of, new_routes_password, new_seed
from trellis.kube.client import Kube
from trellis.kube.errors import NotFound
from trellis.kube.resources import SECRETS, Manifest
from trellis_cli.bus.certificates import make_certificate
from trellis_cli.common.errors import CommandError, exit_on_error
from trellis_cli.common.gather import connected
from trellis_cli.common.options import ContextOption, KubeconfigOption
from trellis_cli.common.output import DocumentOption, Format, print_document, print_text
from trellis_cli.common.settings import ClientSettings, client_settings

_FORMER_SERVER: Final = "trellis-nats-server"
_FORMER_TLS: Final = "trellis-nats-tls"
"""Secrets of the chart until 0.2. A server with another password or CA could not join those of before the upgrade."""
_FORMER_SEED: Final = "seed"
# Without app.kubernetes.io/instance: Argo CD would take the Secret for an object of its application, and prune it.
_LABELS: Final = {names.LABEL_PART_OF: names.PART_OF, "app.kubernetes.io/component": "nats"}
_TLS_KEYS: Final = ("tls.crt", "tls.key", "ca.crt")


class Outcome(StrEnum):
    """Change of a Secret."""

    CREATED = "created"
    UPDATED = "updated"
    UNCHANGED = "unchanged"


@dataclass(frozen=True, slots=True)
class Written:
    """A Secret and its outcome."""

    name: str
    status: Outcome


@dataclass(frozen=True, slots=True)
class Servers:
    """The NATS servers that a Secret is for. ``routes``: ``host:port`` of each server of a cluster, none for one."""

    cluster: str
    replicas: int = 1
    routes: tuple[str, ...] = ()


def secret(  # noqa: PLR0913, PLR0917 - options of a command line
    name: Annotated[str, typer.Argument(help="name of the Secret")],
    cluster: Annotated[str | None, typer.Option(help="name of the cluster on the bus [env: TRELLIS_CLUSTER]")] = None,
    replicas: Annotated[int, typer.Option(min=1, max=5, help="replicas of each JetStream stream")] = 1,
    route: Annotated[
        list[str] | None, typer.Option(metavar="HOST:PORT", help="cluster port of each server (repeatable)")
    ] = None,
    tls_secret: Annotated[str, typer.Option(help="name of the Secret with TLS certificates; default: none")] = "",
    tls_name: Annotated[
        list[str] | None, typer.Option(metavar="DNS-NAME", help="DNS name of the servers (repeatable)")
    ] = None,
    kubeconfig: KubeconfigOption = None,
    context: ContextOption = None,
    output: DocumentOption = Format.TABLE,
) -> None:
    """Create the Secret with the users of the bus in the namespace of Trellis, or add the missing ones.

    The Job of the Helm chart and of `deploy/base` runs it. The Secret has the files of `trellis bus users`, and
    `routes.conf` if routes are given. Existing keys, passwords and certificates are kept. JSON: `[{name, status}]`.
    """
    with exit_on_error():
        settings = client_settings(kubeconfig=kubeconfig, context=context, cluster=cluster)
        if settings.cluster is None:
            raise SettingsError("--cluster: is missing: set the name of the cluster on the bus")
        servers = Servers(settings.cluster, replicas, tuple(route or ()))
        written = asyncio.run(_run(settings, name, servers, tls_secret, tls_name or []))
        if output.structured:
            print_document(output, [asdict(item) for item in written])
        else:
            print_text("\n".join(f"secret/{item.name} {item.status}" for item in written))


def seed_key(user: str) -> str:
    """Return the key of a user's seed in the Secret, as ``trellis bus users`` names its file."""
    return f"{user}.nk"


def contents(servers: Servers, known: Mapping[str, str], password: str) -> dict[str, str]:
    """Return the texts of the Secret by key; seeds come from ``known``, new ones are generated for other users.

    ``password``: of the routes between the servers.

    Raises:
        CredentialsError: a known seed is invalid.
    """
    seeds = {user.name: known.get(seed_key(user.name)) or new_seed() for user in users([servers.cluster])}
    public = {}
    for user, seed in seeds.items():
        try:
            public[user] = identity_of(seed, Kind.NKEY).public_key
        except CredentialsError as error:
            raise CredentialsError(f"{seed_key(user)}: {error}") from None
    texts = {seed_key(user): seed for user, seed in seeds.items()}
    texts |= {ACCOUNTS_FILE: accounts([servers.cluster], servers.replicas), KEYS_FILE: keys([servers.cluster], public)}
    if servers.routes:
        texts[ROUTES_FILE] = routes(password, servers.routes)
    return texts


async def write_users(kube: Kube, namespace: str, name: str, servers: Servers) -> Written:
    """Create the Secret with the users, or add missing ones to it.

    Raises:
        CommandError: a seed in the Secret is invalid.
        KubeError: a request was rejected or not answered; also if the Secret was changed concurrently.
    """
    found = await _read(kube, namespace, name)
    known = _texts(found)
    password = routes_password(known.get(ROUTES_FILE, "")) or await _former_password(kube, namespace)
    try:
        texts = contents(servers, known, password or new_routes_password())
    except CredentialsError as error:
        raise CommandError(f"Secret {namespace}/{name}: {error}; delete this key to create a new one") from None
    changed = {key: text for key, text in texts.items() if known.get(key) != text}
    if found is None:
        await kube.create(SECRETS, _manifest(namespace, name, texts))
        return Written(name, Outcome.CREATED)
    if not changed:
        return Written(name, Outcome.UNCHANGED)
    patch = {"metadata": {"resourceVersion": found["metadata"]["resourceVersion"]}, "data": _data(changed)}
    await kube.merge_patch(SECRETS, name, patch, namespace, field_manager=names.FIELD_MANAGER_COMMAND_LINE)
    return Written(name, Outcome.UPDATED)


async def write_certificate(kube: Kube, namespace: str, name: str, dns_names: list[str]) -> Written:
    """Create the Secret with certificates for the servers; an existing one is kept.

    Raises:
        KubeError: a request was rejected or not answered.
    """
    if await _read(kube, namespace, name) is not None:
        return Written(name, Outcome.UNCHANGED)
    former = _texts(await _read(kube, namespace, _FORMER_TLS))
    texts = {key: former[key] for key in _TLS_KEYS} if former.keys() >= set(_TLS_KEYS) else make_certificate(dns_names)
    await kube.create(SECRETS, _manifest(namespace, name, texts) | {"type": "kubernetes.io/tls"})
    return Written(name, Outcome.CREATED)


async def _run(
    settings: ClientSettings, name: str, servers: Servers, tls_secret: str, dns_names: list[str]
) -> list[Written]:
    async with connected(settings) as kube:
        written = [await write_users(kube, settings.namespace, name, servers)]
        if tls_secret:
            written.append(await write_certificate(kube, settings.namespace, tls_secret, dns_names))
        return written


async def _former_password(kube: Kube, namespace: str) -> str:
    """Return the password between the servers that the chart until 0.2 derived from its seed, "" if there is none."""
    seed = _texts(await _read(kube, namespace, _FORMER_SERVER)).get(_FORMER_SEED)
    return hashlib.sha256(f"{seed}/routes".encode()).hexdigest() if seed else ""


async def _read(kube: Kube, namespace: str, name: str) -> Manifest | None:
    try:
        return await kube.get(SECRETS, name, namespace)
    except NotFound:
        return None


def _texts(found: Manifest | None) -> dict[str, str]:
    data = (found or {}).get("data") or {}
    return {key: base64.b64decode(text).decode(errors="replace") for key, text in data.items()}


def _data(texts: Mapping[str, str]) -> dict[str, str]:
    return {key: base64.b64encode(text.encode()).decode() for key, text in texts.items()}


def _manifest(namespace: str, name: str, texts: Mapping[str, str]) -> Manifest:
    metadata = {"name": name, "namespace": namespace, "labels": dict(_LABELS)}
    return {"apiVersion": SECRETS.api_version, "kind": SECRETS.kind, "metadata": metadata, "data": _data(texts)}
