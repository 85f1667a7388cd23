"""The output of `rollout status` while it watches, from standings."""

from __future__ import annotations

import io
import json
from dataclasses import replace

import pytest
import yaml
from rich.console import Console

from support.suite.naming import lacking
from trellis.provisioning.ledger import Ledger
from trellis.provisioning.revisions import Revision
from trellis.provisioning.shim_status import Status
from trellis.read_model.tables.rollout import NodeStage, Phase, RolloutSnapshot, ShimNode, Standing
from trellis_cli.common.errors import CommandError
from trellis_cli.common.output import Format
from trellis_cli.rollout.command import _show_history
from trellis_cli.rollout.views import Lines, OnTerminal, page
from trellis_dev.testing.builders import a_node, a_shim

CREATED = "2026-01-31T08:00:00Z"
WORLD = RolloutSnapshot(a_shim(), Status(), (a_shim(),), (a_node(),), Ledger({}))
BROKEN = ShimNode("broken", NodeStage.FAILED, 2, "no [bold]space\nleft")
BEGUN = Standing("spin", Phase.PROGRESSING, "", "", 1, 2, (ShimNode("a", NodeStage.IN_PROGRESS, 1),))
LATER = Standing("spin", Phase.HALTED, "too many", "resume it", 1, 2, (ShimNode("a", NodeStage.UPDATED), BROKEN))


def test_without_a_terminal_there_is_a_line_a_change_and_one_for_each_failure(
    capsys: pytest.CaptureFixture[str],
) -> None:
    lines = Lines(Format.TABLE)
    for standing in (BEGUN, BEGUN, LATER, LATER):
        lines.show(standing, WORLD)
    shown = [line.partition(" s  ")[2] for line in capsys.readouterr().out.splitlines()]
    started, failed, halted = shown
    assert lacking(started, "spin", "2", "Progressing", "0 of 1 nodes", "1") == []
    assert lacking(failed, "broken", "no [bold]space left") == []
    assert lacking(halted, "spin", "2", "Halted", "1 of 2 nodes", "1", "too many") == []


def test_for_programs_there_is_a_document_a_change(capsys: pytest.CaptureFixture[str]) -> None:
    lines = Lines(Format.JSON)
    for standing in (BEGUN, BEGUN, LATER):
        lines.show(standing, WORLD)
    assert [json.loads(line)["phase"] for line in capsys.readouterr().out.splitlines()] == ["Progressing", "Halted"]


def test_on_a_terminal_a_bar_moves_above_the_nodes_in_progress_and_failed() -> None:
    out = io.StringIO()
    moving = OnTerminal(Console(file=out, force_terminal=True, width=120))
    with moving.live:
        moving.show(BEGUN, WORLD)
        moving.live.refresh()
        moving.show(LATER, WORLD)
        moving.live.refresh()
    assert "0/1" in out.getvalue()
    assert "1/2" in out.getvalue()
    assert "no [bold]space left" in out.getvalue()


def test_the_page_names_each_node_and_ends_with_the_summary() -> None:
    out = io.StringIO()
    Console(file=out, width=200).print(page(LATER))
    lines = out.getvalue().splitlines()
    assert [line.split()[0] for line in lines] == ["NODE", "a", "broken", "spin"]
    assert lines[2].split(maxsplit=3)[1:3] == ["Failed", "2"]


REVISIONS = tuple(Revision(f"r{n}", str(n), "1", n, {"runtimeClass": {"name": f"v{n}"}}, CREATED) for n in (1, 2))


def test_the_history_has_each_revision_and_the_version_of_one(capsys: pytest.CaptureFixture[str]) -> None:
    world = replace(WORLD, revisions=REVISIONS, current=REVISIONS[1])
    _show_history("spin", world, None, Format.TABLE, no_headers=True)
    assert [line.split() for line in capsys.readouterr().out.splitlines()] == [
        ["1", CREATED, "no"],
        ["2", CREATED, "yes"],
    ]
    _show_history("spin", world, 1, Format.TABLE, no_headers=False)
    assert yaml.safe_load(capsys.readouterr().out) == REVISIONS[0].version
    _show_history("spin", world, None, Format.JSON, no_headers=False)
    assert [revision["current"] for revision in json.loads(capsys.readouterr().out)["revisions"]] == [False, True]
    with pytest.raises(CommandError, match=r'\b7\b.*"spin".*: 1, 2$'):
        _show_history("spin", world, 7, Format.TABLE, no_headers=False)
