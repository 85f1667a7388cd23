"""At which address the lattice of host groups is followed."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import pytest

from trellis.kube.errors import Forbidden, KubeError
from trellis.kube.resources import SECRETS
from trellis.lattice.connection.address import LatticeAddress
from trellis.lattice.domain.group_views import GroupView, view_group
from trellis.lattice.follow.group_lattices import GroupLattices
from trellis_dev.fakes.fake import FakeKube, status_reply

SECONDS = 60.0
NEVER: list[tuple[str, str | None]] = []


def group(name: str, created: str, address: str, **spec: Any) -> GroupView:
    metadata = {"name": name, "namespace": "team", "uid": name, "creationTimestamp": created}
    return view_group({"metadata": metadata, "spec": {"version": "1", "lattice": "red", "natsAddress": address} | spec})


OLD = group("z", "2026-01-01T00:00:00Z", "nats://old")
NEW = group("a", "2026-01-02T00:00:00Z", "nats://new")
SECRET = group("s", "2026-01-01T00:00:00Z", "nats://old", secretName="credentials")


@dataclass
class Service:
    """Notes what it is to follow, and how runs of its keys end."""

    groups: list[GroupView]
    kube: FakeKube = field(default_factory=FakeKube)
    followed: list[tuple[str, str | None]] = field(default_factory=list)
    errors: list[KubeError | None] = field(default_factory=list)

    async def follow(self, key: str, address: LatticeAddress | None) -> None:
        self.followed.append((key, None if address is None else address.nats.url))

    @contextmanager
    def noted(self, _: str) -> Iterator[None]:
        self.errors.append(None)
        try:
            yield
        except KubeError as error:
            self.errors[-1] = error
            raise

    async def run(self) -> float | None:
        return await GroupLattices(self.kube, lambda _: self.groups, self.follow, self.noted, SECONDS).run("red", None)


async def test_of_several_groups_the_oldest_determines_the_address_of_the_lattice() -> None:
    service = Service([NEW, OLD])
    assert await service.run() is None, "no Secret can change it"
    assert service.followed == [("red", "nats://old:4222")]


async def test_a_lattice_that_no_group_names_is_followed_no_more() -> None:
    service = Service([])
    assert await service.run() is None
    assert service.followed == [("red", None)]


async def test_a_lattice_whose_name_can_be_in_no_subject_is_not_followed() -> None:
    service = Service([group("z", "2026-01-01T00:00:00Z", "nats://old", lattice="a.b")])
    await service.run()
    assert service.followed == [("red", None)]


async def test_secrets_are_read_again_after_a_while_and_one_that_is_missing_is_no_error() -> None:
    service = Service([SECRET])
    assert await service.run() == SECONDS
    assert service.followed == [("red", "nats://old:4222")]
    assert service.errors == [None]


async def test_a_secret_that_cannot_be_read_changes_nothing_and_is_noted() -> None:
    service = Service([SECRET])
    denied = 'secrets "credentials" is forbidden: User "me" cannot get resource "secrets" in API group ""'
    service.kube.answer_next(
        1, lambda _: status_reply(403, "Forbidden", denied), when=lambda request: SECRETS.plural in request.path
    )
    with pytest.raises(Forbidden):
        await service.run()
    assert service.followed == NEVER
    assert [type(error) for error in service.errors] == [Forbidden]
