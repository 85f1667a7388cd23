"""Find comparisons with sentences written for people: a change of wording must break no test.

In: test files. Out: each text that is compared, searched for, given to ``lacking`` or to ``match=`` of
``pytest.raises``, and is prose; also if a constant, a loop or a parameter of the test stands for it.
Called by tests/contract/test_sentences.py, and by ``PYTHONPATH=tests python -m support.suite.sentences FOLDER``.

Rule: a text is prose if three plain lower-case words stand in a row (the first of a sentence may have a capital). Not
plain are identifiers (a dot, slash, dash, underscore, colon, equals sign, digit or capital inside the word), quoted
names, and a command of ``COMMANDS`` with the three words after it. What the test itself hands in, as another constant
of the file outside of comparisons, is no wording of the product, also as a part of the compared text.
"""

from __future__ import annotations

import ast
import re
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from support.suite.naming import lacking

ROOT: Final = Path(__file__).parents[3]
GUARDED: Final = ("tests/chaos", "tests/contract", "tests/fuzz", "tests/integration", "tests/sabotage", "tests/unit")
"""The folders whose tests compare no prose; test_sentences.py holds them to it."""
COMMANDS: Final = ("trellis", "kubectl", "nats", "helm", "make", "pip", "systemctl")
FIXED: Final = {
    "no such file or directory": "the C library's text of ENOENT",
    "is a directory": "the C library's text of EISDIR",
    "no space left on device": "the C library's text of ENOSPC",
    "read-only file system": "the C library's text of EROFS",
    "certificate verify failed": "OpenSSL's name of the error",
    "client didn't provide a certificate": "Go's TLS error, as nats-server logs it",
    "permissions violation for subscription": "nats-server's error of that name",
    "resource limits exceeded": "JetStream's error of that name",
    "maximum consumers limit": "JetStream's error of that name",
    "maximum number of streams": "JetStream's error of that name",
    "secret not found": "the secrets protocol's error of that name",
    "error processing policies": "the secrets protocol's error of that name",
    "error fetching secret": "the secrets protocol's error of that name",
    "could not find schema": "kubeconform's error of that name",
    "watch ended with error": "kwok's log of a watch that the API server ended",
    "(combined from similar events)": "client-go's prefix, by which Events of a group are known",
}
"""Words of a peer, which are a fixed interface and no wording of the product, to their reason. In lower case."""

_OF_PEERS: Final = re.compile("|".join(map(re.escape, FIXED)), re.IGNORECASE)
_QUOTED: Final = re.compile(r"`[^`]*`|\"[^\"]*\"|(?<!\w)'[^']*'(?!\w)")
_WORD: Final = re.compile(r"[a-z]+(?:'[a-z]+)?")
_FIRST: Final = re.compile(r"[A-Z]?[a-z]*(?:'[a-z]+)?")
_EDGES: Final = "^$()[]{}<>.,;:!?*+|\\\"'…"
_SEARCHES: Final = {"startswith", "endswith", "search", "match", "fullmatch", "count", "index", "find", "findall"}
_EXPECTING: Final = {"raises", "warns"}
_IN_A_ROW: Final = 3


@dataclass(frozen=True, slots=True)
class Finding:
    """Prose that a test compares, at a line of a file (relative to the checkout)."""

    file: str
    line: int
    text: str

    def __str__(self) -> str:
        return f"{self.file}:{self.line}: {self.text!r}"


def is_prose(text: str) -> bool:
    """Return True if three plain words of the text stand in a row, without identifiers and commands."""
    row, of_command, first = 0, 0, True
    for token in _QUOTED.sub(" `` ", _OF_PEERS.sub(" `` ", text)).split():
        word = token.strip(_EDGES)
        if word in COMMANDS:
            row, of_command = 0, _IN_A_ROW
        elif not (_FIRST if first else _WORD).fullmatch(word) or not word:
            row = 0
        elif of_command:
            of_command -= 1
        else:
            row += 1
            if row == _IN_A_ROW:
                return True
        first = token.endswith((".", ";", ":"))
    return False


