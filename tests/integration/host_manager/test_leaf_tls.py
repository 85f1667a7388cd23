"""The leaf's configuration as host_manager writes it, in a real nats-server, at servers that demand TLS."""

from __future__ import annotations

import asyncio
import contextlib
import ssl
from collections.abc import AsyncIterator, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import nats
import pytest

from support.lattices.host_world import PATIENCE, HostWorld
from support.nodes.fleet import eventually
from support.suite.settling import settle
from support.suite.tiers import first_of
from trellis.kube.resources import CONFIGMAPS, HOST_CONFIGS
from trellis_dev.localcluster.certs import KUBELET_CLIENT, write_pki
from trellis_dev.localcluster.nats import NatsServer
from trellis_dev.localcluster.ports import free_ports

pytestmark = pytest.mark.cluster

SERVER = "kube-apiserver"
"""Certificate of a server on the loopback address, as an API server has it."""
SUBJECT = "wasmbus.evt.default.probe"


@dataclass(frozen=True)
class Hub:
    """The servers' NATS: clients and leaf nodes are let in by TLS only. ``pki`` has its authority."""

    server: NatsServer
    leaves: int
    pki: Path

    def spec(self) -> dict[str, Any]:
        """Return the fields of a group that belongs to it, with a Secret called ``tls``."""
        ports = {"natsClientPort": self.server.port, "natsLeafnodePort": self.leaves}
        return {"natsAddress": "nats://127.0.0.1", **ports, "leafTls": {"secretName": "tls"}}

    def secret(self, *, client: bool = False) -> dict[str, str]:
        """Return what a Secret for a leaf holds: the authority, and a certificate of its own if wanted."""
        own = {"tls.crt": f"{KUBELET_CLIENT}.crt", "tls.key": f"{KUBELET_CLIENT}.key"} if client else {}
        return {key: (self.pki / file).read_text() for key, file in ({"ca.crt": "ca.crt"} | own).items()}

    @contextlib.asynccontextmanager
    async def hearing(self) -> AsyncIterator[asyncio.Event]:
        """Listen as a client of the servers; the event is set when the leaf's message was received."""
        received = asyncio.Event()

        async def take(_: object) -> None:
            received.set()

        context = ssl.create_default_context(cafile=str(self.pki / "ca.crt"))
        context.load_cert_chain(self.pki / f"{KUBELET_CLIENT}.crt", self.pki / f"{KUBELET_CLIENT}.key")
        client = await nats.connect(self.server.url, tls=context)
        try:
            await client.subscribe(SUBJECT, cb=take)
            await settle(client)
            yield received
        finally:
            await client.close()


@pytest.fixture
def hub(tmp_path: Path) -> Iterator[Hub]:
    with _hub(tmp_path, verify=False) as made:
        yield made


@contextlib.contextmanager
def _hub(directory: Path, *, verify: bool, clients: bool = False) -> Iterator[Hub]:
    """Run it; ``verify``: leaf nodes have to show a certificate, and with ``clients`` these too."""
    pki = directory / "pki"
    pki.mkdir()
    write_pki(pki, nodes=["any"])
    (leaves,) = free_ports(1)
    files = f'cert_file: "{pki / SERVER}.crt", key_file: "{pki / SERVER}.key", ca_file: "{pki / "ca.crt"}"'
    config = directory / "hub.conf"
    config.write_text(
        f"tls {{ {files}, verify: {str(clients).lower()} }}\n"
        f'leafnodes {{ listen: "127.0.0.1:{leaves}", tls {{ {files}, verify: {str(verify).lower()} }} }}\n'
    )
    with NatsServer(directory / "hub", config=config) as server:
        yield Hub(server, leaves, pki)


@contextlib.contextmanager
def leaf(hosts: HostWorld, group: str, secret: dict[str, str], directory: Path) -> Iterator[NatsServer]:
    """Run a nats-server with the very configuration of a group; what the pod mounts at /nats lies in a directory."""
    mounted = directory / "nats"
    (mounted / "tls").mkdir(parents=True)
    for key, value in secret.items():
        (mounted / "tls" / key).write_text(value)
    text = hosts.call("GET", CONFIGMAPS, group)["data"]["nats.conf"]
    config = mounted / "nats.conf"
    config.write_text(text.replace('"/nats/', f'"{mounted}/'))
    with NatsServer(directory / "leaf", config=config) as server:
        yield server


def log_of(directory: Path, server: str) -> str:
    return (directory / server / "nats-server.log").read_text()


async def until_received(received: asyncio.Event, server: NatsServer) -> None:
    """Publish at the leaf until the hub's client receives it."""
    client = await nats.connect(server.url)
    try:
        async with asyncio.timeout(PATIENCE):
            while not received.is_set():
                await client.publish(SUBJECT, b"{}")
                with contextlib.suppress(TimeoutError):
                    await asyncio.wait_for(received.wait(), 0.1)
    finally:
        await client.close()


