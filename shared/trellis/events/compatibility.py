"""Does a new schema keep the promise that a type only ever gains optional fields?

Pure. In: two JSON Schemas of one type, as pydantic makes them. Out: what breaks, in words. Called by ``generate`` and
tests. Invariant: whatever is no new optional field counts as a break: a reader may be older or newer than the writer,
so neither looser nor stricter is safe. Texts (title, description, default, examples) may change.
"""

from __future__ import annotations

from typing import Any, Final

Schema = dict[str, Any]

_TEXTS: Final = frozenset({"title", "description", "default", "examples", "$schema", "$id", "$comment", "deprecated"})
_DEFINITIONS: Final = "#/$defs/"


def breaking_changes(old: Schema, new: Schema) -> list[str]:
    """Return what breaks between two schemas of one type, empty if every old and new reader and writer can mix."""
    return list(dict.fromkeys(_compare("", _resolved(old, old), _resolved(new, new))))


def _compare(path: str, old: Schema, new: Schema) -> list[str]:
    where = path or "the data"
    if "properties" not in old or "properties" not in new:
        return [] if old == new else [f"{where}: was {_words(old)}, is {_words(new)}"]
    breaks = []
    outside = {key for key in old.keys() | new.keys() if key not in {"properties", "required"}}
    breaks += [
        f"{where}: {key} was {old.get(key)}, is {new.get(key)}"
        for key in sorted(outside)
        if old.get(key) != new.get(key)
    ]
    before, after = set(old.get("required", ())), set(new.get("required", ()))
    for name, schema in old["properties"].items():
        field = f"{path}.{name}".lstrip(".")
        if name not in new["properties"]:
            breaks.append(f"{field}: removed")
            continue
        if name in after - before:
            breaks.append(f"{field}: required now, was optional")
        if name in before - after:
            breaks.append(f"{field}: optional now, was required")
        breaks += _compare(field, schema, new["properties"][name])
    added = [name for name in new["properties"] if name not in old["properties"]]
    breaks += [f"{path}.{name}".lstrip(".") + ": new and required" for name in added if name in after]
    return breaks


def _resolved(node: Any, root: Schema, seen: tuple[str, ...] = ()) -> Any:  # noqa: ANN401 (any part of a schema)
    """Return a part of a schema without texts, its references replaced by what they name."""
    match node:
        case {"$ref": str(reference)} if reference.startswith(_DEFINITIONS) and reference not in seen:
            target = root["$defs"][reference.removeprefix(_DEFINITIONS)]
            beside = {key: value for key, value in node.items() if key != "$ref"}
            return _resolved({**target, **beside}, root, (*seen, reference))
        case dict():
            return {
                key: _properties(value, root, seen) if key == "properties" else _resolved(value, root, seen)
                for key, value in node.items()
                if key not in _TEXTS and key != "$defs"
            }
        case list():
            return [_resolved(item, root, seen) for item in node]
        case _:
            return node


def _properties(node: dict[str, Any], root: Schema, seen: tuple[str, ...]) -> dict[str, Any]:
    # Their names are no keywords: a field may well be called "title".
    return {name: _resolved(schema, root, seen) for name, schema in node.items()}


def _words(schema: Schema) -> str:
    """Return a schema as short as people would say it."""
    kind = schema.get("type")
    rest = {key: value for key, value in schema.items() if key != "type"}
    return " ".join(filter(None, (str(kind) if kind else "", str(rest) if rest else ""))) or "anything"
