"""The cached listeners of a Service: they are read back, and an edited cache is ignored."""

from __future__ import annotations

import json
from typing import Any

import pytest

from trellis.lattice.domain.addresses import Family
from trellis.lattice.domain.cached_listeners import read_cached_listeners, write_cached_listeners
from trellis.lattice.domain.manifests import Listener, Protocol

ONE = Listener("http", 8080, Protocol.HTTP, Family.ANY, ((("zone", "a"),),), ("p",))


@pytest.mark.parametrize("port", [-1, 0, 65536, "-1", "²", "9" * 30, None, 8080.5])
def test_an_invalid_port_makes_the_annotation_ignored(port: Any) -> None:
    text = write_cached_listeners((ONE,))
    assert read_cached_listeners(text) == (ONE,)
    (row,) = json.loads(text)
    assert read_cached_listeners(json.dumps([row | {"port": port}])) == ()
