"""Translates the JSON schema of a model to a structural schema for a CustomResourceDefinition.

Pure. In: a pydantic model. Out: ``openAPIV3Schema``. Called by ``kinds`` and tests.
Invariant: the API server accepts the result, which has the same meaning; an unsupported construct raises an error.
Source: Kubernetes, "Extend the Kubernetes API with CustomResourceDefinitions", "Specifying a structural schema".
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Final

from pydantic import BaseModel

from trellis.crds.api import KUBERNETES

Schema = dict[str, Any]

_KEPT: Final = (
    "description", "type", "format", "enum", "pattern", "minLength", "maxLength", "minimum", "maximum", "multipleOf",
    "minItems", "maxItems", "minProperties", "maxProperties",
)  # fmt: skip
_INT_OR_STRING: Final = f"{KUBERNETES}int-or-string"


class NotStructural(TypeError):  # noqa: N818 - describes the model
    """A model has no equivalent structural schema; the message names the path."""


def structural(model: type[BaseModel], *, defaults_and_nulls: bool = False) -> Schema:
    """Return the structural schema of a model, by its aliases.

    ``$ref`` is inlined, ``anyOf [T, null]`` becomes T (optional fields are not required), ``const`` becomes an ``enum``
    of one, sets become set lists, untyped dictionaries preserve unknown fields; titles and defaults are omitted, as the
    API server would add defaults to every object.

    ``defaults_and_nulls`` is for kinds whose first owner had both: ``anyOf [T, null]`` becomes a nullable T, and
    defaults other than null are kept.

    Raises:
        NotStructural: for recursive models, and unions that are not int-or-string.
    """
    source = model.model_json_schema(by_alias=True, mode="validation")
    return _Translation(source.get("$defs", {}), defaults_and_nulls).of(source, _Place((model.__name__,)))


@dataclass(frozen=True, slots=True)
class _Place:
    """The current position in the schema: the path for messages, and the models that are being inlined."""

    path: tuple[str, ...]
    inside: frozenset[str] = frozenset()

    def __str__(self) -> str:
        return ".".join(self.path)

    def below(self, name: str) -> _Place:
        return _Place((*self.path, name), self.inside)


class _Translation:
    """The translation of one model; ``definitions`` contains the models that it refers to."""

    def __init__(self, definitions: dict[str, Schema], defaults_and_nulls: bool) -> None:
        self._definitions = definitions
        self._defaults_and_nulls = defaults_and_nulls

    def of(self, node: Schema, place: _Place) -> Schema:
        stored = self._stored(node)
        node, place = self._resolved(node, place)
        extensions = {key: value for key, value in node.items() if key.startswith(KUBERNETES)}
        if _INT_OR_STRING in node:
            plain = {key: node[key] for key in ("description", "anyOf", "minimum", "pattern") if key in node}
            return plain | extensions | stored
        if "anyOf" in node or "oneOf" in node or "allOf" in node:
            raise NotStructural(f"{place}: a union of types has no structural schema")
        out: Schema = {key: node[key] for key in _KEPT if key in node}
        if "const" in node:
            out["enum"] = [node["const"]]
        out |= self._bounds(node)
        match node.get("type"):
            case "object":
                out |= self._object(node, place)
            case "array":
                out |= self._array(node, place)
            case None if node.get(f"{KUBERNETES}preserve-unknown-fields"):
                pass  # the only construct in which the API server accepts a field of any type
            case None:
                raise NotStructural(f"{place}: no type")
        return out | extensions | stored

    def _stored(self, node: Schema) -> Schema:
        """Return the ``default`` and ``nullable`` keys of a field."""
        if not self._defaults_and_nulls:
            return {}
        default = {"default": node["default"]} if node.get("default") is not None else {}
        nullable = _INT_OR_STRING not in node and any(option.get("type") == "null" for option in node.get("anyOf", ()))
        return default | ({"nullable": True} if nullable else {})

    def _resolved(self, node: Schema, place: _Place) -> tuple[Schema, _Place]:
        """Return the node with its reference inlined and its null removed; keys beside them take precedence."""
        while True:
            if (reference := node.get("$ref")) is not None:
                name = reference.rpartition("/")[2]
                if name in place.inside:
                    raise NotStructural(f"{place}: {name} contains itself")
                place = _Place(place.path, place.inside | {name})
                node = self._definitions[name] | {key: value for key, value in node.items() if key != "$ref"}
            elif _INT_OR_STRING not in node and (options := node.get("anyOf")) is not None:
                chosen = [option for option in options if option.get("type") != "null"]
                if len(chosen) != 1:
                    return node, place
                node = chosen[0] | {key: value for key, value in node.items() if key != "anyOf"}
            else:
                return node, place

    @staticmethod
    def _bounds(node: Schema) -> Schema:
        """Return numeric exclusive bounds in the boolean form that Kubernetes reads."""
        bounds: Schema = {}
        for exclusive, inclusive in (("exclusiveMinimum", "minimum"), ("exclusiveMaximum", "maximum")):
            if exclusive in node:
                bounds |= {inclusive: node[exclusive], exclusive: True}
        return bounds

    def _object(self, node: Schema, place: _Place) -> Schema:
        if "properties" in node:
            properties = {name: self.of(child, place.below(name)) for name, child in node["properties"].items()}
            required = {"required": sorted(node["required"])} if node.get("required") else {}
            return {"properties": properties} | required
        values = node.get("additionalProperties")
        if isinstance(values, dict) and values:
            return {"additionalProperties": values if _INT_OR_STRING in values else self.of(values, place.below("*"))}
        return {f"{KUBERNETES}preserve-unknown-fields": True}

    def _array(self, node: Schema, place: _Place) -> Schema:
        as_set = {f"{KUBERNETES}list-type": "set"} if node.get("uniqueItems") else {}
        return {"items": self.of(node["items"], place.below("[]"))} | as_set
