"""When what wadm refused is tried again: by the time that passes, not by the clock on the wall."""

from __future__ import annotations

import time
from typing import Any, cast

import pytest

from application_manager.cache import Cache
from application_manager.domain.sides import Absence
from application_manager.domain.snapshot import Snapshot
from application_manager.lattice_followers import LatticeFollowers
from application_manager.reconciler import Reconciler


@pytest.mark.parametrize("step", [-30 * 86_400.0, 30 * 86_400.0])
def test_a_wall_clock_that_is_set_does_not_change_when_wadm_is_asked_again(
    monkeypatch: pytest.MonkeyPatch, step: float
) -> None:
    unused: Any = None
    cache = Cache({}, cast("LatticeFollowers", None))
    reconciler = Reconciler(unused, cache, unused, unused, unused, unused)
    wall = time.time()
    monkeypatch.setattr(time, "time", lambda: wall + step)
    refused = reconciler._refuse(Snapshot(None, Absence.LOST), RuntimeError("no"))
    assert 0 < refused.again - time.monotonic() <= 300
