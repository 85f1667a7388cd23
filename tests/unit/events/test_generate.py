from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest

from support.suite.naming import lacking
from trellis.events.compatibility import Break, Change
from trellis.events.subjects import EVENT_SPECS, EventSpec, event_subject
from trellis_tools.events.generate import main, render
from trellis_tools.events.schemas import ASYNCAPI_FILE, ENVELOPE_FILE, asyncapi, documents, schema_file

FILE = "dev.trellis.node.opted_in.v1.json"


def edit(path: Path, **properties: Any) -> None:
    """Change properties of a schema in a file; None removes one."""
    schema = json.loads(path.read_text())
    for name, value in properties.items():
        if value is None:
            del schema["properties"][name]
        else:
            schema["properties"][name] = value
    path.write_text(render(schema))


def test_every_event_has_a_schema_and_a_channel() -> None:
    wanted = documents()
    assert set(wanted) == {ENVELOPE_FILE, ASYNCAPI_FILE, *map(schema_file, EVENT_SPECS)}
    assert set(wanted[ASYNCAPI_FILE]["channels"]) == {spec.tokens for spec in EVENT_SPECS}


@pytest.mark.parametrize("spec", EVENT_SPECS, ids=lambda spec: spec.type)
def test_a_channel_has_the_subject_that_is_published_on(spec: EventSpec) -> None:
    fields = {name: name for name in spec.model.model_fields}
    channel = asyncapi()["channels"][spec.tokens]
    assert channel["address"].format(cluster="c1", **fields) == event_subject(
        "c1", spec.model.model_construct(**fields)
    )
    assert set(channel["parameters"]) == set(re.findall(r"{(\w+)}", channel["address"]))
    assert all(parameter["description"] for parameter in channel["parameters"].values())


def test_generated_files_pass_the_check(tmp_path: Path) -> None:
    assert main([str(tmp_path / "events")]) == 0
    assert main(["--check", str(tmp_path / "events")]) == 0


def test_a_missing_and_a_changed_file_fail_the_check(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    main([str(tmp_path)])
    (tmp_path / ENVELOPE_FILE).unlink()
    (tmp_path / ASYNCAPI_FILE).write_text("{}\n")
    assert main(["--check", str(tmp_path)]) == 1
    out = capsys.readouterr().err
    assert lacking(out, f"{tmp_path / ENVELOPE_FILE}", f"{tmp_path / ASYNCAPI_FILE}", "make generate") == []


@pytest.mark.parametrize("arguments", [[], ["--check"]], ids=["generate", "check"])
def test_a_field_that_readers_know_is_not_removed(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], arguments: list[str]
) -> None:
    main([str(tmp_path)])
    edit(tmp_path / FILE, kernel={"type": "string"})
    before = (tmp_path / FILE).read_text()
    assert main([*arguments, str(tmp_path)]) == 1
    assert f"{tmp_path / FILE}: {Break('kernel', Change.REMOVED)};" in capsys.readouterr().err
    assert (tmp_path / FILE).read_text() == before


def test_a_new_optional_field_is_written(tmp_path: Path) -> None:
    main([str(tmp_path)])
    edit(tmp_path / FILE, labels=None)
    assert main(["--check", str(tmp_path)]) == 1
    assert main([str(tmp_path)]) == 0
    assert main(["--check", str(tmp_path)]) == 0


def test_a_type_is_not_removed(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    main([str(tmp_path)])
    (tmp_path / "dev.trellis.node.vanished.v1.json").write_text("{}\n")
    assert main([str(tmp_path)]) == 1
    assert lacking(capsys.readouterr().err, "dev.trellis.node.vanished.v1.json") == []


def test_a_subject_that_readers_filter_on_is_not_changed(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    main([str(tmp_path)])
    document = json.loads((tmp_path / ASYNCAPI_FILE).read_text())
    document["channels"]["node.gone"]["address"] = "trellis.evt.{cluster}.node.gone.{zone}.{name}"
    (tmp_path / ASYNCAPI_FILE).write_text(render(document))
    assert main([str(tmp_path)]) == 1
    stderr = capsys.readouterr().err
    assert lacking(stderr, "node.gone", "trellis.evt.*.node.gone.*.*", "trellis.evt.*.node.gone.*") == []
