from __future__ import annotations

from collections.abc import Callable
from copy import deepcopy
from typing import Any, Literal

import pytest
from pydantic import BaseModel, Field, create_model

from trellis.events.compatibility import Break, Change, breaking_changes, moved_channels
from trellis_tools.events.schemas import asyncapi


class Inner(BaseModel):
    zone: str


class Base(BaseModel):
    name: str = Field(max_length=253, description="metadata.name")
    attempt: int = 1
    labels: dict[str, str] = {}
    inner: Inner
    title: str | None = None
    state: Literal["up", "down"] = "up"
    zones: list[Inner] = []
    by_name: dict[str, Inner] = {}
    last: Inner | None = None


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
        pytest.param({"zones": (list[InnerWithMore], [])}, id="the members of a list gain an optional field"),
        pytest.param({"by_name": (dict[str, InnerWithMore], {})}, id="the values of a map gain an optional field"),
        pytest.param({"last": (InnerWithMore | None, None)}, id="an object that may be missing gains a field"),
        pytest.param({"state": (Literal["down", "up"], "up")}, id="the values of an enumeration change places"),
        pytest.param({"last": (None | Inner, None)}, id="alternatives change places"),
    ],
)
def test_a_compatible_change_is_accepted(changed: dict[str, Any]) -> None:
    assert breaking_changes(schema(), schema(**changed)) == []


@pytest.mark.parametrize(
    ("changed", "where", "change", "before", "after"),
    [
        pytest.param({"attempt": None}, "attempt", Change.REMOVED, "", "", id="a field is removed"),
        pytest.param({"attempt": None, "tries": (int, 1)}, "attempt", Change.REMOVED, "", "", id="a field is renamed"),
        pytest.param(
            {"attempt": (str, "1")}, "attempt", Change.DIFFERENT, "integer", "string", id="a field is retyped"
        ),
        pytest.param({"attempt": (int, ...)}, "attempt", Change.REQUIRED, "", "", id="a field becomes required"),
        pytest.param(
            {"name": (str, Field("", max_length=253))}, "name", Change.OPTIONAL, "", "", id="a field becomes optional"
        ),
        pytest.param({"added": (str, ...)}, "added", Change.ADDED, "", "", id="a required field is added"),
        pytest.param(
            {"name": (str, Field(max_length=63))}, "name", Change.DIFFERENT, "string", "", id="a limit becomes tighter"
        ),
        pytest.param({"name": (str, ...)}, "name", Change.DIFFERENT, "string", "", id="a limit is lifted"),
        pytest.param(
            {"labels": (dict[str, int], {})},
            "labels.*",
            Change.DIFFERENT,
            "string",
            "integer",
            id="the values of a map are retyped",
        ),
        pytest.param(
            {"state": (Literal["up"], "up")},
            "state",
            Change.DIFFERENT,
            "string",
            "",
            id="a value of an enumeration is removed",
        ),
        pytest.param(
            {"state": (Literal["up", "down", "odd"], "up")},
            "state",
            Change.DIFFERENT,
            "string",
            "",
            id="a value of an enumeration is added",
        ),
        pytest.param(
            {"state": (str, "up")}, "state", Change.DIFFERENT, "string", "", id="an enumeration becomes any string"
        ),
        pytest.param({"name": (str | None, ...)}, "name", Change.DIFFERENT, "string", "", id="a field may be null now"),
        pytest.param({"last": (Inner, ...)}, "last", Change.REQUIRED, "", "", id="a field may not be null any more"),
        pytest.param(
            {"attempt": (float, 1)}, "attempt", Change.DIFFERENT, "integer", "number", id="a type becomes wider"
        ),
        pytest.param(
            {"attempt": (int, Field(1, ge=1))}, "attempt", Change.DIFFERENT, "integer", "", id="a lower bound is set"
        ),
        pytest.param(
            {"zones": (list[InnerRetyped], [])},
            "zones[].zone",
            Change.DIFFERENT,
            "string",
            "",
            id="members of a list retyped",
        ),
        pytest.param(
            {"zones": (list[Inner], Field([], max_length=5))},
            "zones",
            Change.DIFFERENT,
            "array",
            "",
            id="a list is limited",
        ),
        pytest.param({"zones": (Inner, ...)}, "zones", Change.REQUIRED, "", "", id="a list becomes one"),
        pytest.param(
            {"last": (InnerRetyped | None, None)},
            "last.zone",
            Change.DIFFERENT,
            "string",
            "",
            id="a field that may be null",
        ),
        pytest.param(
            {"labels": (dict[str, Any], {})},
            "labels.*",
            Change.DIFFERENT,
            "string",
            "",
            id="the values of a map are anything",
        ),
        pytest.param(
            {"title": None}, "title", Change.REMOVED, "", "", id="a field that is called like a keyword is removed"
        ),
        pytest.param(
            {"inner": (InnerRetyped, ...)},
            "inner.zone",
            Change.DIFFERENT,
            "string",
            "integer",
            id="a nested field is retyped",
        ),
    ],
)
def test_a_breaking_change_is_named(
    changed: dict[str, Any], where: str, change: Change, before: str, after: str
) -> None:
    found = [
        breaking_change
        for breaking_change in breaking_changes(schema(), schema(**changed))
        if (breaking_change.where, breaking_change.change) == (where, change)
    ]
    assert [(item.before.startswith(before), item.after.startswith(after)) for item in found] == [(True, True)]


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


def without(name: str) -> Callable[[dict[str, Any]], object]:
    return lambda channels: channels.pop(name)


def moved(what: str, before: str, after: str) -> Break:
    return Break(f"node.gone {what}", Change.DIFFERENT, before, after)


def put(name: str, key: str, value: Any) -> Callable[[dict[str, Any]], object]:
    return lambda channels: channels[name].update({key: value})


@pytest.mark.parametrize(
    ("edit", "found"),
    [
        pytest.param(without("node.gone"), Break("node.gone", Change.REMOVED), id="a fact is not said any more"),
        pytest.param(
            put("node.gone", "address", "trellis.evt.{cluster}.nodes.gone.{name}"),
            moved("subject", "trellis.evt.*.node.gone.*", "trellis.evt.*.nodes.gone.*"),
            id="a subject changes",
        ),
        pytest.param(
            put("node.gone", "address", "trellis.evt.{cluster}.node.gone.{zone}.{name}"),
            moved("subject", "trellis.evt.*.node.gone.*", "trellis.evt.*.node.gone.*.*"),
            id="a key gets longer",
        ),
        pytest.param(put("node.gone", "x-stream", "OTHER"), moved("stream", "TRELLIS_EVENTS", "OTHER"), id="a stream"),
        pytest.param(
            put("node.gone", "messages", {"dev.x": {}}),
            moved("messages", "['dev.trellis.node.gone.v1']", "['dev.x']"),
            id="a type",
        ),
    ],
)
def test_a_channel_that_moves_is_named(edit: Callable[[dict[str, Any]], object], found: Break) -> None:
    new = deepcopy(asyncapi())
    edit(new["channels"])
    assert moved_channels(asyncapi(), new) == [found]


def test_a_new_channel_and_another_name_of_a_parameter_break_nothing() -> None:
    new = deepcopy(asyncapi())
    new["channels"]["node.moved"] = dict(new["channels"]["node.gone"])
    new["channels"]["node.gone"]["address"] = "trellis.evt.{cluster}.node.gone.{node}"
    assert moved_channels(asyncapi(), new) == []
