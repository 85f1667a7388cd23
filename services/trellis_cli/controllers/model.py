"""The row of ``trellis status`` for controllers. Pure: their rows in, a row out."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Final

from trellis.read_model.tables.controllers import HOST, ControllerRow
from trellis_cli.status.row import Led, Part, Unhealthy, led_part

PART: Final = "controllers"
UNKNOWN: Final = {"count": None, "states": None, "not_ready": None, "holder": None}
_NEVER: Final = "NotEvaluated"


def controllers_part(
    rows: Sequence[ControllerRow], leader: str | None, causes: Mapping[str, str] | None = None
) -> Part:
    """Return the row of ``trellis status``; a controller that is not ready is a problem, and so is a missing leader.

    ``causes``: by key, problems that are not in the rows: some calls fail while other calls succeed.
    """
    states = dict(sorted(Counter(row.state or _NEVER for row in rows).items()))
    bad = {row.key: row.problem for row in rows if not row.ready and row.state != "Paused"} | dict(causes or {})
    text = ", ".join(f"{count} {state}" for state, count in states.items())
    led = Led(HOST, leader, "no controller is called")
    data = {"count": len(rows), "states": states, "not_ready": sorted(bad)}
    return led_part(PART, text, led, Unhealthy("not ready", "controller", bad), data)
