"""The record of runs and the page that is made of it."""

from __future__ import annotations

import dataclasses
import json
import re
from pathlib import Path

from chaos import fault_plan
from chaos.flat import Verdict
from chaos.outcome import Outcome
from chaos.record import MARK, RECORD, Line, SoakLine, append, met, page, read, read_soaks
from chaos.schedule import make_schedule
from support.suite.naming import lacking


def test_appended_lines_are_read_back_and_shown(tmp_path: Path) -> None:
    schedule = make_schedule(17, 30)
    good = Line.of(schedule, Outcome(settled=1.25), "abc", 60)
    bad = Line.of(schedule, Outcome(["a | b"]), "abc", 60)
    for line in (good, bad):
        append(tmp_path / "record", line)
    lines = read(tmp_path / "record")
    assert lines == [good, bad]
    shown = page(f"# Head\n{MARK}what it was before", lines)
    assert shown.startswith(f"# Head\n{MARK}\n## Soaks so far")
    assert lacking(shown, "2 runs, 1") == []
    assert "what it was before" not in shown
    assert "| a / b |" in shown
    assert page(shown, lines) == shown


def test_each_fault_is_counted_by_runs_that_had_it_and_by_times() -> None:
    schedule = make_schedule(17, 30)
    item = dataclasses.replace(Line.of(schedule, Outcome(), "abc", 60), faults={"kill": 2}, servers=3)
    other = dataclasses.replace(item, faults={"kill": 1, "wipe-nats": 1}, servers=1)
    shown = met([item, other])
    assert re.findall(r"\d+", shown.partition("\n")[0]) == ["1", "1"]
    assert "| `kill` | 2 | 3 |" in shown
    assert "| `wipe-nats` | 1 | 1 |" in shown
    assert "| `fill-disk-of-nats` | 0 | 0 |" in shown


def test_a_soak_is_shown_with_the_resources_of_each_process(tmp_path: Path) -> None:
    held = Verdict("replica first", 300, (150.0, 151.5), (60.0, 60.0), ())
    line = SoakLine(1, 1800.0, "abc", 90, "ok", (held,))
    (tmp_path / "soak").write_text(json.dumps(dataclasses.asdict(line)) + "\n")
    shown = page(f"# Head\n{MARK}", [], read_soaks(tmp_path / "soak"))
    assert lacking(shown, "Seed 1", "30 minutes", "commit abc", "90 faults: ok") == []
    assert "| replica first | 300 | 150 | 151.5 | 60 | 60 |" in shown
    assert "replica first" not in page(shown, [], read_soaks(tmp_path / "nothing"))


def test_an_undecided_run_is_not_recorded_as_right() -> None:
    line = Line.of(make_schedule(17, 30), Outcome(undecided=["after 600 s"]), "abc", 600)
    assert line.outcome == "undecided: after 600 s"
    assert lacking(page(MARK, [line]), "1 runs, 0") == []


def test_a_seed_of_the_record_still_has_what_went_wrong_in_its_run() -> None:
    """A new fault is drawn after the others: seeds keep their former faults, and may have the new one besides."""
    lines = read(RECORD)
    assert lines
    for line in lines:
        acts = [step.act for step in make_schedule(line.seed, line.seconds).of(fault_plan.PART)]
        lost = {act: count for act, count in line.faults.items() if acts.count(act) < count}
        assert not lost, f"seed {line.seed} had {lost} more times than it has {acts}"
