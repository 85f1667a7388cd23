"""Mistakes on the command lines of `trellis dead-letters` and `trellis events`: one line that says what is needed."""

from __future__ import annotations

from typing import Any

import pytest
import typer.main

from trellis_cli import events
from trellis_cli.dead_letters import command as dead

NOWHERE = "nats://127.0.0.1:1"


@pytest.fixture(autouse=True)
def _alone(monkeypatch: pytest.MonkeyPatch) -> None:
    """Leave the process' logging and environment out of it."""
    monkeypatch.setenv("TRELLIS_NATS_URL", NOWHERE)
    for module in (dead, events):
        monkeypatch.setattr(module, "setup_logging", lambda **_: None)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ("dead-letters replay", "needs the sequences of letters, or --all"),
        ("dead-letters replay 7 --all", "needs the sequences of letters, or --all"),
        ("dead-letters replay 7 --noun node", "filters belong to --all"),
        ("dead-letters list --reason sadness", "--reason: has 'sadness', needs one of: Unparseable"),
        (
            "dead-letters list --noun cat",
            "--noun: has 'cat', needs one of: application, controller, host_pod, hosts, node",
        ),
        ("dead-letters list --since now", "--since: has 'now', needs how long ago"),
        ("events replay --subject node", "--subject: has 'node', matches no event"),
        ("events tail --subject a..b", "--subject: has 'a..b', needs tokens"),
        ("events tail --trace 0af7", "--trace: has '0af7', needs a trace id"),
        ("events tail --trace 0af76519 --last 3", "--last: counts facts of all traces"),
        ("events tail --until 10m", "--until: is past"),
        ("events tail --noun node --subject node.>", "--noun: is part of --subject"),
        ("events replay --cluster c --subject trellis.evt.>", "--cluster: is part of an absolute --subject"),
    ],
)
def test_a_mistake_is_one_line(arguments: str, message: str, capsys: pytest.CaptureFixture[str]) -> None:
    group, *rest = arguments.split()
    command: Any = typer.main.get_command({"dead-letters": dead.app, "events": events.app}[group])
    with pytest.raises(SystemExit) as ended:
        command.main(rest, standalone_mode=False)
    out, err = capsys.readouterr()
    assert (ended.value.code, out) == (2, "")
    assert err.startswith(f"trellis: {message}")
    assert err.count("\n") == 1
