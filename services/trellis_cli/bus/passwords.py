"""``trellis bus passwords``: creates the passwords of the bus inside the cluster, for installations without the chart.

In: the seed in a Secret, if it exists. Out: that Secret, and one for each client. Called by the command line, and by
the Job of ``deploy/base``, which is public and contains no passwords. Invariants: existing data is only extended; the
same seed gives the same passwords as in the chart; no password is printed.
"""

from __future__ import annotations

import asyncio
import base64
import hashlib
import secrets
from collections.abc import Mapping, Sequence
from typing import Final

from trellis import names
from trellis.bus.accounts.permissions import BUNDLE, CLI
from trellis.kube.client import Kube
from trellis.kube.errors import AlreadyExists, NotFound
from trellis.kube.resources import SECRETS, Manifest
from trellis.services import SERVICES
from trellis_cli.common.errors import CommandError, exit_on_error
from trellis_cli.common.gather import connected
from trellis_cli.common.options import ContextOption, KubeconfigOption
from trellis_cli.common.output import DocumentOption, Format, print_document, print_text
from trellis_cli.common.settings import ClientSettings, client_settings

SERVER: Final = "trellis-nats-server"
SEED: Final = "seed"
PASSWORDS: Final = "passwords.conf"
_LABELS: Final = {"app.kubernetes.io/name": "trellis", "app.kubernetes.io/component": "nats"}
_SEED_BYTES: Final = 36
USERS: Final = (*SERVICES, BUNDLE, CLI)
"""Users of the server."""
CLIENTS: Final = (*SERVICES, CLI)
"""Users with a client Secret each."""


def passwords(
    kubeconfig: KubeconfigOption = None, context: ContextOption = None, output: DocumentOption = Format.TABLE
) -> None:
    """Create the missing Secrets with passwords of the bus in the namespace of Trellis.

    For installations by `deploy/base`; the Helm chart creates the same Secrets. Existing Secrets are kept. JSON:
    `{"made": ["…"]}`.
    """
    with exit_on_error():
        settings = client_settings(kubeconfig=kubeconfig, context=context)
        made = asyncio.run(_run(settings))
        if output.structured:
            print_document(output, {"made": made})
        else:
            print_text(f"created: {', '.join(made)}" if made else "all Secrets exist")


def client_secret(user: str) -> str:
    """Return the name of the client Secret of a user (``node_watcher``)."""
    return f"trellis-nats-{user.replace('_', '-')}"


def password_of(seed: str, user: str) -> str:
    """Return the password of a user, as the chart derives it."""
    return hashlib.sha256(f"{seed}/{user}".encode()).hexdigest()


def passwords_file(seed: str) -> str:
    """Return the include file of the server configuration: one variable per user."""
    return "".join(f'PASSWORD_{user.upper()}: "{password_of(seed, user)}"\n' for user in USERS)


def make_secret(name: str, namespace: str, texts: Mapping[str, str]) -> Manifest:
    """Return a Secret of the bus."""
    return {
        "apiVersion": SECRETS.api_version,
        "kind": SECRETS.kind,
        "metadata": {"name": name, "namespace": namespace, "labels": dict(_LABELS)},
        "stringData": dict(texts),
    }


def client_texts(seed: str, user: str, namespace: str) -> dict[str, str]:
    """Return the data of the client Secret of a user: the password, and the address with the password."""
    password = password_of(seed, user)
    return {"password": password, "url": f"nats://{user}:{password}@trellis-nats.{namespace}:4222"}


async def _run(settings: ClientSettings) -> list[str]:
    async with connected(settings) as kube:
        return await make_missing(kube, settings.namespace)


async def make_missing(kube: Kube, namespace: str, users: Sequence[str] = CLIENTS) -> list[str]:
    """Create missing Secrets, and add missing users to the Secret of the server; return the names of both.

    Raises:
        CommandError: the Secret of the server has no seed, so the source of its passwords is unknown.
        KubeError: a request was rejected or not answered.
    """
    made = []
    seed, new = await _seed(kube, namespace)
    if new:
        made.append(SERVER)
    for user in users:
        name = client_secret(user)
        try:
            await kube.get(SECRETS, name, namespace, metadata=True)
        except NotFound:
            try:
                await kube.create(SECRETS, make_secret(name, namespace, client_texts(seed, user, namespace)))
            except AlreadyExists:
                continue  # created concurrently, from the same seed
            made.append(name)
    return made


async def _seed(kube: Kube, namespace: str) -> tuple[str, bool]:
    """Return the seed of all passwords, and whether the Secret of the server was created or completed now."""
    fresh = secrets.token_urlsafe(_SEED_BYTES)
    try:
        texts = {SEED: fresh, PASSWORDS: passwords_file(fresh)}
        await kube.create(SECRETS, make_secret(SERVER, namespace, texts))
    except AlreadyExists:
        found = await kube.get(SECRETS, SERVER, namespace)
    else:
        return fresh, True
    data = found.get("data") or {}
    if not data.get(SEED):
        raise CommandError(
            f"Secret {namespace}/{SERVER} has no {SEED}, so its passwords cannot be derived: delete it and the Secrets "
            f"trellis-nats-*, then rerun this command"
        )
    seed = base64.b64decode(data[SEED]).decode()
    wanted = passwords_file(seed)
    if base64.b64decode(data.get(PASSWORDS) or "").decode() == wanted:
        return seed, False
    patch = {"metadata": {"resourceVersion": found["metadata"]["resourceVersion"]}, "stringData": {PASSWORDS: wanted}}
    await kube.merge_patch(SECRETS, SERVER, patch, namespace, field_manager=names.FIELD_MANAGER_COMMAND_LINE)
    return seed, True
