"""The orders by which a replica ends at its next write. Pure. Written by ``faults``, read by ``crash_on_order``."""

from __future__ import annotations

from typing import Final

VARIABLE: Final = "TRELLIS_TEST_DEATH"
"""Names the file that the order is in."""
BEFORE: Final = "before"
AFTER: Final = "after"