def compared(tree: ast.Module, nodes: Sequence[ast.AST]) -> Iterator[ast.Constant]:
    """Yield the string constants that a file compares, also those that a name, a loop or a parameter stands for."""
    operands = [operand for node in nodes for operand in _operands(node)]
    for operand in operands:
        yield from _texts(operand)
    tables = {name: values[0] for name, values in _bindings(tree, {}) if values}
    sides = {id(operand) for operand in operands}
    for scope in nodes:
        if isinstance(scope, ast.Module | ast.FunctionDef | ast.AsyncFunctionDef):
            yield from _of_names(scope, tables, sides)


def findings(text: str, file: str) -> list[Finding]:
    """Return what a test file compares that is prose, by line."""
    tree = ast.parse(text)
    nodes = list(ast.walk(tree))  # once: it is most of the time
    hits = {id(node): node for node in compared(tree, nodes)}
    others = hits.keys() | _documents(nodes)
    inputs = [str(node.value) for node in nodes if isinstance(node, ast.Constant) and id(node) not in others]
    found = {
        Finding(file, node.lineno, str(node.value))
        for node in hits.values()
        if is_prose(str(node.value)) and is_prose(_without(str(node.value), inputs))
    }
    return sorted(found, key=lambda item: (item.line, item.text))


def _without(text: str, inputs: Sequence[str]) -> str:
    """Return a text without what the test hands in: all of it, or parts of several words."""
    if any(text in item for item in inputs):
        return ""
    for item in inputs:
        if " " in item.strip():
            text = text.replace(item, " `` ")
    return text


def _documents(nodes: Iterable[ast.AST]) -> set[int]:
    """Return the constants that nothing reads: docstrings, and messages of failed asserts."""
    found: set[int] = set()
    for node in nodes:
        match node:
            case ast.Module(body=[ast.Expr(value=document), *_]):
                found.add(id(document))
            case ast.FunctionDef(body=[ast.Expr(value=document), *_]):
                found.add(id(document))
            case ast.AsyncFunctionDef(body=[ast.Expr(value=document), *_]):
                found.add(id(document))
            case ast.Assert(msg=ast.expr() as message):
                found |= {id(part) for part in ast.walk(message)}
            case _:
                pass
    return found


def of_folders(folders: Iterable[str], root: Path = ROOT) -> list[Finding]:
    """Return the findings of all Python files below folders of the checkout."""
    files = sorted(path for folder in folders for path in (root / folder).rglob("*.py"))
    return [
        finding
        for path in files
        for finding in findings(path.read_text(encoding="utf-8"), path.relative_to(root).as_posix())
    ]


def _own(scope: ast.AST) -> Iterator[ast.AST]:
    """Yield the nodes of a scope without those of functions in it, which are scopes themselves."""
    for child in ast.iter_child_nodes(scope):
        if not isinstance(child, ast.FunctionDef | ast.AsyncFunctionDef):
            yield child
            yield from _own(child)


def _operands(node: ast.AST) -> Iterator[ast.expr]:
    """Yield what a node compares: sides of a comparison, what is searched for, what an exception has to match."""
    match node:
        case ast.Compare(left=left, comparators=others):
            yield from (left, *others)
        case ast.Call(func=function, args=[first, *_]) if _name(function) in _SEARCHES:
            yield first
        case ast.Call(func=function, args=[_, *names]) if _name(function) == lacking.__name__:
            yield from (name.value if isinstance(name, ast.Starred) else name for name in names)
        case ast.Call(func=function, keywords=keywords) if _name(function) in _EXPECTING:
            yield from (keyword.value for keyword in keywords if keyword.arg == "match")
        case _:
            pass


def _texts(node: ast.expr) -> Iterator[ast.Constant]:
    """Yield the constants of an operand: itself, those of containers, and those given to a class."""
    if isinstance(node, ast.Constant):
        if isinstance(node.value, str):
            yield node
        return
    for item in _inside(node):
        if item is not None:
            yield from _texts(item)


def _inside(node: ast.expr) -> Iterable[ast.expr | None]:
    match node:
        case ast.List() | ast.Tuple() | ast.Set():
            return node.elts
        case ast.Dict():
            return (*node.keys, *node.values)
        case ast.JoinedStr():
            return node.values
        case ast.BinOp():
            return (node.left, node.right)
        case ast.IfExp():
            return (node.body, node.orelse)
        case ast.Call() if _name(node.func)[:1].isupper():
            return (*node.args, *(keyword.value for keyword in node.keywords))
        case _:
            return ()


