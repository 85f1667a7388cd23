"""A NATS with accounts, as a wadm for several tenants (``wadm --multitenant``) is run: wadm's own, and one a tenant.

Subjects are plain in a tenant's account, and have the tenant before them in wadm's. East receives wadm's events of
applications, West does not, as in wadm's own example; who gives no credentials is East.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import nats
import pytest
from nats.js.api import StreamConfig

from support.lattices.real_lattice import RealLattice
from trellis.lattice.domain.subjects import CONTROL_PREFIX, STREAM_HOSTS
from trellis_dev.localcluster import lattice_servers

EAST = "AEAST"
WEST = "AWEST"
USERS = {EAST: "east", WEST: "west", "": "wadm"}
PASSWORD = "secret"

HOSTS_STREAM = StreamConfig(name=STREAM_HOSTS, subjects=["*.wasmbus.evt.*.>"], max_age=70, no_ack=True)
"""What wadm makes with acknowledgements, which newer servers refuse (tried: 2.15.1); it takes one that is there."""

_CONFIG = """
jetstream: enabled
no_auth_user: east
accounts {
  WADM {
    jetstream: enabled
    users: [
      {user: wadm, password: secret}
      {user: viewer, password: secret, permissions: {
        publish: ["AEAST.wadm.api.>", "AEAST.wasmbus.ctl.v1.>",
                  "$JS.API.STREAM.INFO.KV_wadm_manifests", "$JS.API.CONSUMER.CREATE.KV_wadm_manifests.>",
                  "$JS.API.CONSUMER.INFO.KV_wadm_manifests.>", "$JS.API.CONSUMER.MSG.NEXT.KV_wadm_manifests.>",
                  "$JS.API.CONSUMER.DELETE.KV_wadm_manifests.>", "$JS.API.STREAM.INFO.KV_TRELLIS_LATTICES",
                  "$JS.API.STREAM.CREATE.KV_TRELLIS_LATTICES", "$JS.API.STREAM.MSG.GET.KV_TRELLIS_LATTICES",
                  "$KV.TRELLIS_LATTICES.AEAST.*"]
        subscribe: ["_INBOX_trellis.>", "AEAST.wasmbus.evt.>", "wadm.evt.>", "wadm.status.>"] }}
    ]
    exports: [{service: "*.wadm.api.>"}, {stream: "wadm.evt.>"}, {stream: "wadm.status.>"}]
    imports: [
      {stream: {account: EAST, subject: "wasmbus.evt.>"}, prefix: AEAST}
      {stream: {account: WEST, subject: "wasmbus.evt.>"}, prefix: AWEST}
      {service: {account: EAST, subject: "wasmbus.ctl.>"}, to: "AEAST.wasmbus.ctl.>"}
      {service: {account: WEST, subject: "wasmbus.ctl.>"}, to: "AWEST.wasmbus.ctl.>"}
    ]
  }
  EAST {
    jetstream: enabled
    users: [{user: east, password: secret}]
    exports: [{stream: "wasmbus.evt.>"}, {service: "wasmbus.ctl.>", response_type: stream}]
    imports: [
      {service: {account: WADM, subject: "AEAST.wadm.api.>"}, to: "wadm.api.>"}
      {stream: {account: WADM, subject: "wadm.evt.>"}}
      {stream: {account: WADM, subject: "wadm.status.>"}}
    ]
  }
  WEST {
    jetstream: enabled
    users: [{user: west, password: secret}]
    exports: [{stream: "wasmbus.evt.>"}, {service: "wasmbus.ctl.>", response_type: stream}]
    imports: [{service: {account: WADM, subject: "AWEST.wadm.api.>"}, to: "wadm.api.>"}]
  }
}
"""


def write_accounts(directory: Path) -> Path:
    """Write the server's file into a directory, and return it."""
    directory.mkdir(parents=True, exist_ok=True)
    config = directory / "accounts.conf"
    config.write_text(_CONFIG, encoding="utf-8")
    return config


def url_of(port: int, account: str = "") -> str:
    """Return where a tenant's account is, by default wadm's own."""
    return f"nats://{USERS[account]}:{PASSWORD}@127.0.0.1:{port}"


def from_wadms_account(tenant: str) -> dict[str, Any]:
    """Return the fields of a group of hosts that see a tenant's lattice from wadm's own account."""
    address = f"nats://{USERS['']}:{PASSWORD}@127.0.0.1"
    return {"natsAddress": address, "controlTopicPrefix": control_prefix(tenant)}


def from_own_account(tenant: str) -> dict[str, Any]:
    """Return the fields of a group of hosts that see a tenant's lattice from the tenant's account."""
    return {"natsAddress": f"nats://{USERS[tenant]}:{PASSWORD}@127.0.0.1"}


def control_prefix(tenant: str) -> str:
    """Return what control subjects of a tenant's lattice begin with in wadm's account."""
    return f"{tenant}.{CONTROL_PREFIX}"


class TenantLattice(RealLattice):
    """NATS with accounts, a wadm for several tenants; hosts are East's."""

    def __init__(self, directory: Path) -> None:
        super().__init__(directory, write_accounts(directory))

    def start_wadm(self) -> None:
        """Start wadm, and wait until it answers; NATS has the stream that it could not make."""
        asyncio.run(_make_stream(url_of(self.nats.port)))
        super().start_wadm()

    def wadm_arguments(self) -> list[str]:
        """Return what wadm is started with."""
        return ["--multitenant", "--nats-server", url_of(self.nats.port)]


async def _make_stream(url: str) -> None:
    client = await nats.connect(url)
    try:
        await client.jetstream().add_stream(HOSTS_STREAM)
    finally:
        await client.close()


@pytest.fixture(scope="session")
def tenant_lattice(tmp_path_factory: pytest.TempPathFactory) -> Iterator[TenantLattice]:
    """NATS and a wadm for several tenants, for all tests of this process; skips as ``real_lattice`` does."""
    if (reason := lattice_servers.missing()) is not None:
        pytest.skip(f"NOT RUN: {reason}")
    with TenantLattice(tmp_path_factory.mktemp("tenants")) as servers:
        yield servers
