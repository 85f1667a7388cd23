"""Mistakes on the command lines of `trellis dead-letters` and `trellis events`: one line that says what is needed."""

from __future__ import annotations

from typing import Any

import pytest
import typer.main

from support.suite.naming import lacking
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
    ("arguments", "names"),
    [
        ("dead-letters replay", ["SEQUENCE", "--all"]),
        ("dead-letters replay 7 --all", ["SEQUENCE", "--all"]),
        ("dead-letters replay 7 --noun node", ["--all"]),
        ("dead-letters list --reason sadness", ["--reason", "'sadness'", "Unparseable"]),
        ("dead-letters list --noun cat", ["--noun", "'cat'", "application", "node"]),
        ("dead-letters list --since now", ["--since", "'now'", "10m"]),
        ("events replay --subject node", ["--subject", "'node'"]),
        ("events tail --subject a..b", ["--subject", "'a..b'"]),
        ("events tail --trace 0af7", ["--trace", "'0af7'"]),
        ("events tail --trace 0af76519 --last 3", ["--last", "--trace", "--since"]),
        ("events tail --until 10m", ["--until", "--since", "--last"]),
        ("events tail --noun node --subject node.>", ["--noun", "--subject"]),
        ("events replay --cluster c --subject trellis.evt.>", ["--cluster", "--subject"]),
    ],
)
def test_a_mistake_is_one_line(arguments: str, names: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    group, *rest = arguments.split()
    command: Any = typer.main.get_command({"dead-letters": dead.app, "events": events.app}[group])
    with pytest.raises(SystemExit) as ended:
        command.main(rest, standalone_mode=False)
    out, err = capsys.readouterr()
    assert (ended.value.code, out) == (2, "")
    assert err.startswith("Error: ")
    assert lacking(err, *names) == []
    assert err.count("\n") == 1
