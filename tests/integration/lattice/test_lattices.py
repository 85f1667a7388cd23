"""Lattices on a real nats-server: what is known, when it is known, and what outages do to it."""

from __future__ import annotations

import logging
import secrets
from collections.abc import AsyncIterator
from dataclasses import replace
from pathlib import Path

import pytest

from support.lattices.lattice_speaker import LatticeSpeaker
from support.nats.buses import eventually
from support.suite.tcp_proxy import TcpProxy
from trellis.bus.connection.connection import REFUSED
from trellis.config.nats_credentials import CachedCredentials, Kind, identity_of, new_seed
from trellis.lattice.connection.address import LatticeAddress, NatsAddress
from trellis.lattice.domain.hosts import Presence
from trellis.lattice.domain.view import LatticeView
from trellis.lattice.follow.lattice_watches import LatticeWatches, Part
from trellis.lattice.timings import ConnectionTimings, HostWatchTimings, LatticeTimings, ModelWatchTimings
from trellis_dev.localcluster.certs import write_pki
from trellis_dev.localcluster.nats import NatsServer

CERTIFICATE = {"cert_file": "crt", "key_file": "key"}
LINK = ConnectionTimings(backoff_first=0.1, backoff_most=0.5)
# A host without an answer in time is heard at its next heartbeat, which most hosts here never send.
HOSTS, MODELS = HostWatchTimings(ping=2.0, answer=15.0), ModelWatchTimings(answer=15.0, quiet=0.1)


class Watched:
    """Lattices, and every key that was reported as changed."""

    def __init__(self, link: ConnectionTimings = LINK) -> None:
        timings = LatticeTimings(connection=link, hosts=HOSTS, models=MODELS)
        self.changed: list[str] = []
        self.lattices: LatticeWatches[str] = LatticeWatches(
            "trellis-test", self.changed.append, parts=(Part.HOSTS, Part.MODELS), timings=timings
        )

    def view(self, key: str = "group") -> LatticeView:
        view = self.lattices.view(key)
        assert view is not None
        return view

    def ids(self, key: str = "group") -> list[str]:
        return [seen.host.id for seen in self.view(key).hosts]

    async def linked(self, key: str = "group") -> None:
        await eventually(lambda: self.view(key).connected_since is not None)


@pytest.fixture
async def watched() -> AsyncIterator[Watched]:
    made = Watched()
    async with made.lattices:
        yield made


@pytest.fixture
def name() -> str:
    return f"l-{secrets.token_hex(4)}"


def at(server: NatsServer, lattice: str) -> LatticeAddress:
    return LatticeAddress(NatsAddress(server.url), lattice)


def model(name: str, version: str = "v1") -> dict[str, str]:
    return {"name": name, "version": version, "deployed_version": version, "status": "deployed"}


async def test_hosts_that_are_there_are_known_without_waiting_for_a_heartbeat(
    nats_server: NatsServer, watched: Watched, name: str
) -> None:
    async with LatticeSpeaker(nats_server.url, name, models=[model("shop")]) as lattice:
        lattice.add("N1", labels={"zone": "a"})
        lattice.add("N2")
        await watched.lattices.need("group", at(nats_server, name))
        await eventually(lambda: watched.ids() == ["N1", "N2"])
        await eventually(lambda: watched.view().models)
        view = watched.view()
        assert view.models is not None
        assert [(app.name, app.deployed) for app in view.models] == [("shop", "v1")]
        assert view.hosts[0].host.labels == {"zone": "a"}
        assert view.hosts[0].host.applications == ("hello-world",)
        assert "group" in watched.changed


async def test_a_hosts_start_and_stop_are_reported_at_once(
    nats_server: NatsServer, watched: Watched, name: str
) -> None:
    async with LatticeSpeaker(nats_server.url, name) as lattice:
        await watched.lattices.need("group", at(nats_server, name))
        await watched.linked()
        lattice.add("N1")
        await lattice.beat("N1")
        await eventually(lambda: watched.ids() == ["N1"])
        await eventually(lambda: watched.view().settled and "no responders" in watched.view().models_reason)
        watched.changed.clear()
        await lattice.beat("N1")
        lattice.add("N2")
        await lattice.beat("N2")
        await eventually(lambda: watched.ids() == ["N1", "N2"])
        assert watched.changed == ["group"], "a heartbeat without news is none"
        await lattice.stop("N1")
        await eventually(lambda: watched.ids() == ["N2"])
        lattice.add("N3", labels={"zone": "a"}, version="1.9.2")
        await lattice.start("N3")
        await eventually(lambda: watched.ids() == ["N2", "N3"])
        started = watched.view().hosts[1].host
        assert (started.labels, started.version, started.components) == ({"zone": "a"}, "1.9.2", ())


async def test_the_status_is_requested_at_once_after_an_event_of_wadm(
    nats_server: NatsServer, watched: Watched, name: str
) -> None:
    async with LatticeSpeaker(nats_server.url, name, models=[]) as lattice:
        await watched.lattices.need("group", at(nats_server, name))
        await eventually(lambda: watched.view().models == ())
        assert watched.view().models_reason == ""
        await lattice.publish([model("shop", "v2")])
        await eventually(lambda: [app.version for app in watched.view().models or ()] == ["v2"])


