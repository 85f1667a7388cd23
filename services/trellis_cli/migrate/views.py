"""The table of a migration plan. Pure: steps in, a table out. Called by ``migrate``."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from rich.table import Table
from rich.text import Text

from trellis_cli.common.output import make_table
from trellis_cli.migrate.model.plan import Doing, Step

_STYLES: Final = {
    Doing.TAKE_OVER: "green",
    Doing.DELETE: "yellow",
    Doing.KEEP: "",
    Doing.LEAVE: "dim",
    Doing.FINALIZER_REMOVED: "yellow",
    Doing.DEFINE: "green",
}
_PAST: Final = {
    Doing.TAKE_OVER: "taken over",
    Doing.DELETE: "deleted",
    Doing.KEEP: "kept",
    Doing.LEAVE: "left",
    Doing.FINALIZER_REMOVED: "finalizer removed",
    Doing.DEFINE: "defined",
}


def table_of(steps: Sequence[Step]) -> Table:
    """Return the table of a plan; long texts are folded, never truncated."""
    table = make_table("OBJECT", "DESCRIPTION", "ACTION", "REASON", fold={"OBJECT", "DESCRIPTION", "REASON"})
    for step in steps:
        table.add_row(
            Text(step.object), Text(step.what), Text(_PAST[step.doing], style=_STYLES[step.doing]), Text(step.reason)
        )
    return table
