"""The pure parts of the load: sizes, how figures grow, and the page that is made of results."""

from __future__ import annotations

import dataclasses
from fractions import Fraction
from pathlib import Path

import pytest

from load import results, tables
from load.bundle import as_in_the_images
from load.growth import exponent, grows_too_fast
from load.profile import own_and_total
from load.results import Changed, Result, append, read
from load.sizes import EMPTY, FULL, SHARES, Size
from support.suite.naming import lacking


def a_result(size: Size, **changed: object) -> Result:
    item = Changed(60, 0.01, 0.02, 0.003, 3.0, 12.0, {"create jobs": 1.0, "patch nodes": 2.0})
    base = Result(
        date="2026-01-01 00:00",
        commit="abc",
        machine="a machine",
        alone=True,
        separate=False,
        size=size,
        added=size,
        ready=2.0,
        settled=dict.fromkeys(("nodes", "slices", "applications", "controllers", "all"), size.nodes / 100),
        again={"ready": 2.0, "quiet": 4.0, "processor": 1.0, "messages": 100},
        memory={"steady": 100.0, "worked": 110.0, "peak": size.nodes / 10},
        work={"processor": 1.0, "writes": 10, "messages": 10},
        idle={"processor": 0.01, "writes": 0.0, "messages": 2.0},
        changes=dict.fromkeys((*tables.KINDS, tables.REQUEST), item),
    )
    return dataclasses.replace(base, **changed)  # type: ignore[arg-type]


@pytest.mark.parametrize("share", SHARES)
def test_an_application_is_in_a_lattice_that_its_world_has(share: Fraction) -> None:
    size = FULL.of(share)
    assert {FULL.lattice_of(item) for item in range(size.applications)} == set(range(size.lattices))


def test_a_part_has_at_least_one_of_each() -> None:
    assert Size(1, 1, 1, 1).of(Fraction(1, 8)) == Size(1, 1, 1, 1)
    assert FULL.of(Fraction(1, 8)) == Size(625, 125, 13, 125)
    assert FULL.of(Fraction(1)) == FULL


@pytest.mark.parametrize("power", [0, 0.5, 1, 2])
def test_the_exponent_of_a_power_is_that_power(power: float) -> None:
    sizes = [625.0, 1250.0, 2500.0, 5000.0]
    assert exponent(sizes, [7 * size**power for size in sizes]) == pytest.approx(power)


def test_quadratic_growth_is_too_fast_and_linear_growth_is_not() -> None:
    sizes = [1.0, 2.0, 4.0]
    assert grows_too_fast(sizes, [1.0, 4.0, 16.0])
    assert not grows_too_fast(sizes, [1.0, 2.0, 4.0])
    assert grows_too_fast(sizes, [1.0, 2.0, 4.0], allowed=0.0)


@pytest.mark.parametrize(("sizes", "figures"), [([1.0], [1.0]), ([2.0, 2.0], [1.0, 2.0]), ([1.0, 2.0], [0.0, 1.0])])
def test_there_is_no_exponent_of_one_size_or_of_nothing(sizes: list[float], figures: list[float]) -> None:
    with pytest.raises(ValueError, match="no exponent"):
        exponent(sizes, figures)


def test_an_appended_result_is_read_back(tmp_path: Path) -> None:
    result = a_result(FULL)
    append(tmp_path / "results", result)
    assert read(tmp_path / "results") == [result]


def test_a_change_has_its_share_of_what_was_done() -> None:
    changed = Changed.of([0.1, 0.3, 0.2, 0.2], 0.4, {"patch nodes": 8, "create jobs": 4}, 40)
    assert (changed.p50, changed.p99, changed.processor, changed.writes, changed.messages) == (0.2, 0.3, 0.1, 3.0, 10.0)
    assert changed.written == {"create jobs": 1.0, "patch nodes": 2.0}


def test_of_a_size_the_last_result_is_shown_that_had_the_machine_alone() -> None:
    small, large = FULL.of(Fraction(1, 8)), FULL
    last = a_result(small, commit="last")
    found = [a_result(large), a_result(small), last, a_result(small, alone=False), a_result(small, separate=True)]
    assert tables.shown(found) == [last, found[0]]
    assert "|" not in tables.text([a_result(small, separate=True)])


def test_no_time_of_a_clock_is_shown_that_was_measured_beside_other_work() -> None:
    text = tables.text([a_result(FULL.of(share), alone=False) for share in SHARES])
    assert "| node: p50 | – | – | – | – |  |" in text
    assert "| node: processor | 3 ms | 3 ms | 3 ms | 3 ms | 0.00 |" in text
    assert "scale-latency.svg" not in text
    assert "scale-latency.svg" in tables.text([a_result(FULL)])


def test_a_table_states_how_a_figure_grows() -> None:
    text = tables.text([a_result(FULL.of(share)) for share in SHARES])
    assert "| 62.5 MiB | 125 MiB | 250 MiB | 500 MiB | 1.00 |" in text
    assert "| 3 | 3 | 3 | 3 | 0.00 |" in text
    assert "extrapolated" not in text


def test_figures_that_were_not_measured_are_extrapolated_and_marked() -> None:
    text = tables.text([a_result(FULL.of(share)) for share in SHARES[:2]])
    assert lacking(text, "5,000") == []
    assert "| 500 MiB |" in text


def test_the_page_shows_the_recorded_measurements() -> None:
    text = (Path(__file__).parents[3] / "docs/operations/scale.md").read_text()
    assert text.endswith(tables.text(read(results.FILE)))


def test_an_empty_world_has_nothing() -> None:
    assert dataclasses.astuple(EMPTY) == (0, 0, 0, 0)


def test_a_profile_counts_a_function_once_per_stack_and_each_leaf_function() -> None:
    frames = "run (a.py:1);call (/v/site-packages/b/c.py:2);run (a.py:1);decode (/v/site-packages/b/c.py:9)"
    own, total, samples = own_and_total([f"{frames} 3", "run (a.py:1) 1"])
    assert own == {"decode (b/c.py:9)": 3, "run (a.py:1)": 1}
    assert total == {"run (a.py:1)": 4, "call (b/c.py:2)": 3, "decode (b/c.py:9)": 3}
    assert samples == 4


@pytest.mark.thorough
def test_a_measured_process_finds_its_modules_compiled(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PYTHONDONTWRITEBYTECODE", "1")
    environment = as_in_the_images(tmp_path / "bytecode")
    assert "PYTHONDONTWRITEBYTECODE" not in environment
    compiled = {path.name.partition(".")[0] for path in (tmp_path / "bytecode").rglob("*.pyc")}
    assert compiled >= {"runtime", "_bindings", "app", "command"}
