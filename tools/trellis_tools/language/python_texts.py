"""Extracts prose from a Python module.

In: the source. Out: its docstrings, log events, condition messages, metric help, messages of exceptions, help of
commands, and other string constants that are prose. Called by ``pages``. Invariant: nothing is imported or run.

Values in an f-string become a placeholder. A string of several parts is on the line of its first part, because Python
3.11 has no positions of the parts.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from dataclasses import replace
from typing import Final

from trellis_tools.language.texts import PLACEHOLDER, Text, is_prose, one_line

_LEVELS: Final = frozenset({"debug", "info", "warning", "error", "critical", "exception"})
_METRIC: Final = re.compile(r"(?i)(?:counter|gauge|histogram|summary)$")
_KEYWORDS: Final = {"message": "conditions", "help": "cli", "documentation": "metrics"}
"""Areas of keyword arguments of any call."""
_CALLS: Final = {"Condition": "conditions"}
"""Areas of all arguments of a call."""


def python_texts(source: str, rest: str) -> list[Text]:
    """Return the texts of a module in the order of their lines; ``rest`` is the area of other prose.

    Raises:
        SyntaxError: the source is not Python.
    """
    found = (text if text.area else replace(text, area=rest) for text in _below(ast.parse(source), ""))
    return sorted(found, key=lambda text: text.line)


def _below(node: ast.AST, area: str) -> Iterator[Text]:
    """Yield the texts of a node, each in the area of its closest ancestor with an area."""
    match node:
        case ast.Expr(value=ast.Constant(value=str(text))):
            yield _docstring(node, text)
        case ast.Constant(value=str(text)):
            yield from _string(node, text, area)
        case ast.JoinedStr():
            yield from _string(node, _joined(node), area)
            for value in node.values:
                if isinstance(value, ast.FormattedValue):
                    yield from _below(value.value, area)
        case ast.Raise(exc=ast.Call() as call):
            yield from _of_call(call, "exceptions")
        case ast.Call():
            yield from _of_call(node, _CALLS.get(_name(node.func), area))
        case _:
            for child in ast.iter_child_nodes(node):
                yield from _below(child, area)


def _of_call(call: ast.Call, area: str) -> Iterator[Text]:
    yield from _below(call.func, area)
    area = "metrics" if _METRIC.search(_name(call.func)) else area
    for position, argument in enumerate(call.args):
        yield from _below(argument, "logs" if position == 0 and _logs(call.func) else area)
    for keyword in call.keywords:
        yield from _below(keyword.value, _KEYWORDS.get(keyword.arg or "", area))


def _string(node: ast.expr, text: str, area: str) -> Iterator[Text]:
    """Yield a string if it is prose: in a known area with at least two words, else by ``is_prose``."""
    if is_prose(text) or (area and re.search(r"[A-Za-z]{2}\S* +\S*[A-Za-z]{2}", text)):
        yield _placed(node, text, area)


def _placed(node: ast.expr, text: str, area: str) -> Text:
    """Return a text with its line breaks if the source has the same number, else on one line."""
    text, last = text.rstrip(), node.end_lineno or node.lineno
    whole = text.count("\n") <= last - node.lineno
    return Text(area, node.lineno, text if whole else one_line(text))


def _docstring(node: ast.Expr, text: str) -> Text:
    """Return a docstring without the indentation of its block; further indentation is code in Markdown, too."""
    first, *others = text.split("\n")
    margin = min((len(line) - len(line.lstrip()) for line in others if line.strip()), default=0)
    return _placed(node.value, "\n".join([first.strip(), *(line[margin:] for line in others)]), "docstrings")


def _joined(node: ast.JoinedStr) -> str:
    parts = (part.value if isinstance(part, ast.Constant) else PLACEHOLDER for part in node.values)
    return "".join(map(str, parts))


def _name(function: ast.expr) -> str:
    """Return the last part of the name of the called function."""
    match function:
        case ast.Name(id=name) | ast.Attribute(attr=name):
            return name
    return ""


def _logs(function: ast.expr) -> bool:
    """Return whether a call writes to a log: ``_log.info``, ``self._log.warning``."""
    return isinstance(function, ast.Attribute) and function.attr in _LEVELS and "log" in _name(function.value).lower()
