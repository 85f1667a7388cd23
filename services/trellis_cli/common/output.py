"""How commands print: tables for people, JSON for programs.

In: finished values. Out: standard output. Called by every command that shows something.
Invariant: with ``-o json`` standard output holds one JSON document (or one a line) and nothing else.
"""

from __future__ import annotations

import sys
from enum import StrEnum
from typing import Annotated

import orjson
import typer
from rich.console import Console


class Format(StrEnum):
    """What a command prints."""

    TABLE = "table"
    JSON = "json"


OutputOption = Annotated[Format, typer.Option("--output", "-o", help="for people or for programs")]


def console() -> Console:
    """Return a console on standard output; no wider than the terminal, and never cutting lines of a pipe."""
    if sys.stdout.isatty():
        return Console()
    return Console(width=200, highlight=False)


def print_json(document: object, *, lines: bool = False) -> None:
    """Print one JSON document, indented, or on a line of its own with ``lines``."""
    option = 0 if lines else orjson.OPT_INDENT_2
    sys.stdout.write(orjson.dumps(document, option=option).decode() + "\n")
    sys.stdout.flush()


def print_text(text: str) -> None:
    """Print text as it is."""
    sys.stdout.write(text + "\n")
    sys.stdout.flush()


def one_line(text: str) -> str:
    """Return text from outside on one line, with what would steer the terminal as escapes."""
    return printable(" ".join(text.split()))


def printable(text: str) -> str:
    """Return text from outside with what would steer the terminal, or cannot be written at all, as escapes."""
    if text.isprintable():
        return text
    return "".join(
        char if char.isprintable() or char in "\n\t" else char.encode("unicode_escape").decode() for char in text
    )
