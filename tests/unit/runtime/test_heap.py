"""What is loaded at the start of a service costs nothing in collections."""

from __future__ import annotations

import asyncio
import gc
from collections.abc import Coroutine, Iterator
from typing import Any

import pytest

import node_watcher.__main__
import provisioner.__main__
from trellis_bundle.run import RunFlags, run


@pytest.fixture
def frozen(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[int]]:
    """How many objects were out of the collector's way when each event loop would have begun."""
    seen: list[int] = []

    def begun(main: Coroutine[Any, Any, None]) -> None:
        main.close()
        seen.append(gc.get_freeze_count())

    monkeypatch.setattr(asyncio, "run", begun)
    for module in ("trellis.runtime", "trellis_bundle.run"):
        monkeypatch.setattr(f"{module}.setup_logging", lambda **_: None)
    yield seen
    gc.unfreeze()


@pytest.mark.parametrize("main", [node_watcher.__main__.main, provisioner.__main__.main, lambda: run([], RunFlags())])
def test_every_way_to_start_a_service_freezes_what_is_loaded(main: Any, frozen: list[int]) -> None:
    main()
    (count,) = frozen
    assert count > 10_000
