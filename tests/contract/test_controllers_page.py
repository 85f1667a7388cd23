"""The pages about controllers: their example is valid, their commands exist, their tables are complete."""

from __future__ import annotations

import re
import tomllib
from datetime import timedelta

import pytest
import yaml

from controller_host.domain.views import read_spec, view_controller
from controller_host.guest.faults import FaultKind
from controller_host.report.status import Seen, status_of
from controller_host.scheduler.outcomes import INIT_FAILED, RECONCILE_FAILED
from controller_host.settings import Settings
from support.suite.commands import expect_command
from support.suite.pages import DOCS, table
from trellis.crds.wasm_controllers import WasmController
from trellis.telemetry.metrics import Metrics

RUNNING = DOCS / "controllers/running.md"
PAGES = [DOCS / "controllers.md", *sorted((DOCS / "controllers").glob("*.md"))]
TEXT = "\n".join(path.read_text() for path in PAGES)
ROOT = DOCS.parent
COMMANDS = [line for block in re.findall(r"```sh\n(.*?)```", TEXT, re.DOTALL) for line in block.splitlines()]
"""All lines of its shell blocks."""
(CONTROLLER,) = re.findall(r"```yaml\n(.*?)```", TEXT, re.DOTALL)
DIGEST = "0" * 64


def test_its_controller_is_one_with_every_field_that_it_has() -> None:
    manifest = yaml.safe_load(CONTROLLER.replace("sha256:…", f"sha256:{DIGEST}"))
    spec = WasmController.model_validate(manifest).spec
    assert spec.model_dump(by_alias=True, exclude_unset=True) == manifest["spec"]
    wanted = read_spec(view_controller(manifest | {"metadata": manifest["metadata"] | {"uid": "u", "generation": 1}}))
    assert wanted.is_fixed
    assert (wanted.bounds.memory_bytes, wanted.bounds.cpu_seconds, wanted.bounds.wall_seconds) == (64 * 2**20, 1, 30)
    assert (wanted.bounds.calls_per_second, wanted.bounds.host_calls_per_second) == (50, 100)
    assert wanted.suspend_after == timedelta(seconds=30).total_seconds()
    fields = set(re.findall(r"`(\w+)`", " ".join(row[0] for row in rows("| field | |"))))
    assert fields == {field.alias or name for name, field in type(spec).model_fields.items()}


def rows(head: str) -> list[list[str]]:
    """Return the rows of the table with this head."""
    after = TEXT.partition(f"{head}\n")[2].partition("\n\n")[0].splitlines()[1:]
    return [[cell.strip() for cell in line.strip("|").split(" | ")] for line in after]


@pytest.mark.parametrize("line", sorted({line.partition("#")[0].strip() for line in COMMANDS}))
def test_every_command_of_the_page_exists(line: str) -> None:
    if line.startswith("pip install "):
        extras = re.findall(r"\[([\w,]+)\]", line)[0].split(",")
        project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
        assert f"{project['name']}[" in line
        assert set(extras) <= set(project["optional-dependencies"])
        return
    program, _, rest = line.partition(" ")
    assert program == "trellis"
    arguments = rest.split()
    # What stands after the options is this page's example.
    expect_command(
        " ".join(argument for argument in arguments if not argument.startswith(("~", "team-", "mirror", "json")))
    )


def test_its_settings_are_those_of_the_service_with_their_defaults() -> None:
    settings = Settings()
    documented = {row[0].strip("`"): row[1].strip("`") for row in table(RUNNING, "variable")}
    own = {name for name in type(settings).model_fields if name.startswith("controller_")} | {"sources_interval"}
    assert set(documented) == {f"TRELLIS_{name.upper()}" for name in own}
    assert tuple(documented["TRELLIS_CONTROLLER_RESOURCES"].split(",")) == settings.controller_resources
    assert int(documented["TRELLIS_CONTROLLER_THREADS"]) == settings.controller_threads
    budget = Settings.model_validate({"controller_memory_budget": documented["TRELLIS_CONTROLLER_MEMORY_BUDGET"]})
    assert budget.controller_memory_budget == settings.controller_memory_budget
    interval = Settings.model_validate({"sources_interval": documented["TRELLIS_SOURCES_INTERVAL"]})
    assert interval.sources_interval == settings.sources_interval


def test_every_fault_and_every_condition_has_its_row() -> None:
    faults = {kind for row in rows("| `lastFault.kind` | |") for kind in re.findall(r"`(\w+)`", row[0])}
    # Interrupted is what becomes of a call when the service ends, and is no fault of anybody's.
    assert faults == {*FaultKind, INIT_FAILED, RECONCILE_FAILED} - {FaultKind.INTERRUPTED}
    conditions = {kind for row in rows("| condition | |") for kind in re.findall(r"`([A-Z]\w+)`", row[0])}
    status = status_of(Seen(generation=1, state="Cold", ready=False), {}, "2026-01-01T00:00:00Z")
    assert conditions == {condition["type"] for condition in status["conditions"]}


def test_its_metrics_are_all_that_there_are() -> None:
    documented = set(re.findall(r"`(trellis_controllers?\w*)`", TEXT))
    there = {
        f"{metric.name}_total" if metric.type == "counter" else metric.name
        for metric in Metrics().registry.collect()
        if metric.name.startswith("trellis_controller")
    }
    assert documented == there