async def test_garbage_changes_nothing(nats_server: NatsServer, watched: Watched, name: str) -> None:
    async with LatticeSpeaker(nats_server.url, name, models=[model("shop")]) as lattice:
        lattice.add("N1")
        await watched.lattices.need("group", at(nats_server, name))
        await eventually(lambda: watched.view().models and watched.ids() == ["N1"])
        for payload in (b"", b"\xff\xfe", b"[]", b'{"data": 1}', b'{"data": {"version": 1, "host_id": 2}}'):
            await lattice.raw(f"wasmbus.evt.{name}.host_heartbeat", payload)
            await lattice.raw(f"wasmbus.evt.{name}.host_stopped", payload)
        lattice.add("N2")
        await lattice.beat("N2")
        await eventually(lambda: watched.ids() == ["N1", "N2"])
        lattice.models = [{"version": "v1"}]
        await lattice.raw(f"wadm.evt.{name}.manifest_published", b"garbage")
        await eventually(lambda: "name" in watched.view().models_reason)
        assert [app.name for app in watched.view().models or ()] == ["shop"], "what was known stays"


async def test_a_lattice_without_hosts_is_no_garbage(
    nats_server: NatsServer, watched: Watched, name: str, caplog: pytest.LogCaptureFixture
) -> None:
    await watched.lattices.need("group", at(nats_server, name))
    await eventually(lambda: watched.view().settled)
    assert watched.view().hosts == ()
    assert not [record for record in caplog.records if record.levelno >= logging.WARNING]


async def test_an_outage_is_reported_loses_no_state_and_is_waited_out(tmp_path: Path, watched: Watched) -> None:
    with NatsServer(tmp_path / "nats") as server:
        async with LatticeSpeaker(server.url, "default", models=[model("shop")]) as lattice:
            lattice.add("N1")
            await watched.lattices.need("group", at(server, "default"))
            await eventually(lambda: watched.view().models and watched.ids() == ["N1"])
            since = watched.view().connected_since
            server.kill()
            await eventually(lambda: watched.view().connected_since is None)
            assert str(server.port) in watched.view().reason
            assert watched.ids() == ["N1"]
            assert watched.view().presence("N1", 10**9) is Presence.UNKNOWN
            server.start()
            await watched.linked()
            await eventually(lambda: lattice.client.is_connected)
            assert since is not None
            assert (watched.view().connected_since or 0) > since
            lattice.add("N2")
            await lattice.beat("N2")
            await eventually(lambda: watched.ids() == ["N1", "N2"])


async def test_a_connection_that_is_half_open_is_noticed(nats_server: NatsServer, name: str) -> None:
    watched = Watched(replace(LINK, ping=0.2))
    async with (
        TcpProxy("127.0.0.1", nats_server.port) as proxy,
        LatticeSpeaker(nats_server.url, name) as lattice,
        watched.lattices,
    ):
        await watched.lattices.need("group", LatticeAddress(NatsAddress(f"nats://127.0.0.1:{proxy.port}"), name))
        await watched.linked()
        proxy.silence()
        await eventually(lambda: watched.view().connected_since is None)
        proxy.resume()
        await watched.linked()
        lattice.add("N1")
        await lattice.beat("N1")
        await eventually(lambda: watched.ids() == ["N1"])


async def test_one_connection_serves_all_users_of_an_address_and_closes_with_the_last(
    nats_server: NatsServer, watched: Watched, name: str
) -> None:
    other = f"{name}-b"
    async with LatticeSpeaker(nats_server.url, name) as first, LatticeSpeaker(nats_server.url, other) as second:
        first.add("N1")
        second.add("N2")
        for key, lattice in (("a", name), ("b", name), ("c", other)):
            await watched.lattices.need(key, at(nats_server, lattice))
        await eventually(lambda: (watched.ids("a"), watched.ids("b"), watched.ids("c")) == (["N1"], ["N1"], ["N2"]))
        await eventually(lambda: all(watched.view(key).settled for key in "abc"))
        assert watched.lattices.connections == 1
        watched.changed.clear()
        second.add("N3")
        await second.beat("N3")
        await eventually(lambda: watched.ids("c") == ["N2", "N3"])
        assert set(watched.changed) == {"c"}, "another lattice is nobody else's concern"
        await watched.lattices.need("c", None)
        assert watched.lattices.view("c") is None
        await watched.lattices.need("a", at(nats_server, other))
        await eventually(lambda: watched.ids("a") == ["N2", "N3"])
        await watched.lattices.need("a", None)
        assert watched.lattices.connections == 1
        await watched.lattices.need("b", None)
        assert watched.lattices.connections == 0


