"""Queries wadm about the applications of a lattice, with the permissions of the user.

In: host groups, with the address and credentials of the NATS of a lattice; optionally another address. Out: the
responses of wadm. Called by ``trellis apps``. Invariants: each query has a timeout; credentials stay in memory.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Iterable, Mapping
from dataclasses import replace
from typing import Final

from trellis.kube.client import Kube
from trellis.kube.resources import HOST_CONFIGS
from trellis.lattice.connection.address import LatticeAddress
from trellis.lattice.connection.group_addresses import read_secrets
from trellis.lattice.connection.groups import lattice_address
from trellis.lattice.connection.lattice_connection import LatticeConnection, NatsUnavailableError
from trellis.lattice.domain.group_views import GroupView, lattice_name, view_group
from trellis.lattice.domain.subjects import SubjectError
from trellis.lattice.wadm.client import Wadm
from trellis.read_model.reading.served import list_served

CONNECTION: Final = "trellis-command-line"
CONNECT_SECONDS: Final = 6.0
HINT: Final = "from outside the cluster, forward a port to its NATS and use --nats nats://127.0.0.1:PORT"


class NoLatticeError(Exception):
    """No host group has the address of a lattice; the text has the resolution."""


async def read_groups(kube: Kube, namespace: str | None = None) -> list[GroupView]:
    """Return the host groups of a namespace, or of all, whose spec can be read, the oldest first.

    Raises:
        NotServedError: the CRD exists and the kind is not served.
        KubeError: they could not be listed.
    """
    found = map(view_group, await list_served(kube, HOST_CONFIGS, namespace) or ())
    return sorted((item for item in found if item.spec is not None), key=lambda item: (item.created, item.key))


def group_of(groups: Iterable[GroupView], namespace: str, lattice: str) -> GroupView:
    """Return the host group that defines the lattice of an object; ``lattice`` "" for the only one of the namespace.

    Raises:
        NoLatticeError: there is none, or several lattices match.
    """
    there = [group for group in groups if group.namespace == namespace and group.spec is not None]
    named = [item for item in there if not lattice or (item.spec is not None and item.spec.lattice == lattice)]
    if not named:
        of = f" of lattice {lattice}" if lattice else ""
        raise NoLatticeError(f"namespace {namespace} has no host group{of}: create a WasmCloudHostConfig")
    if len({item.lattice for item in named}) > 1:
        have = ", ".join(sorted({lattice_name(item.lattice) for item in named}))
        raise NoLatticeError(
            f"namespace {namespace} has host groups of lattices {have}: set the label trellis.dev/lattice"
        )
    return named[0]


async def address_of(kube: Kube, group: GroupView, nats: str | None) -> LatticeAddress:
    """Return the address of the lattice of a group, with the credentials in its Secrets; ``nats`` replaces its URL.

    Raises:
        NoLatticeError: its names are invalid in subjects.
        KubeError: a Secret could not be read.
    """
    assert group.spec is not None  # read_groups omits groups without a spec
    secrets = await read_secrets(kube, group)
    try:
        address = lattice_address(group.spec, group.namespace, secrets)
    except SubjectError as error:
        raise NoLatticeError(f"group {group.key}: {error}") from None
    return replace(address, nats=replace(address.nats, url=nats)) if nats else address


@contextlib.asynccontextmanager
async def asking(address: LatticeAddress) -> AsyncIterator[Wadm]:
    """Connect to the NATS of a lattice.

    Raises:
        NatsUnavailableError: there is no connection within 6 s; with the cause and the remedy.
    """
    connection = LatticeConnection(address.nats, CONNECTION, lambda: None)
    running = asyncio.create_task(connection.run())
    try:
        try:
            async with asyncio.timeout(CONNECT_SECONDS):
                await connection.there()
        except TimeoutError:
            raise NatsUnavailableError(
                f"lattice {address.lattice}: {connection.reason or 'no connection'}; {HINT}"
            ) from None
        yield Wadm(address, connection)
    finally:
        running.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await running


def by_lattice(groups: Iterable[GroupView]) -> Mapping[str, list[GroupView]]:
    """Return the host groups by lattice id, the oldest first."""
    found: dict[str, list[GroupView]] = {}
    for group in groups:
        if group.lattice:
            found.setdefault(group.lattice, []).append(group)
    return found


def name_of(group: GroupView) -> str:
    """Return the lattice name of a host group."""
    return "" if group.spec is None else group.spec.lattice
