"""JSON Schemas of settings: a setting whose type says nothing about its text is named, and ranges are combined."""

from __future__ import annotations

from typing import Annotated

import pytest
from pydantic import BaseModel, ConfigDict, Field

from trellis.config.durations import Seconds
from trellis.config.value_schema import number_schema
from trellis_tools.settings_schema import setting_schema


class Unknown:
    """A type of which nothing is known."""


class Model(BaseModel):
    """Settings of every form."""

    model_config = ConfigDict(arbitrary_types_allowed=True)

    unknown: Unknown = Unknown()
    bytes: Annotated[int, Field(ge=0), number_schema("[0-9]+", minimum=0), Field(ge=256, le=1024)] = 512
    wait: Annotated[Seconds, Field(gt=0)] | None = None
    name: str = Field(default="a", pattern="^[a-z]+$")


def test_a_setting_whose_type_has_no_schema_is_named() -> None:
    with pytest.raises(ValueError, match=r"^unknown: .*ValueSchema"):
        setting_schema("unknown", Model.model_fields["unknown"])


def test_ranges_are_the_narrowest_and_exclude_zero_as_text_too() -> None:
    schema = setting_schema("bytes", Model.model_fields["bytes"])
    assert (schema["minimum"], schema["maximum"]) == (256, 1024)
    assert "not" in schema


def test_optional_fields_and_patterns_keep_their_form() -> None:
    schema = setting_schema("wait", Model.model_fields["wait"])
    assert (schema["type"], schema["exclusiveMinimum"]) == (["number", "string"], 0)
    assert setting_schema("name", Model.model_fields["name"])["pattern"] == "^[a-z]+$"
