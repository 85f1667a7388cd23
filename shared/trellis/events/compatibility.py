"""Checks that a type only gains optional fields.

Pure. In: two JSON Schemas of one type, as pydantic generates them, or two AsyncAPI documents of Trellis. Out: each
``Break``. Called by ``generate`` and tests. Invariant: every change except a new optional field is a break: a reader
may be older or newer than the publisher, so neither looser nor stricter is safe, and old readers reject a new value of
an enumeration. Texts (title, description, default, examples) and the order of alternatives may change.
"""

from __future__ import annotations

import json
import re
from dataclasses import dataclass
from enum import StrEnum
from typing import Any, Final

Schema = dict[str, Any]

_TEXTS: Final = frozenset({"title", "description", "default", "examples", "$schema", "$id", "$comment", "deprecated"})
_DEFINITIONS: Final = "#/$defs/"
_UNORDERED: Final = frozenset({"enum", "required", "anyOf", "oneOf", "allOf", "type"})
"""Lists whose order is irrelevant."""
_NESTED: Final = {"items": "[]", "additionalProperties": ".*"}
"""Keywords that contain one schema, and their notation in a path."""
_PARAMETER: Final = re.compile(r"\{\w+\}")


class Change(StrEnum):
    """Kind of a breaking change, as shown to users."""

    REMOVED = "removed"
    ADDED = "new and required"
    REQUIRED = "required now, was optional"
    OPTIONAL = "optional now, was required"
    DIFFERENT = "different"


@dataclass(frozen=True, slots=True)
class Break:
    """A change that breaks readers or publishers. ``before`` and ``after`` are set for ``DIFFERENT`` only."""

    where: str
    change: Change
    before: str = ""
    after: str = ""

    def __str__(self) -> str:
        """Return the change as one line of text."""
        if self.change is Change.DIFFERENT:
            return f"{self.where}: was {self.before}, is {self.after}"
        return f"{self.where}: {self.change}"


def breaking_changes(old: Schema, new: Schema) -> list[Break]:
    """Return the breaking changes between two schemas of a type."""
    return list(dict.fromkeys(_compare("", _resolved(old, old), _resolved(new, new))))


def moved_channels(old: Schema, new: Schema) -> list[Break]:
    """Return the changes between two AsyncAPI documents that break subscribers: subject, stream or type."""
    breaks = []
    for name, channel in old.get("channels", {}).items():
        if name not in new.get("channels", {}):
            breaks.append(Break(name, Change.REMOVED))
            continue
        for what, before, after in zip(
            ("subject", "stream", "messages"), _route(channel), _route(new["channels"][name]), strict=True
        ):
            if before != after:
                breaks.append(Break(f"{name} {what}", Change.DIFFERENT, str(before), str(after)))
    return breaks


def _route(channel: Schema) -> tuple[str, str, list[str]]:
    # Filters depend on the number and positions of the parameters, not on their names.
    subject = _PARAMETER.sub("*", str(channel.get("address")))
    return subject, str(channel.get("x-stream")), sorted(channel.get("messages", ()))


def _compare(path: str, old: Any, new: Any) -> list[Break]:  # noqa: ANN401 (a schema may be true or false)
    where = path or "the data"
    if not _comparable(old, new):
        return [] if old == new else [Break(where, Change.DIFFERENT, _schema_text(old), _schema_text(new))]
    handled = {"properties", "required", "anyOf", *_NESTED}
    plain_old, plain_new = ({key: value for key, value in side.items() if key not in handled} for side in (old, new))
    same = plain_old == plain_new
    breaks = [] if same else [Break(where, Change.DIFFERENT, _schema_text(plain_old), _schema_text(plain_new))]
    breaks += _compare_properties(path, old, new)
    for keyword, step in _NESTED.items():
        if keyword in old:
            breaks += _compare(f"{path}{step}".lstrip("."), old[keyword], new[keyword])
    for before, after in zip(old.get("anyOf", ()), new.get("anyOf", ()), strict=True):
        breaks += _compare(path, before, after)
    return breaks


def _comparable(old: Any, new: Any) -> bool:  # noqa: ANN401 (as above)
    """Return whether two schemas have the same shape, so that their parts can be compared pairwise."""
    if not isinstance(old, dict) or not isinstance(new, dict):
        return False
    parts = ("properties", "anyOf", *_NESTED)
    same = all((part in old) == (part in new) for part in parts)
    return same and len(old.get("anyOf", ())) == len(new.get("anyOf", ())) and any(part in old for part in parts)


def _compare_properties(path: str, old: Schema, new: Schema) -> list[Break]:
    breaks = []
    before, after = set(old.get("required", ())), set(new.get("required", ()))
    for name, schema in old.get("properties", {}).items():
        field = f"{path}.{name}".lstrip(".")
        if name not in new["properties"]:
            breaks.append(Break(field, Change.REMOVED))
            continue
        if name in after - before:
            breaks.append(Break(field, Change.REQUIRED))
        if name in before - after:
            breaks.append(Break(field, Change.OPTIONAL))
        breaks += _compare(field, schema, new["properties"][name])
    added = [name for name in new.get("properties", {}) if name not in old["properties"]]
    return breaks + [Break(f"{path}.{name}".lstrip("."), Change.ADDED) for name in added if name in after]


def _resolved(node: Any, root: Schema, seen: tuple[str, ...] = ()) -> Any:  # noqa: ANN401 (any part of a schema)
    """Return a part of a schema without texts and with its references resolved."""
    match node:
        case {"$ref": str(reference)} if reference.startswith(_DEFINITIONS) and reference not in seen:
            target = root["$defs"][reference.removeprefix(_DEFINITIONS)]
            beside = {key: value for key, value in node.items() if key != "$ref"}
            return _resolved({**target, **beside}, root, (*seen, reference))
        case dict():
            return {
                key: _part(key, value, root, seen)
                for key, value in node.items()
                if key not in _TEXTS and key != "$defs"
            }
        case list():
            return [_resolved(item, root, seen) for item in node]
        case _:
            return node


def _part(key: str, value: Any, root: Schema, seen: tuple[str, ...]) -> Any:  # noqa: ANN401 (as above)
    if key == "properties":
        # Property names are not keywords: a field may be called "title".
        return {name: _resolved(schema, root, seen) for name, schema in value.items()}
    if key in {"enum", "const"}:
        return sorted(value, key=_canonical) if isinstance(value, list) else value
    resolved = _resolved(value, root, seen)
    return sorted(resolved, key=_canonical) if key in _UNORDERED and isinstance(resolved, list) else resolved


def _canonical(value: Any) -> str:  # noqa: ANN401 (any part of a schema)
    return json.dumps(value, sort_keys=True)


def _schema_text(schema: Any) -> str:  # noqa: ANN401 (as above)
    """Return a short text for a schema."""
    if not isinstance(schema, dict):
        return "anything" if schema is True else str(schema)
    kind = schema.get("type")
    rest = {key: value for key, value in schema.items() if key != "type"}
    return " ".join(filter(None, (str(kind) if kind else "", str(rest) if rest else ""))) or "anything"