def _of_names(scope: ast.AST, tables: Mapping[str, ast.expr], operands: set[int]) -> Iterator[ast.Constant]:
    """Yield the prose behind names of a scope that are read in comparisons only; a set there is one of cases."""
    bound: dict[str, list[ast.Constant]] = {}
    for name, values in _bindings(scope, tables):
        texts = [text for value in values if not isinstance(value, ast.Set) for text in _texts(value)]
        bound.setdefault(name, []).extend(text for text in texts if is_prose(str(text.value)))
    if any(bound.values()):
        names = [node for node in ast.walk(scope) if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Load)]
        for name, texts in bound.items():
            reads = [id(node) for node in names if node.id == name]
            if reads and operands.issuperset(reads):
                yield from texts


def _bindings(scope: ast.AST, tables: Mapping[str, ast.expr]) -> Iterator[tuple[str, list[ast.expr]]]:
    """Yield names of a scope with the expressions that they stand for: assigned, looped over, or parameters.

    ``tables``: what names of the module stand for, as loops and parameters go through these.
    """
    for node in _own(scope):
        match node:
            case ast.Assign(targets=[ast.Name(id=name)], value=value):
                yield name, [value]
            case ast.AnnAssign(target=ast.Name(id=name), value=ast.expr() as value):
                yield name, [value]
            case ast.For(target=target, iter=rows) | ast.comprehension(target=target, iter=rows):
                names = [item.id if isinstance(item, ast.Name) else "" for item in _row(target)]
                yield from _columns(names, _rows(rows, tables))
            case _:
                pass
    for call in getattr(scope, "decorator_list", []):
        if isinstance(call, ast.Call) and _name(call.func) == "parametrize" and len(call.args) > 1:
            names = ast.literal_eval(call.args[0])
            names = names.replace(",", " ").split() if isinstance(names, str) else list(names)
            yield from _columns(names, _rows(call.args[1], tables))


def _columns(names: list[str], rows: list[ast.expr]) -> Iterator[tuple[str, list[ast.expr]]]:
    table = [_row(row) if len(names) > 1 else [row] for row in rows]
    for at, name in enumerate(names):
        yield name, [row[at] for row in table if len(row) > at]


def _rows(table: ast.expr, tables: Mapping[str, ast.expr]) -> list[ast.expr]:
    """Return the rows of a table that is written out; none if it is made in another way."""
    match table:
        case ast.Name(id=name) if name in tables:
            return _rows(tables[name], {})
        case ast.Call(func=ast.Name(id="first_of"), args=[inner, *_]):
            return _rows(inner, tables)
        case ast.List(elts=rows) | ast.Tuple(elts=rows) | ast.Set(elts=rows):
            return rows
        case ast.Call(func=ast.Attribute(value=inner, attr="values")) if isinstance(
            found := _dict(inner, tables), ast.Dict
        ):
            return found.values
        case ast.Call(func=ast.Attribute(value=inner, attr="items")) if isinstance(
            found := _dict(inner, tables), ast.Dict
        ):
            return [ast.Tuple([key, value]) for key, value in zip(found.keys, found.values, strict=True) if key]
        case _:
            return []


def _dict(node: ast.expr, tables: Mapping[str, ast.expr]) -> ast.expr:
    return tables.get(node.id, node) if isinstance(node, ast.Name) else node


def _row(node: ast.expr) -> list[ast.expr]:
    if isinstance(node, ast.Call) and _name(node.func) == "param":
        return node.args
    return node.elts if isinstance(node, ast.Tuple | ast.List) else [node]


def _name(function: ast.expr) -> str:
    return function.attr if isinstance(function, ast.Attribute) else getattr(function, "id", "")


if __name__ == "__main__":
    printed = of_folders(sys.argv[1:] or GUARDED)
    sys.stdout.writelines(f"{item}\n" for item in printed)
    sys.exit(1 if printed else 0)
