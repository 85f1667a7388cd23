"""The values of the Helm chart with their comments, parsed as by helm-docs.

Pure. In: the text of ``values.yaml``. Out: values in file order, descriptions by path, keys that need a value. Called
by ``chart`` and ``chart_readme``. Invariants: ``# -- text`` above a key documents the complete value, with the
following lines and without the preceding ones; a map with another comment or none is documented value by value.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Final

import yaml

Keys = tuple[str, ...]
_DESCRIPTION_PREFIX: Final = "# -- "
_TYPES: Final = {bool: "bool", int: "int", float: "float", str: "string", list: "list", dict: "object"}


@dataclass(frozen=True, slots=True)
class Value:
    """A row: keys from the root, type as in helm-docs, default as JSON, description or "", on one line."""

    keys: Keys
    kind: str
    default: str
    description: str


@dataclass(frozen=True, slots=True)
class _Entry:
    """A key of a map in block style, with the lines of the comment directly above it."""

    keys: Keys
    comment: tuple[str, ...]
    value: Any
    is_block: bool
    """True if the value is a map whose keys are entries too."""

    @property
    def documentation(self) -> str:
        """The text from the last mark on, "" without a mark."""
        marks = [number for number, line in enumerate(self.comment) if line.startswith(_DESCRIPTION_PREFIX)]
        return _joined(self.comment[marks[-1] :]).removeprefix("-- ") if marks else ""


def values_of(text: str) -> list[Value]:
    """Return the values with a row: documented ones, and undocumented ones outside of these."""
    rows: list[Value] = []
    whole: set[Keys] = set()
    for entry in _entries(text):
        if entry.documentation:
            whole.add(entry.keys)
        elif entry.is_block or any(entry.keys[:length] in whole for length in range(len(entry.keys))):
            continue
        default = json.dumps(entry.value, ensure_ascii=False)
        rows.append(Value(entry.keys, _TYPES[type(entry.value)], default, entry.documentation))
    return rows


def required_of(text: str) -> list[str]:
    """Return the keys that need a value, maps before their keys: maps that templates read, and scalars with a default.

    An empty text, list or documented map is the same as no value.
    """
    found: dict[str, None] = {}
    for row in values_of(text):
        for length in range(1, len(row.keys)):
            found[".".join(row.keys[:length])] = None
        is_map = row.kind == "object" and len(row.keys) == 1
        if is_map or (row.kind not in {"object", "list"} and row.default != '""'):
            found[".".join(row.keys)] = None
    return list(found)


def descriptions_of(text: str) -> dict[Keys, str]:
    """Return the description of each documented value and map; for a map, any comment above its key counts."""
    found = {
        entry.keys: entry.documentation or (_joined(entry.comment) if entry.is_block else "")
        for entry in _entries(text)
    }
    return {keys: description for keys, description in found.items() if description}


def _entries(text: str) -> Iterator[_Entry]:
    root = yaml.compose(text, yaml.SafeLoader)
    if isinstance(root, yaml.MappingNode):
        yield from _below(root, yaml.safe_load(text), text.splitlines(), ())


def _below(node: yaml.MappingNode, values: dict[str, Any], lines: Sequence[str], keys: Keys) -> Iterator[_Entry]:
    for key, below in node.value:
        here, value = (*keys, key.value), values[key.value]
        is_block = isinstance(below, yaml.MappingNode) and not below.flow_style
        yield _Entry(here, _comment(lines, key.start_mark.line), value, is_block)
        if is_block:
            yield from _below(below, value, lines, here)


def _comment(lines: Sequence[str], key: int) -> tuple[str, ...]:
    first = key
    while first and lines[first - 1].lstrip().startswith("#"):
        first -= 1
    return tuple(line.strip() for line in lines[first:key])


def _joined(comment: Sequence[str]) -> str:
    return " ".join(line.removeprefix("#").strip() for line in comment)