async def condition(hosts: HostWorld, kind: str, reason: str) -> str:
    """Wait for a condition of the group; return its message."""
    try:
        await eventually(lambda: hosts.condition("group", kind)[1] == reason, reason, seconds=PATIENCE)
    except AssertionError:
        pytest.fail(f"{kind} is not {reason}: {hosts.status('group')}")
    return hosts.condition("group", kind)[2]


@pytest.mark.parametrize(
    ("verify", "clients"),
    first_of([pytest.param(True, False), pytest.param(False, False), pytest.param(True, True)]),
    ids=["and a certificate of the leaf's own", "private authority", "and of clients"],
)
async def test_leaf_nodes_and_trellis_connect_by_tls(
    hosts: HostWorld, tmp_path: Path, *, verify: bool, clients: bool
) -> None:
    with _hub(tmp_path, verify=verify, clients=clients) as hub:
        secret = hub.secret(client=verify)
        hosts.secret("tls", **secret)
        async with hosts.service(), hub.hearing() as received:
            hosts.create("group", **hub.spec())
            await hosts.settled("group")
            with leaf(hosts, "group", secret, tmp_path) as server:
                await until_received(received, server)
            # Nobody plays wadm here: that it did not answer is told only of a NATS that could be asked.
            await condition(hosts, "ApplicationsKnown", "WadmUnavailable")


@pytest.mark.thorough
async def test_another_authority_keeps_the_leaf_out_and_the_status_reports_it(
    hosts: HostWorld, hub: Hub, tmp_path: Path
) -> None:
    other = tmp_path / "other"
    other.mkdir()
    write_pki(other)
    secret = {"ca.crt": (other / "ca.crt").read_text()}
    hosts.secret("tls", **secret)
    async with hosts.service(), hub.hearing() as received:
        hosts.create("group", **hub.spec())
        await hosts.settled("group")
        message = await condition(hosts, "HostsReporting", "LatticeUnreachable")
        assert "CERTIFICATE_VERIFY_FAILED" in message
        with leaf(hosts, "group", secret, tmp_path) as server:
            expected_text = "certificate signed by unknown authority"
            await eventually(lambda: expected_text in log_of(tmp_path, "leaf"), "refused", seconds=PATIENCE)
            assert not received.is_set()
            # The same Secret, mended: the hosts are rolled, and what they have then works.
            good = hub.secret()
            hosts.secret("tls", **good)
            (tmp_path / "nats" / "tls" / "ca.crt").write_text(good["ca.crt"])
            server.stop()
            server.start()
            await until_received(received, server)
        await condition(hosts, "ApplicationsKnown", "WadmUnavailable")


@pytest.mark.thorough
async def test_a_server_that_wants_a_certificate_keeps_out_a_leaf_without_one(hosts: HostWorld, tmp_path: Path) -> None:
    with _hub(tmp_path, verify=True) as hub:
        secret = hub.secret()
        hosts.secret("tls", **secret)
        async with hosts.service(), hub.hearing() as received:
            hosts.create("group", **hub.spec())
            await hosts.settled("group")
            with leaf(hosts, "group", secret, tmp_path):
                expected_text = "client didn't provide a certificate"
                await eventually(lambda: expected_text in log_of(tmp_path, "hub"), "refused", seconds=PATIENCE)
                assert not received.is_set()


@pytest.mark.thorough
async def test_a_nats_that_requires_client_certificates_reports_the_missing_one_and_accepts_a_rotated_one(
    hosts: HostWorld, tmp_path: Path
) -> None:
    with _hub(tmp_path, verify=True, clients=True) as hub:
        hosts.secret("tls", **hub.secret())
        async with hosts.service():
            hosts.create("group", **hub.spec())
            await hosts.settled("group")
            # The server may close the connection before it has said why: then the next one says it.
            expected_text = "see tls.crt and tls.key of the Secret for leafTls"
            await eventually(
                lambda: expected_text in hosts.condition("group", "HostsReporting")[2], expected_text, seconds=PATIENCE
            )
            other = tmp_path / "other"
            other.mkdir()
            write_pki(other, nodes=["any"])
            stranger = {end: (other / f"{KUBELET_CLIENT}.{end[4:]}").read_text() for end in ("tls.crt", "tls.key")}
            hosts.secret("tls", **stranger)
            expected_text = "certificate signed by unknown authority"
            await eventually(lambda: expected_text in log_of(tmp_path, "hub"), "refused", seconds=PATIENCE)
            hosts.secret("tls", **hub.secret(client=True))
            await condition(hosts, "ApplicationsKnown", "WadmUnavailable")
            status = hosts.call("GET", HOST_CONFIGS, "group")["status"]
    assert "PRIVATE KEY" not in str(status)