async def test_credentials_are_used_and_a_rotated_secret_is_another_connection(
    tmp_path: Path, watched: Watched
) -> None:
    old, new = new_seed(), new_seed()
    config = tmp_path / "nats.conf"

    def allow(seed: str) -> None:
        public = identity_of(seed, Kind.NKEY).public_key
        config.write_text(
            f'authorization {{ users: [ {{ nkey: "{public}" }}, {{ user: "speaker", password: "p" }} ] }}'
        )

    def address(seed: str) -> LatticeAddress:
        held = CachedCredentials(seed, Kind.NKEY, "Secret lattices/nats, key nats.creds")
        return LatticeAddress(NatsAddress(server.url, held), "default")

    allow(old)
    with NatsServer(tmp_path / "nats", config=config) as server:
        speaker = {"user": "speaker", "password": "p"}
        async with LatticeSpeaker(server.url, "default", options=speaker) as lattice:
            lattice.add("N1")
            await watched.lattices.need("good", address(old))
            await watched.lattices.need("bad", address(new))
            await eventually(lambda: watched.ids("good") == ["N1"])
            await eventually(lambda: REFUSED in watched.view("bad").reason)
            assert watched.view("bad").hosts == ()
            assert watched.lattices.connections == 2
            assert old not in repr(address(old)), "a secret is in no message"
            await watched.lattices.need("good", address(new))
            await watched.lattices.need("bad", None)
            assert watched.lattices.connections == 1


async def test_credentials_that_are_revoked_and_come_back_forget_nothing(tmp_path: Path, watched: Watched) -> None:
    ours = new_seed()
    public = identity_of(ours, Kind.NKEY).public_key
    config = tmp_path / "nats.conf"
    speaker = '{ user: "speaker", password: "p" }'

    def allow(*users: str) -> None:
        config.write_text(f"authorization {{ users: [ {', '.join((speaker, *users))} ] }}")

    allow(f'{{ nkey: "{public}" }}')
    with NatsServer(tmp_path / "nats", config=config) as server:
        held = CachedCredentials(ours, Kind.NKEY, "Secret lattices/nats, key nats.creds")
        options = {"user": "speaker", "password": "p"}
        async with LatticeSpeaker(server.url, "default", models=[model("shop")], options=options) as lattice:
            lattice.add("N1")
            await watched.lattices.need("group", LatticeAddress(NatsAddress(server.url, held), "default"))
            await eventually(lambda: watched.ids() == ["N1"] and watched.view().models)
            server.kill()
            allow()
            server.start()
            await eventually(lambda: REFUSED in watched.view().reason)
            assert (watched.view().connected_since, watched.ids()) == (None, ["N1"])
            server.kill()
            allow(f'{{ nkey: "{public}" }}')
            server.start()
            await watched.linked()
            await eventually(lambda: lattice.client.is_connected)
            lattice.add("N2")
            await lattice.beat("N2")
            await eventually(lambda: watched.ids() == ["N1", "N2"])
            assert ours not in watched.view().reason


async def test_invalid_credentials_are_reported_with_their_source(
    nats_server: NatsServer, watched: Watched, name: str
) -> None:
    held = CachedCredentials("no-seed", Kind.CREDENTIALS, "Secret lattices/nats, key nats.creds")
    await watched.lattices.need("group", LatticeAddress(NatsAddress(nats_server.url, held), name))
    await eventually(lambda: "Secret lattices/nats" in watched.view().reason)
    assert "no-seed" not in watched.view().reason


async def test_an_untrusted_certificate_is_reported_and_retried(tmp_path: Path, watched: Watched) -> None:
    for authority in ("good", "other"):
        (tmp_path / authority).mkdir()
        write_pki(tmp_path / authority)
    config = tmp_path / "nats.conf"

    def certify(authority: str) -> None:
        files = ((key, tmp_path / authority / f"kube-apiserver.{kind}") for key, kind in CERTIFICATE.items())
        config.write_text("tls { " + ", ".join(f'{key}: "{file}"' for key, file in files) + " }")

    certify("other")
    with NatsServer(tmp_path / "nats", config=config) as server:
        link = NatsAddress(server.url, authorities=(tmp_path / "good" / "ca.crt").read_text())
        await watched.lattices.need("group", LatticeAddress(link, "default"))
        await eventually(lambda: "CERTIFICATE_VERIFY_FAILED" in watched.view().reason)
        certify("good")
        server.stop()
        server.start()
        await watched.linked()


@pytest.mark.parametrize(
    "link",
    [
        NatsAddress("nats://u:secret@[bad:4222"),
        NatsAddress("nats://host:secret:4222"),
        NatsAddress(":4222:4222"),
        NatsAddress("nats://127.0.0.1:1", authorities="no certificate: é"),
    ],
    ids=["brackets", "two ports", "no host", "no certificate"],
)
async def test_an_invalid_address_is_reported_and_affects_no_other(
    nats_server: NatsServer, watched: Watched, name: str, link: NatsAddress
) -> None:
    async with LatticeSpeaker(nats_server.url, name) as lattice:
        lattice.add("N1")
        await watched.lattices.need("bad", LatticeAddress(link, name))
        await watched.lattices.need("good", at(nats_server, name))
        await eventually(lambda: watched.ids("good") == ["N1"])
        await eventually(lambda: watched.view("bad").settled)
        assert watched.view("bad").reason
        assert "secret" not in watched.view("bad").reason.replace("secret:4222", "")
