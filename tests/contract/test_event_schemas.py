"""The schemas in deploy/events are what the code says, and break nothing that stands there."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from trellis.events.compatibility import Break, Change, breaking_changes
from trellis.events.subjects import EVENT_SPECS, EventSpec
from trellis_tools.events.generate import breaks, differences
from trellis_tools.events.schemas import documents, event_schema, schema_file

COMMITTED = Path(__file__).parents[2] / "deploy" / "events"


def test_the_committed_schemas_are_the_generated_ones() -> None:
    assert differences(COMMITTED, documents()) == []


def test_no_committed_schema_is_broken() -> None:
    assert breaks(COMMITTED, documents()) == []


@pytest.mark.parametrize("spec", EVENT_SPECS, ids=lambda spec: spec.type)
def test_an_event_without_one_of_its_fields_would_be_refused(spec: EventSpec) -> None:
    committed = json.loads((COMMITTED / schema_file(spec)).read_text())
    for field in committed["properties"]:
        changed = event_schema(spec)
        del changed["properties"][field]
        changed["required"] = [name for name in changed["required"] if name != field]
        assert Break(field, Change.REMOVED) in breaking_changes(committed, changed)
