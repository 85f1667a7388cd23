from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from pydantic import BaseModel, Field, create_model

from trellis.events.compatibility import breaking_changes


class Inner(BaseModel):
    zone: str


class Base(BaseModel):
    name: str = Field(max_length=253, description="metadata.name")
    attempt: int = 1
    labels: dict[str, str] = {}
    inner: Inner
    title: str | None = None


def schema(**changes: Any) -> dict[str, Any]:
    """The schema of Base with fields changed, added (a tuple) or removed (None)."""
    fields: dict[str, Any] = {name: (field.annotation, field) for name, field in Base.model_fields.items()}
    fields |= changes
    model = create_model("Base", **{name: field for name, field in fields.items() if field is not None})
    return model.model_json_schema()


class InnerWithMore(BaseModel):
    zone: str
    region: str | None = None


class InnerRetyped(BaseModel):
    zone: int


InnerRenamed = create_model("Renamed", zone=(str, ...))


@pytest.mark.parametrize(
    "changed",
    [
        pytest.param({}, id="nothing changes"),
        pytest.param({"added": (str | None, None)}, id="an optional field is added"),
        pytest.param({"name": (str, Field(max_length=253, description="other words"))}, id="a description changes"),
        pytest.param({"attempt": (int, 2)}, id="a default changes"),
        pytest.param({"inner": (InnerWithMore, ...)}, id="a nested optional field is added"),
        pytest.param({"inner": (InnerRenamed, ...)}, id="a nested model is only renamed"),
    ],
)
def test_a_compatible_change_is_accepted(changed: dict[str, Any]) -> None:
    assert breaking_changes(schema(), schema(**changed)) == []


@pytest.mark.parametrize(
    ("changed", "complaint"),
    [
        pytest.param({"attempt": None}, "attempt: removed", id="a field is removed"),
        pytest.param({"attempt": None, "tries": (int, 1)}, "attempt: removed", id="a field is renamed"),
        pytest.param({"attempt": (str, "1")}, "attempt: was integer, is string", id="a field is retyped"),
        pytest.param({"attempt": (int, ...)}, "attempt: required now, was optional", id="a field becomes required"),
        pytest.param({"name": (str, Field("", max_length=253))}, "name: optional now", id="a field becomes optional"),
        pytest.param({"added": (str, ...)}, "added: new and required", id="a required field is added"),
        pytest.param({"name": (str, Field(max_length=63))}, "name: was string", id="a limit becomes tighter"),
        pytest.param({"name": (str, ...)}, "name: was string", id="a limit is lifted"),
        pytest.param({"labels": (dict[str, int], {})}, "labels: was object", id="the values of a map are retyped"),
        pytest.param({"title": None}, "title: removed", id="a field that is called like a keyword is removed"),
        pytest.param(
            {"inner": (InnerRetyped, ...)}, "inner.zone: was string, is integer", id="a nested field is retyped"
        ),
    ],
)
def test_a_breaking_change_is_named(changed: dict[str, Any], complaint: str) -> None:
    assert any(change.startswith(complaint) for change in breaking_changes(schema(), schema(**changed)))


class Tree(BaseModel):
    children: list[Tree] = []


def test_a_schema_that_contains_itself_is_compared_too() -> None:
    tree = Tree.model_json_schema()
    assert breaking_changes(tree, tree) == []


@pytest.mark.parametrize("edit", [dict.clear, lambda node: node.pop("type")], ids=["emptied", "untyped"])
def test_a_type_that_becomes_anything_breaks(edit: Callable[[dict[str, Any]], object]) -> None:
    new = schema()
    edit(new["properties"]["attempt"])
    assert breaking_changes(schema(), new)
