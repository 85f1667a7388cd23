"""A model becomes a schema that Kubernetes takes, and means the same."""

from __future__ import annotations

from typing import Any, Literal

import pytest
from pydantic import BaseModel, Field, ValidationError

from trellis.crds.api import ApiModel, Conditions, IntOrPercent, Quantities, rules
from trellis.crds.application import Application
from trellis.crds.schema import NotStructural, structural


class Inner(ApiModel):
    """The inner model."""

    title: str


class Outer(ApiModel):
    """The outer model."""

    inner: Inner | None = None
    """A field's own words win over its type's."""
    kind_of: Literal["a"] = "a"
    many: set[str] = Field(default_factory=set)
    positive: int = Field(default=1, gt=0, lt=10)
    share: IntOrPercent = 1
    amounts: Quantities = Field(default_factory=dict)
    anything: dict[str, Any] | None = None
    inners: dict[str, Inner] = Field(default_factory=dict)
    conditions: Conditions | None = None
    checked: Inner | None = Field(default=None, json_schema_extra=rules(("self.title != ''", "needs a title")))


def properties() -> dict[str, Any]:
    return dict(structural(Outer)["properties"])


def test_references_are_inlined_and_a_property_may_be_called_title() -> None:
    assert properties()["inner"] == {
        "description": "A field's own words win over its type's.",
        "type": "object",
        "properties": {"title": {"type": "string"}},
        "required": ["title"],
    }


def test_a_constant_is_an_enum_of_one_and_a_default_is_not_written() -> None:
    assert properties()["kindOf"] == {"type": "string", "enum": ["a"]}


def test_a_kind_that_had_defaults_and_nulls_keeps_them() -> None:
    found = structural(Outer, defaults_and_nulls=True)["properties"]
    assert (found["kindOf"]["default"], found["positive"]["default"], found["share"]["default"]) == ("a", 1, 1)
    assert {name for name, node in found.items() if node.get("nullable")} == {
        "inner",
        "anything",
        "conditions",
        "checked",
    }
    assert "default" not in found["inner"]


def test_a_set_is_a_set_list() -> None:
    assert properties()["many"] == {"type": "array", "items": {"type": "string"}, "x-kubernetes-list-type": "set"}


def test_exclusive_bounds_are_flags_beside_the_bound() -> None:
    assert properties()["positive"] == {
        "type": "integer",
        "minimum": 0,
        "exclusiveMinimum": True,
        "maximum": 10,
        "exclusiveMaximum": True,
    }


def test_int_or_string_has_no_type_of_its_own() -> None:
    share = properties()["share"]
    assert share["x-kubernetes-int-or-string"] is True
    assert "type" not in share
    assert properties()["amounts"]["additionalProperties"]["x-kubernetes-int-or-string"] is True


def test_a_dictionary_of_anything_keeps_what_it_holds_and_one_of_models_is_typed() -> None:
    assert properties()["anything"] == {"type": "object", "x-kubernetes-preserve-unknown-fields": True}
    assert properties()["inners"]["additionalProperties"]["required"] == ["title"]


def test_conditions_are_a_map_by_type() -> None:
    conditions = properties()["conditions"]
    assert conditions["x-kubernetes-list-type"] == "map"
    assert conditions["x-kubernetes-list-map-keys"] == ["type"]
    changed = conditions["items"]["properties"]["lastTransitionTime"]
    assert changed.pop("description") != ""
    assert changed == {"type": "string", "format": "date-time"}


def test_rules_across_fields_are_kept() -> None:
    assert properties()["checked"]["x-kubernetes-validations"] == [
        {"rule": "self.title != ''", "message": "needs a title"}
    ]


class Union(BaseModel):
    either: int | bytes


class Recursive(BaseModel):
    again: Recursive | None = None


class Untyped(BaseModel):
    whatever: Any


@pytest.mark.parametrize("model", [Union, Recursive, Untyped], ids=lambda model: model.__name__)
def test_an_inexpressible_schema_names_its_place(model: type[BaseModel]) -> None:
    with pytest.raises(NotStructural, match=f"{model.__name__}.({'|'.join(model.model_fields)})"):
        structural(model)


def test_an_application_has_a_component() -> None:
    component = {"name": "api", "type": "component", "properties": {"image": "example.com/api:1"}}
    assert structural(Application)["properties"]["spec"]["properties"]["components"]["minItems"] == 1
    assert Application.model_validate({"spec": {"components": [component]}}).spec.components
    with pytest.raises(ValidationError) as refused:
        Application.model_validate({"spec": {"components": []}})
    assert [error["loc"] for error in refused.value.errors()] == [("spec", "components")]
