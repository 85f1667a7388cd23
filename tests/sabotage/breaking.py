"""One-line breaks of the product: where each goes, found by the name of a function and not by file or line.

In: a break and a copy of the sources. Out: the copy with that line changed. Raises: MisplacedError if the sources have
the line not exactly once; then the product was changed and the break has to follow.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

SOURCES = ("services", "shared")


class MisplacedError(Exception):
    """The function or the text of a break is not in the sources, or more than once."""


@dataclass(frozen=True, slots=True)
class Break:
    """One break: ``old`` becomes ``new`` in the function of this qualified name (``Class.method``, or ``function``).

    ``promise`` is what it breaks: an invariant, a decision record, a rule of the security model. ``test`` is the test
    of `make test` that fails then, as a node id of pytest. ``package`` tells functions of one name apart: the first
    part of their module's name.
    """

    name: str
    promise: str
    package: str
    function: str
    old: str
    new: str
    test: str


def apply(broken: Break, root: Path) -> Path:
    """Break the sources below ``root``; return the file that was changed."""
    found = [place for place in _functions(root, broken.package) if place[1] == broken.function]
    found = [(file, body) for file, _, body in found if broken.old in body]
    if len(found) != 1:
        raise MisplacedError(
            f"{broken.name}: {len(found)} functions {broken.function} of {broken.package} have the text"
        )
    file, body = found[0]
    if body.count(broken.old) != 1:
        raise MisplacedError(f"{broken.name}: {broken.function} in {file} has the text {body.count(broken.old)} times")
    text = file.read_text(encoding="utf-8")
    file.write_text(text.replace(body, body.replace(broken.old, broken.new)), encoding="utf-8")
    return file


def _functions(root: Path, package: str) -> Iterator[tuple[Path, str, str]]:
    """Yield file, qualified name and source of each function of a package."""
    for folder in SOURCES:
        for file in sorted((root / folder / package).rglob("*.py")):
            text = file.read_text(encoding="utf-8")
            lines = text.splitlines(keepends=True)
            for name, node in _named(ast.parse(text), ""):
                first = min([node.lineno, *(one.lineno for one in node.decorator_list)])
                yield file, name, "".join(lines[first - 1 : node.end_lineno])


def _named(node: ast.AST, prefix: str) -> Iterator[tuple[str, ast.FunctionDef | ast.AsyncFunctionDef]]:
    for child in ast.iter_child_nodes(node):
        if isinstance(child, ast.FunctionDef | ast.AsyncFunctionDef):
            yield prefix + child.name, child
        if isinstance(child, ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
            yield from _named(child, f"{prefix}{child.name}.")
