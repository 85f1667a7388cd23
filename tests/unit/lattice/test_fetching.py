"""A fetch that brings nothing is no failure, however the library says so."""

from __future__ import annotations

from typing import Any, cast

import nats.errors
import pytest

from trellis.lattice.connection.address import LatticeAddress, NatsAddress
from trellis.lattice.follow.forwarder import Forwarder, Lag
from trellis.lattice.storage import bucket


class Silent:
    """A subscription to which nothing comes."""

    def __init__(self, error: Exception) -> None:
        self._error = error

    async def fetch(self, *_: Any, **__: Any) -> list[Any]:
        raise self._error


@pytest.mark.parametrize("error", [TimeoutError, nats.errors.TimeoutError])
async def test_a_fetch_that_ends_without_messages_is_empty(error: type[Exception]) -> None:
    silent: Any = Silent(error())
    assert await bucket._fetch(silent, 5.0) == []
    lattice = LatticeAddress(NatsAddress("nats://nowhere:4222"), "default")
    forwarder = Forwarder(cast("Any", None), lattice, "test", cast("Any", None))
    assert not await forwarder._forward_next(silent, Lag())
