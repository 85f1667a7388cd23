"""The display of steps that take minutes."""

from __future__ import annotations

import io

import pytest
from rich.console import Console

from trellis_dev.localcluster.errors import AbortedError, ToolError
from trellis_dev.localcluster.progress import Lines, Live, stepping

STEP = "build kubernetes 1.36.3"


@pytest.mark.parametrize(
    ("ends", "outcome"),
    [
        (AbortedError("asked to stop"), "interrupted"),
        (KeyboardInterrupt(), "interrupted"),
        (ToolError("no compiler"), "failed"),
    ],
    ids=["asked to stop", "Ctrl-C", "broken"],
)
def test_a_cancelled_step_did_not_fail(ends: BaseException, outcome: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(type(ends)), stepping(Lines(), "build it"):
        raise ends
    assert f"build it: {outcome} (" in capsys.readouterr().err


def test_a_narrow_terminal_shows_for_how_long_a_build_takes_already_and_how_far_it_is() -> None:
    out = io.StringIO()
    with Live(Console(file=out, force_terminal=True, width=70)) as live:
        live.begin(STEP)
        live.note(STEP, "812 of at most 1913 packages: k8s.io/apiserver/pkg/server/dynamiccertificates")
    last = out.getvalue().splitlines()[-2]
    assert all(part in last for part in ("0:00:0", STEP, "812 of at most 1913", "…"))
