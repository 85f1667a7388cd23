"""The registry of services is complete, and what project files and the chart list of each is generated from it."""

from __future__ import annotations

from pathlib import Path

import pytest
import yaml

from trellis.services import SERVICES
from trellis_tools import chart, services

ROOT = Path(__file__).parents[2]
VALUES = yaml.safe_load((ROOT / chart.CHART / "values.yaml").read_text())
GENERATED = {str(name): text for each in (services, chart) for name, text in each.documents(ROOT).items()}


@pytest.mark.parametrize("name", GENERATED)
def test_the_committed_file_is_the_generated_one(name: str) -> None:
    assert (ROOT / name).read_text() == GENERATED[name], "run make generate"


def test_every_folder_of_a_service_is_in_the_registry() -> None:
    assert {path.parent.name for path in (ROOT / "services").glob("*/app.py")} == set(SERVICES)


def test_every_service_has_values_permissions_and_a_page() -> None:
    assert list(VALUES["services"]) == [service.chart_key for service in SERVICES.values()]
    for service in SERVICES.values():
        assert (ROOT / chart.RBAC / f"{service.name}.yaml").exists()
        assert (ROOT / "docs" / f"{'' if service.only_if_named else 'services/'}{service.name}.md").exists()


def test_a_service_with_handlers_has_subscriptions() -> None:
    listeners = {path.parent.name for path in (ROOT / "services").glob("*/handlers.py")}
    assert listeners == {service.package for service in SERVICES.values() if service.subscriptions}


def test_the_settings_of_a_service_name_it() -> None:
    assert {service.settings.service for service in SERVICES.values()} == set(SERVICES)


def test_a_file_without_a_place_for_the_services_is_refused(tmp_path: Path) -> None:
    (tmp_path / "docs/services").mkdir(parents=True)
    for name in ("pyproject.toml", "mkdocs.yml", "docs/services/index.md"):
        (tmp_path / name).write_text("# nothing\n")
    with pytest.raises(ValueError, match=r"pyproject\.toml"):
        services.documents(tmp_path)


def test_a_part_that_differs_is_found_and_written(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "docs/services").mkdir(parents=True)
    for name in ("pyproject.toml", "mkdocs.yml", "docs/services/index.md"):
        (tmp_path / name).write_text((ROOT / name).read_text().replace("node", "edge"))
    assert services.main([str(tmp_path), "--check"]) == 1
    assert "pyproject.toml" in capsys.readouterr().err
    assert services.main([str(tmp_path)]) == 0
    assert services.main([str(tmp_path), "--check"]) == 0
