"""One-line breaks of the product: where each goes, found by the name of a function or template and not by file or line.

In: a break and the sources. Out: the file with that line changed. Raises: MisplacedError if the sources have the line
not exactly once; then the product was changed and the break has to follow.
"""

from __future__ import annotations

import ast
import itertools
import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Final

SOURCES = ("services", "shared")
CHART: Final = "chart"
"""The package of a break of the Helm chart."""
_TEMPLATES: Final = "deploy/helm/trellis/templates"
_DEFINED: Final = re.compile(r'^\{\{-? define "(.+?)"', re.MULTILINE)


class MisplacedError(Exception):
    """The function or the text of a break is not in the sources, or more than once."""


@dataclass(frozen=True, slots=True)
class Break:
    """One break: ``old`` becomes ``new`` in the function of this qualified name (``Class.method``, or ``function``).

    ``promise`` is what it breaks: an invariant, a decision record, a rule of the security model. ``test`` is the test
    of `make test` that fails then, as a node id of pytest. ``package`` tells functions of one name apart: the first
    part of their module's name. ``function`` can be a class; in the chart it is a template, or a file that defines
    none.
    """

    name: str
    promise: str
    package: str
    function: str
    old: str
    new: str
    test: str


def broken_file(broken: Break, root: Path) -> tuple[Path, str]:
    """Return the file that a break changes, and its text with the break."""
    found = [
        (file, text, body)
        for file, text in _files_with(broken, root)
        for name, body in (_templates(file, text) if broken.package == CHART else _functions(text))
        if name == broken.function and broken.old in body
    ]
    if len(found) != 1:
        raise MisplacedError(
            f"{broken.name}: {len(found)} functions {broken.function} of {broken.package} have the text"
        )
    file, text, body = found[0]
    if body.count(broken.old) != 1:
        raise MisplacedError(f"{broken.name}: {broken.function} in {file} has the text {body.count(broken.old)} times")
    if text.count(body) != 1:
        raise MisplacedError(f"{broken.name}: {file} has {broken.function} {text.count(body)} times")
    return file, text.replace(body, body.replace(broken.old, broken.new))


def misplaced(breaks: Iterable[Break], root: Path) -> list[str]:
    """Return what is wrong with the places of breaks, a line each; nothing is changed."""
    wrong: list[str] = []
    for broken in breaks:
        try:
            broken_file(broken, root)
        except MisplacedError as error:
            wrong.append(str(error))
    return wrong


def copy_broken(broken: Break, root: Path, place: Path) -> None:
    """Fill an empty directory with what tests need: links to everything in ``root``, but for the file that is broken.

    Only the directories above that file are made; so a break costs hardly more than its test.
    """
    file, text = broken_file(broken, root)
    parts = file.relative_to(root).parts
    for depth in range(len(parts)):
        here = Path(*parts[:depth])
        (place / here).mkdir(exist_ok=True)
        for path in (root / here).iterdir():
            if path.name != parts[depth] and (depth or not path.name.startswith(".")):
                (place / here / path.name).symlink_to(path)
    (place / file.relative_to(root)).write_text(text, encoding="utf-8")


def _files_with(broken: Break, root: Path) -> Iterator[tuple[Path, str]]:
    if broken.package == CHART:
        folders, pattern = [root / _TEMPLATES], "*.*"
    else:
        folders, pattern = [root / folder / broken.package for folder in SOURCES], "*.py"
    for folder in folders:
        for file in sorted(folder.rglob(pattern)):
            text = file.read_text(encoding="utf-8")
            if broken.old in text:
                yield file, text


def _templates(file: Path, text: str) -> Iterator[tuple[str, str]]:
    """Yield name and source of each template that a file of the chart defines, or of the file if it defines none."""
    starts = [*_DEFINED.finditer(text)]
    if not starts:
        yield file.name, text
    for start, following in itertools.pairwise([*starts, None]):
        assert start is not None
        yield start[1], text[start.start() : following.start() if following is not None else None]


def _functions(text: str) -> Iterator[tuple[str, str]]:
    """Yield qualified name and source of each function and class of a file."""
    lines = text.splitlines(keepends=True)
    for name, node in _named(ast.parse(text), ""):
        first = min([node.lineno, *(item.lineno for item in node.decorator_list)])
        yield name, "".join(lines[first - 1 : node.end_lineno])


def _named(node: ast.AST, prefix: str) -> Iterator[tuple[str, ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef]]:
    for child in ast.iter_child_nodes(node):
        if isinstance(child, ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
            yield prefix + child.name, child
            yield from _named(child, f"{prefix}{child.name}.")
