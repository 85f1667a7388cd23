"""SIGTERM while a program starts: each has its handler before it imports anything else, where it needs one."""

from __future__ import annotations

import ast
import importlib.util
import os
import signal
from importlib.metadata import entry_points
from pathlib import Path

import pytest

from trellis.installer_api.pid1 import end_at_sigterm

PROGRAMS = sorted(
    entry_point.module
    for entry_point in entry_points(group="console_scripts")
    if entry_point.name.startswith("trellis")
)
HANDLER = "trellis.installer_api.pid1"


@pytest.fixture
def handlers(monkeypatch: pytest.MonkeyPatch) -> dict[int, object]:
    """The handlers that were set, by signal."""
    found: dict[int, object] = {}
    monkeypatch.setattr(signal, "signal", found.__setitem__)
    return found


def test_the_first_process_gets_a_handler(handlers: dict[int, object], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "getpid", lambda: 1)
    end_at_sigterm()
    assert list(handlers) == [signal.SIGTERM]


def test_any_other_process_keeps_the_default_action(handlers: dict[int, object]) -> None:
    end_at_sigterm()
    assert handlers == {}


@pytest.mark.parametrize("program", PROGRAMS)
def test_a_program_imports_the_handler_first_and_calls_it_before_the_rest(program: str) -> None:
    assert len(PROGRAMS) == 10
    spec = importlib.util.find_spec(program)
    assert spec is not None
    assert spec.origin is not None
    body = ast.parse(Path(spec.origin).read_text()).body
    at_once = [node.module for node in body if isinstance(node, ast.ImportFrom)]
    assert not [node for node in body if isinstance(node, ast.Import)]
    assert at_once == ["__future__", HANDLER]
    [main] = [node for node in body if isinstance(node, ast.FunctionDef)]
    first = main.body[1]
    assert ast.unparse(first) == "end_at_sigterm()"
