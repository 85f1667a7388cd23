"""A fetch that brings nothing is no failure, however the library says so."""

from __future__ import annotations

from typing import Any

import nats.errors
import pytest

from trellis.lattice.follow import forwarder
from trellis.lattice.storage import bucket


class Silent:
    """A subscription to which nothing comes."""

    def __init__(self, error: Exception) -> None:
        self._error = error

    async def fetch(self, *_: Any, **__: Any) -> list[Any]:
        raise self._error


@pytest.mark.parametrize("module", [bucket, forwarder])
@pytest.mark.parametrize("error", [TimeoutError, nats.errors.TimeoutError])
async def test_a_fetch_that_ends_without_messages_is_empty(module: Any, error: type[Exception]) -> None:
    assert await module._fetch(Silent(error()), 5.0) == []
