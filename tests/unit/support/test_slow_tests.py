"""The tests that ``make check`` omits."""

from __future__ import annotations

from support.suite.slow import RECORD, divide, read


def test_all_cases_of_a_recorded_test_are_left_out_and_no_others() -> None:
    nodes = ["a.py::test_x[1]", "a.py::test_x[b.py::test_y]", "a.py::test_xy", "b.py::test_y", "b.py::test_z"]
    quick, slow = divide(nodes, {"a.py::test_x": 0.3, "b.py::test_y": 1.0})
    assert quick == ["a.py::test_xy", "b.py::test_z"]
    assert slow == ["a.py::test_x[1]", "a.py::test_x[b.py::test_y]", "b.py::test_y"]


def test_the_record_names_tests_of_files_that_are_there() -> None:
    files = {test.partition("::")[0] for test in read()}
    assert [file for file in files if not (RECORD.parents[1] / file).is_file()] == []
