"""JSON Schemas of the values of settings, for the schema of the Helm chart.

Pure. In: the fields of settings classes. Out: a schema per field. Called by ``chart``. Invariants: a value may be
written as YAML's number or boolean, or as text, as in an environment variable; a value that the service accepts is
accepted.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from enum import Enum
from pathlib import Path
from types import UnionType
from typing import Annotated, Any, Final, Literal, Union, get_args, get_origin

import annotated_types
from pydantic.fields import FieldInfo

from trellis.config.value_schema import ValueSchema

_NUMBER: Final = "[0-9]+(?:\\.[0-9]+)?"
_NONE: Final = type(None)
_SIMPLE: Final[Mapping[Any, Mapping[str, Any]]] = {
    bool: {"enum": [True, False, "true", "false"]},
    int: {"type": ["integer", "string"], "pattern": "^[0-9]+$"},
    float: {"type": ["number", "string"], "pattern": f"^{_NUMBER}$"},
    str: {"type": ["string", "number"]},
    Path: {"type": ["string", "number"]},
}
# A text has no range in JSON Schema: of those below the lower bound, the schema rejects zero.
_ZERO: Final = {"type": "string", "pattern": "^\\s*[0.]+(?:[a-zA-Z]+|%)?\\s*$"}

Schema = dict[str, Any]


def setting_schema(name: str, field: FieldInfo) -> Schema:
    """Return the schema of the value of a setting, without its description.

    Raises:
        ValueError: the type of the setting has no schema; names the setting.
    """
    annotation, metadata = _plain(field.annotation)
    metadata = [*_flat(field.metadata), *metadata]
    schema = _of_type(name, annotation, metadata)
    pattern = next((found for item in metadata if isinstance(found := getattr(item, "pattern", None), str)), None)
    if pattern is not None and "pattern" not in schema:
        schema["pattern"] = pattern
    return _with_range(schema, metadata)


def _of_type(name: str, annotation: Any, metadata: list[Any]) -> Schema:  # noqa: ANN401 (a type of typing)
    declared = next((item.schema for item in metadata if isinstance(item, ValueSchema)), _SIMPLE.get(annotation))
    if declared is not None:
        return dict(declared)
    if get_origin(annotation) is Literal:
        return {"enum": list(get_args(annotation))}
    if isinstance(annotation, type) and issubclass(annotation, Enum):
        return {"enum": [item.value for item in annotation]}
    if get_origin(annotation) is tuple:
        return {"type": "string"}
    raise ValueError(f"{name}: its type {annotation} has no schema: add a ValueSchema to the type")


def _with_range(schema: Schema, metadata: list[Any]) -> Schema:
    """Add the bounds of numbers; several are combined."""
    bounds: Mapping[str, list[Any]] = {
        "minimum": [item.ge for item in metadata if isinstance(item, annotated_types.Ge)],
        "exclusiveMinimum": [item.gt for item in metadata if isinstance(item, annotated_types.Gt)],
        "maximum": [item.le for item in metadata if isinstance(item, annotated_types.Le)],
        "exclusiveMaximum": [item.lt for item in metadata if isinstance(item, annotated_types.Lt)],
    }
    for key, values in bounds.items():
        if values:
            known = [schema[key]] if key in schema else []
            schema[key] = (max if "inimum" in key else min)([*values, *known])
    if "exclusiveMinimum" in schema or schema.get("minimum", 0) > 0:
        schema["not"] = dict(_ZERO)
    return schema


def _plain(annotation: Any) -> tuple[Any, list[Any]]:  # noqa: ANN401 (a type of typing)
    """Return the type without None and ``Annotated``, and the metadata inside."""
    if get_origin(annotation) in {Union, UnionType}:
        [annotation] = [item for item in get_args(annotation) if item is not _NONE]
        return _plain(annotation)
    if get_origin(annotation) is Annotated:
        inside, *metadata = get_args(annotation)
        found, more = _plain(inside)
        return found, [*more, *_flat(metadata)]
    return annotation, []


def _flat(metadata: list[Any]) -> list[Any]:
    return list(_each(metadata))


def _each(metadata: list[Any]) -> Iterator[Any]:
    for item in metadata:
        if isinstance(item, FieldInfo):
            yield from _each(item.metadata)
        else:
            yield item
