"""kubectl and wash agree on Applications: a real API server, a real NATS, a stand-in for wadm.

The suite is held by the real wadm, too, in ``tests/e2e/lattice/test_synced.py``.
"""

from __future__ import annotations

import pytest

from support.wadm.application_behaviour import ApplicationBehaviour

pytestmark = [pytest.mark.cluster, pytest.mark.nats]


class TestStandIn(ApplicationBehaviour):
    """With the stand-in."""
