"""When what wadm refused is tried again: by the time that passes, not by the clock on the wall."""

from __future__ import annotations

import time
from types import SimpleNamespace
from typing import Any

import pytest

from application_manager.reconciler import Keep


@pytest.mark.parametrize("step", [-30 * 86_400.0, 30 * 86_400.0])
def test_a_wall_clock_that_is_set_does_not_change_when_wadm_is_asked_again(
    monkeypatch: pytest.MonkeyPatch, step: float
) -> None:
    unused: Any = None
    keep = Keep(SimpleNamespace(refused={}), unused, unused, unused, unused, unused)  # type: ignore[arg-type]
    world: Any = SimpleNamespace(key="key", snapshot=SimpleNamespace(object=None))
    wall = time.time()
    monkeypatch.setattr(time, "time", lambda: wall + step)
    refused = keep._refuse(world, RuntimeError("no"))
    assert 0 < refused.again - time.monotonic() <= 300
