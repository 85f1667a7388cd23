"""Which links are taken for one account of NATS: a real server with accounts, and one that lies."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest

from secrets_backend.accounts import Accounts
from secrets_backend.gather import Known
from support.fleet import eventually
from trellis.lattice.address import LinkAddress
from trellis.lattice.link import Link
from trellis.localcluster.nats import NatsServer

pytestmark = [pytest.mark.nats]

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
}
"""


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
        self.known = Known({}, {})
        self.accounts = Accounts(self.known)
        self.links: dict[LinkAddress, tuple[Link, asyncio.Task[None]]] = {}

    async def join(self, server: NatsServer, user: str) -> LinkAddress:
        address = LinkAddress(f"nats://{user}:pw@127.0.0.1:{server.port}")
        link = Link(address, "test", lambda: None)
        await self.accounts.join(address, link)
        self.links[address] = link, asyncio.create_task(link.run())
        await self.look(address)
        return address

    async def look(self, address: LinkAddress) -> None:
        link, _ = self.links[address]
        await asyncio.wait_for(link.there(), 20)
        await self.accounts.look(address, link)

    async def lose(self, address: LinkAddress) -> None:
        link, task = self.links.pop(address)
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
        assert link.since is None

    def one_account(self, one: LinkAddress, other: LinkAddress) -> bool:
        return frozenset({one, other}) in self.known.pairs


@pytest.fixture
async def links() -> AsyncIterator[Links]:
    made = Links()
    yield made
    for address in list(made.links):
        await made.lose(address)


async def test_two_users_of_one_account_are_one(server: NatsServer, links: Links) -> None:
    one, two = await links.join(server, "one"), await links.join(server, "two")
    assert links.one_account(one, two)
    assert links.known.tried == {one, two}


async def test_users_of_two_accounts_are_not_one_also_if_one_hears_the_other(server: NatsServer, links: Links) -> None:
    one, three = await links.join(server, "one"), await links.join(server, "three")
    assert not links.one_account(one, three)


async def test_another_server_that_says_it_is_the_same_account_is_not_one(
    server: NatsServer, another_server: NatsServer, links: Links
) -> None:
    one, liar = await links.join(server, "one"), await links.join(another_server, "one")
    assert not links.one_account(one, liar)


async def test_a_user_that_may_not_say_anything_stands_for_itself(server: NatsServer, links: Links) -> None:
    one, shy = await links.join(server, "one"), await links.join(server, "shy")
    assert not links.one_account(one, shy)


async def test_a_server_that_takes_the_place_of_one_gets_nothing_of_its_account_while_the_others_are_away(
    server: NatsServer, another_server: NatsServer, links: Links
) -> None:
    one, two = await links.join(server, "one"), await links.join(server, "two")
    await links.lose(one)
    moved = Link(LinkAddress(f"nats://two:pw@127.0.0.1:{another_server.port}"), "test", lambda: None)
    await links.lose(two)
    await links.accounts.join(two, moved)  # the same address, now of another server
    links.links[two] = moved, asyncio.create_task(moved.run())
    await links.look(two)
    assert not links.one_account(one, two)


async def test_links_that_come_back_one_after_the_other_stay_one_account(server: NatsServer, links: Links) -> None:
    one, two = await links.join(server, "one"), await links.join(server, "two")
    await links.lose(two)
    looking = asyncio.create_task(links.look(one))
    back = Link(two, "test", lambda: None)
    await links.accounts.join(two, back)
    links.links[two] = back, asyncio.create_task(back.run())
    await links.look(two)
    await looking
    assert links.one_account(one, two)


async def test_a_new_account_counts_at_once(server: NatsServer, links: Links) -> None:
    one, two = await links.join(server, "one"), await links.join(server, "two")
    await links.lose(two)
    moved = Link(LinkAddress(f"nats://three:pw@127.0.0.1:{server.port}"), "test", lambda: None)
    await links.accounts.join(two, moved)  # the same address, now of a user in another account
    links.links[two] = moved, asyncio.create_task(moved.run())
    await links.look(two)
    assert not links.one_account(one, two)


async def test_a_link_that_goes_away_meanwhile_holds_nobody_up(server: NatsServer, links: Links) -> None:
    one, two = await links.join(server, "one"), await links.join(server, "two")
    looking = asyncio.create_task(links.look(one))
    await links.lose(two)
    await asyncio.wait_for(looking, 10)
    await eventually(lambda: one in links.known.tried, "it was looked for")
