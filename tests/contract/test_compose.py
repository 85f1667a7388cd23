"""docker-compose.yml is one by the Compose specification, and what it names is there: settings, commands, files.

It is not started: no container engine is at hand. The schema is the specification's own, as check-jsonschema brings it.
"""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml

from support.examples.folders import manifests
from support.suite.commands import expect_command
from trellis_tools.reference.__main__ import SETTINGS

ROOT = Path(__file__).parents[2]
FILE = ROOT / "docker-compose.yml"
COMPOSE: dict[str, Any] = yaml.safe_load(FILE.read_text())
SERVICES: dict[str, dict[str, Any]] = COMPOSE["services"]
OURS = [name for name, service in SERVICES.items() if "build" in service]
VARIABLES = {f"TRELLIS_{name.upper()}" for model in SETTINGS.values() for name in model.model_fields}


def check(path: Path) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "check_jsonschema", "--builtin-schema", "vendor.compose-spec", str(path)]
    return subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)


def test_it_is_one_by_the_specification() -> None:
    done = check(FILE)
    assert done.returncode == 0, done.stdout


@pytest.mark.thorough
def test_one_that_is_none_is_refused(tmp_path: Path) -> None:
    wrong = tmp_path / "docker-compose.yml"
    wrong.write_text(FILE.read_text().replace("healthcheck:", "healthchek:", 1))
    done = check(wrong)
    assert done.returncode == 1
    assert "healthchek" in done.stdout


def test_it_has_nats_jaeger_a_cluster_and_the_services() -> None:
    assert set(SERVICES) == {"nats", "jaeger", "k3s", "kubeconfig", "kinds", "trellis"}


@pytest.mark.parametrize("name", OURS)
def test_what_is_ours_has_settings_and_a_command_that_exist(name: str) -> None:
    service = SERVICES[name]
    assert set(service["environment"]) <= VARIABLES
    assert (ROOT / service["build"]["context"] / service["build"]["dockerfile"]).exists()
    expect_command(" ".join(service["command"]))


def test_the_settings_are_taken_together() -> None:
    given = SERVICES["trellis"]["environment"]
    for model in SETTINGS.values():
        fields = {
            name: given[f"TRELLIS_{name.upper()}"] for name in model.model_fields if f"TRELLIS_{name.upper()}" in given
        }
        model(**{name: value for name, value in fields.items() if name != "kubeconfig"})


@pytest.mark.parametrize("name", SERVICES)
def test_what_is_waited_for_is_there_and_can_be_told(name: str) -> None:
    for other, how in SERVICES[name].get("depends_on", {}).items():
        ends = "restart" not in SERVICES[other] and "healthcheck" not in SERVICES[other]
        expected = "service_completed_successfully" if ends else "service_healthy"
        assert how["condition"] == expected, f"{name} waits for {other}"
    for volume in SERVICES[name].get("volumes", []):
        assert volume.split(":")[0] in COMPOSE["volumes"]


@pytest.mark.parametrize("name", SERVICES)
def test_nothing_listens_beyond_this_machine(name: str) -> None:
    assert all(port.startswith("127.0.0.1:") for port in SERVICES[name].get("ports", []))


def test_its_nats_is_that_of_the_example() -> None:
    [deployment] = [
        one for one in manifests("host-group") if one["metadata"]["name"] == "nats" and one["kind"] == "Deployment"
    ]
    [container] = deployment["spec"]["template"]["spec"]["containers"]
    assert container["image"].endswith(f"/{SERVICES['nats']['image']}")
