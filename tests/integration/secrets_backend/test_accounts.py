"""Lattice connections that share one account of NATS: a real server with accounts, and one that lies."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest

from secrets_backend.accounts import Accounts
from secrets_backend.gather import Cache
from support.nodes.fleet import eventually
from trellis.lattice.connection.address import NatsAddress
from trellis.lattice.connection.lattice_connection import LatticeConnection
from trellis_dev.localcluster.nats import NatsServer

pytestmark = [pytest.mark.nats]

STRANGERS = 8
CROWD = 12
CONFIGURATION = """
server_name: shared
accounts {
  A {
    users: [
      {user: one, password: pw}, {user: two, password: pw}
      {user: shy, password: pw, permissions: {publish: {deny: ["_INBOX_trellis.>"]}}}
    ]
    exports: [{stream: "_INBOX_trellis.>"}]
  }
  B {
    users: [{user: three, password: pw}]
    imports: [{stream: {account: A, subject: "_INBOX_trellis.>"}}]
  }
"""
CONFIGURATION += "".join(f"  S{n} {{ users: [{{user: stranger{n}, password: pw}}] }}\n" for n in range(STRANGERS))
CONFIGURATION += f"  C {{ users: [{','.join(f'{{user: crowd{n}, password: pw}}' for n in range(CROWD))}] }}\n}}\n"


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[NatsServer]:
    yield from _running(tmp_path_factory.mktemp("shared"))


@pytest.fixture(scope="module")
def another_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[NatsServer]:
    """A server that says of itself all that the first one says."""
    yield from _running(tmp_path_factory.mktemp("another"))


def _running(folder: Path) -> Iterator[NatsServer]:
    config = folder / "accounts.conf"
    config.write_text(CONFIGURATION)
    with NatsServer(folder / "server", config=config) as server:
        yield server


class Links:
    """Links of users, looked at in the order in which they came."""

    def __init__(self) -> None:
        self.cache = Cache({}, {})
        self.accounts = Accounts(self.cache)
        self.links: dict[NatsAddress, tuple[LatticeConnection, asyncio.Task[None]]] = {}

    async def join(self, server: NatsServer, user: str) -> NatsAddress:
        address = await self.connect(server, user)
        await self.look(address)
        return address

    async def connect(self, server: NatsServer, user: str) -> NatsAddress:
        address = NatsAddress(f"nats://{user}:pw@127.0.0.1:{server.port}")
        link = LatticeConnection(address, "test", lambda: None)
        await self.accounts.join(address, link)
        self.links[address] = link, asyncio.create_task(link.run())
        await asyncio.wait_for(link.there(), 20)
        return address

    async def look(self, address: NatsAddress) -> None:
        link, _ = self.links[address]
        await asyncio.wait_for(link.there(), 20)
        await self.accounts.look(address, link)

    async def lose(self, address: NatsAddress) -> None:
        link, task = self.links.pop(address)
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
        assert link.since is None

    def one_account(self, one: NatsAddress, other: NatsAddress) -> bool:
        return other in self.cache.of_its_account(one) and one in self.cache.of_its_account(other)


@pytest.fixture
def published(monkeypatch: pytest.MonkeyPatch) -> list[tuple[str, bytes]]:
    """Record the subjects and payloads that lattice connections publish."""
    found: list[tuple[str, bytes]] = []
    publish = LatticeConnection.publish

    async def noted(link: LatticeConnection, subject: str, payload: bytes) -> None:
        found.append((subject, payload))
        await publish(link, subject, payload)

    monkeypatch.setattr(LatticeConnection, "publish", noted)
    return found


@pytest.fixture
async def links() -> AsyncIterator[Links]:
    made = Links()
    yield made
    for address in list(made.links):
        await made.lose(address)


async def test_two_users_of_one_account_are_one(server: NatsServer, links: Links) -> None:
    item, two = await links.join(server, "one"), await links.join(server, "two")
    assert links.one_account(item, two)
    assert links.cache.tried == {item, two}


@pytest.mark.parametrize("users", [("one", "three"), ("three", "one")], ids=" before ".join)
async def test_users_of_two_accounts_are_not_one_also_if_one_receives_the_other(
    server: NatsServer, links: Links, users: tuple[str, str]
) -> None:
    item, other = [await links.join(server, user) for user in users]
    assert not links.one_account(item, other)


async def test_another_server_with_the_same_account_name_is_a_different_account(
    server: NatsServer, another_server: NatsServer, links: Links
) -> None:
    item, lying = await links.join(server, "one"), await links.join(another_server, "one")
    assert not links.one_account(item, lying)


async def test_a_connection_discloses_the_same_to_any_number_of_unknown_clients(
    server: NatsServer, links: Links, published: list[tuple[str, bytes]]
) -> None:
    await asyncio.gather(*(links.join(server, f"stranger{number}") for number in range(STRANGERS)))
    published.clear()
    item = await links.join(server, "one")
    assert len(published) == 2, "one word to all, and once more what nobody answered"
    assert links.cache.of_its_account(item) == frozenset()
    published.clear()
    two = await links.join(server, "two")
    assert len(published) == 3, "two words, and one answer"
    assert links.cache.of_its_account(two) == {item}


async def test_many_users_of_one_account_are_one_when_all_come_at_once(
    server: NatsServer, links: Links, published: list[tuple[str, bytes]]
) -> None:
    found = [await links.connect(server, f"crowd{number}") for number in range(CROWD)]
    await asyncio.gather(*(links.look(address) for address in found))
    for address in found:
        assert links.cache.of_its_account(address) == {*found} - {address}
    assert len(published) <= 2 * CROWD, "those that say their word to all need not answer one another"


async def test_a_repeated_challenge_is_answered_to_no_client(
    server: NatsServer, links: Links, published: list[tuple[str, bytes]]
) -> None:
    await links.join(server, "three")  # hears what is said in the account of the next
    item = await links.join(server, "one")
    to_all, message = published[-1] if published[-1][0].endswith(".accounts") else published[-2]
    published.clear()
    for _ in range(20):
        await links.links[item][0].publish(to_all, message)
    await links.look(item)
    assert len(published) <= 20 + 4, "two words more, and an answer to each"


@pytest.mark.parametrize("users", [("one", "shy"), ("shy", "one")], ids=" before ".join)
async def test_a_user_without_publish_permission_forms_its_own_account(
    server: NatsServer, links: Links, users: tuple[str, str]
) -> None:
    item, other = [await links.join(server, user) for user in users]
    assert not links.one_account(item, other)


async def test_an_answer_of_a_connection_that_is_no_more_does_not_count(
    server: NatsServer, links: Links, monkeypatch: pytest.MonkeyPatch
) -> None:
    item = await links.join(server, "one")
    publish, granted = LatticeConnection.publish, []
    monkeypatch.setattr(Cache, "record_account", lambda *_, yes: granted.append(yes))

    async def another_meanwhile(link: LatticeConnection, subject: str, payload: bytes) -> None:
        if subject.endswith(".account"):
            assert link.since is not None
            link.since += 1e-6
        await publish(link, subject, payload)

    monkeypatch.setattr(LatticeConnection, "publish", another_meanwhile)
    await links.join(server, "two")
    assert True not in granted, "not for a moment"
    assert links.cache.of_its_account(item) == frozenset()


async def test_a_connection_that_comes_back_to_another_account_is_of_that_one_alone(
    links: Links, tmp_path: Path
) -> None:
    config = tmp_path / "moving.conf"
    user = "{{user: {0}, password: pw}}".format
    together = f"accounts {{ A {{ users: [{user('one')}, {user('two')}] }} }}"
    apart = f"accounts {{ A {{ users: [{user('one')}] }}, B {{ users: [{user('two')}] }} }}"
    config.write_text(together)
    with NatsServer(tmp_path / "server", config=config) as server:
        item, two = await links.join(server, "one"), await links.join(server, "two")
        assert links.one_account(item, two)
        server.stop()
        await eventually(lambda: all(link.since is None for link, _ in links.links.values()), "they are away")
        config.write_text(apart)
        server.start()
        await asyncio.gather(links.look(item), links.look(two))
        assert not links.one_account(item, two)


async def test_a_server_that_replaces_another_gets_nothing_of_its_account_during_the_outage(
    server: NatsServer, another_server: NatsServer, links: Links
) -> None:
    item, two = await links.join(server, "one"), await links.join(server, "two")
    await links.lose(item)
    moved = LatticeConnection(NatsAddress(f"nats://two:pw@127.0.0.1:{another_server.port}"), "test", lambda: None)
    await links.lose(two)
    await links.accounts.join(two, moved)  # the same address, now of another server
    links.links[two] = moved, asyncio.create_task(moved.run())
    await links.look(two)
    assert not links.one_account(item, two)


async def test_links_that_come_back_one_after_the_other_stay_one_account(server: NatsServer, links: Links) -> None:
    item, two = await links.join(server, "one"), await links.join(server, "two")
    await links.lose(two)
    looking = asyncio.create_task(links.look(item))
    back = LatticeConnection(two, "test", lambda: None)
    await links.accounts.join(two, back)
    links.links[two] = back, asyncio.create_task(back.run())
    await links.look(two)
    await looking
    assert links.one_account(item, two)


async def test_a_new_account_counts_at_once(server: NatsServer, links: Links) -> None:
    item, two = await links.join(server, "one"), await links.join(server, "two")
    await links.lose(two)
    moved = LatticeConnection(NatsAddress(f"nats://three:pw@127.0.0.1:{server.port}"), "test", lambda: None)
    await links.accounts.join(two, moved)  # the same address, now of a user in another account
    links.links[two] = moved, asyncio.create_task(moved.run())
    await links.look(two)
    assert not links.one_account(item, two)


async def test_a_connection_that_closes_meanwhile_delays_no_other(server: NatsServer, links: Links) -> None:
    item, two = await links.join(server, "one"), await links.join(server, "two")
    looking = asyncio.create_task(links.look(item))
    await links.lose(two)
    await asyncio.wait_for(looking, 40)
    await eventually(lambda: item in links.cache.tried, "it was looked for")
