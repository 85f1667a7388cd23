"""docs/reference is what the code and the definitions say, and leaves nothing of them out."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import yaml
from pydantic import Field

from support.suite.naming import lacking
from trellis.config.settings import ServiceSettings
from trellis.crds.kinds import BY_DIRECTORY, make_definition
from trellis.events.subjects import EVENT_SPECS
from trellis_tools.reference.__main__ import SETTINGS, differences, pages, subscribers
from trellis_tools.reference.events_page import anchor, example
from trellis_tools.reference.kind_page import kind_page, properties
from trellis_tools.reference.markdown import cell
from trellis_tools.reference.settings_page import settings_page

ROOT = Path(__file__).parents[2]
REFERENCE = ROOT / "docs/reference"
PAGES = pages(ROOT / "deploy/rbac")
DEFINITIONS = [make_definition(kind) for kinds in BY_DIRECTORY.values() for kind in kinds]


def schema_of(definition: dict[str, Any]) -> dict[str, Any]:
    [version] = definition["spec"]["versions"]
    found: dict[str, Any] = version["schema"]["openAPIV3Schema"]["properties"]
    return found


@pytest.mark.parametrize("page", PAGES)
def test_the_committed_pages_are_the_generated_ones(page: str) -> None:
    assert (REFERENCE / page).read_text() == PAGES[page], "run make generate"


def test_a_page_without_a_generator_is_found(tmp_path: Path) -> None:
    (tmp_path / "old.md").write_text("x")
    new, old = differences(tmp_path, {"new.md": "y"})
    assert lacking(new, str(tmp_path / "new.md"), "make generate") == []
    assert lacking(old, str(tmp_path / "old.md")) == []


@pytest.mark.parametrize("definition", DEFINITIONS, ids=lambda item: item["spec"]["names"]["kind"])
def test_every_field_of_a_kind_has_a_row_and_a_meaning(definition: dict[str, Any]) -> None:
    page = kind_page(definition)
    for part in ("spec", "status"):
        for found in properties(schema_of(definition).get(part, {}), f".{part}"):
            [row] = [line for line in page.splitlines() if line.startswith(f"| `{found.path}` |")]
            assert found.schema.get("description"), found.path
            assert str(found.schema["description"]).split()[0].strip("`:") in row


@pytest.mark.parametrize("service", SETTINGS)
def test_every_setting_has_a_row_and_a_meaning(service: str) -> None:
    for name, field in SETTINGS[service].model_fields.items():
        assert field.description, name
        assert f"`TRELLIS_{name.upper()}`" in PAGES["settings.md"]


def test_a_setting_with_two_defaults_has_two_rows() -> None:
    class One(ServiceSettings):
        size: int = Field(default=512 * 2**20, description="how large")

    class Other(ServiceSettings):
        size: int = Field(default=3, description="how large")

    page = settings_page({"one": One, "other": Other})
    assert "| `TRELLIS_SIZE` | `512Mi` | how large | `one` |" in page
    assert "| `TRELLIS_SIZE` | `3` | how large | `other` |" in page


@pytest.mark.parametrize("spec", EVENT_SPECS, ids=lambda spec: spec.tokens)
def test_the_example_of_an_event_is_valid(spec: Any) -> None:
    spec.model.model_validate(example(spec))
    assert f"{{#{anchor(spec)}}}" in PAGES["events.md"]
    assert f"`{spec.owner}`" in PAGES["events.md"]


def test_the_consumer_of_each_event_is_named() -> None:
    assert subscribers()["dev.trellis.node.opted_in.v1"] == ["provisioner"]
    assert subscribers()["dev.trellis.secret.changed.v1"] == ["host_manager"]


def test_every_rule_of_a_role_has_a_row() -> None:
    for path in (ROOT / "deploy/rbac").glob("*.yaml"):
        section = PAGES["permissions.md"].partition(f"## {path.stem}\n")[2].partition("\n## ")[0]
        rules = [rule for role in yaml.safe_load_all(path.read_text()) for rule in role.get("rules") or ()]
        assert section.count("\n| ") == len(rules) + 1


def test_a_text_breaks_no_table() -> None:
    assert cell("one | two\n<name> and ``<code>``") == "one \\| two &lt;name> and `<code>`"


def test_the_asterisks_of_a_text_are_shown() -> None:
    assert cell("'a.*', '*.b' and ``c.*``") == "'a.\\*', '\\*.b' and `c.*`"
    assert "'\\*.failed.>'" in PAGES["commands.md"]
