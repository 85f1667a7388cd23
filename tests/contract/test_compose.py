"""docker-compose.yml is one by the Compose specification, and what it names is there: settings, commands, files.

It is not started: this test has no container engine. The schema is the specification's own, as check-jsonschema brings
it.
"""

from __future__ import annotations

import hashlib
import shlex
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml

from support.examples.folders import manifests
from support.suite.commands import expect_command
from trellis.installer_api.spec import WantedShim
from trellis.provisioning.shims import is_for, view_shim, wanted_shim_for
from trellis_dev.testing.builders import a_node, opted_in
from trellis_tools.reference.__main__ import SETTINGS

ROOT = Path(__file__).parents[2]
FILE = ROOT / "docker-compose.yml"
COMPOSE: dict[str, Any] = yaml.safe_load(FILE.read_text())
SERVICES: dict[str, dict[str, Any]] = COMPOSE["services"]
OURS = [name for name, service in SERVICES.items() if "services" in service.get("build", {}).get("dockerfile", "")]
RUNTIME = "/opt/trellis-runtime/containerd-shim-wasi-v1"
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
    assert set(SERVICES) == {"nats", "jaeger", "k3s", "kubeconfig", "runtime", "kinds", "shim", "trellis"}


@pytest.mark.parametrize("name", ["nats", "jaeger", "k3s", "trellis"])
def test_a_service_that_runs_on_is_restarted_after_it_ends(name: str) -> None:
    assert SERVICES[name]["restart"] == "unless-stopped"


def test_annotated_nodes_get_the_runtime_of_the_image_that_is_built_by_its_checksum(tmp_path: Path) -> None:
    """The command runs as in its container, with the places of a folder."""
    (tmp_path / "runtime").write_bytes(b"a program")
    places = {RUNTIME: "runtime", "/tmp/": "", "/output/": "", " /shim.yaml": f" {ROOT / 'deploy/compose/shim.yaml'}"}
    [command] = SERVICES["runtime"]["command"]
    for place, here in places.items():
        assert place in command
        command = command.replace(place, here)
    subprocess.run([*SERVICES["runtime"]["entrypoint"], command], cwd=tmp_path, check=True, timeout=30)
    manifest = yaml.safe_load((tmp_path / "shim.yaml").read_text())
    shim = view_shim(manifest | {"metadata": {**manifest["metadata"], "uid": "u", "resourceVersion": "1"}})
    assert not shim.invalid
    assert is_for(shim, opted_in(a_node()), auto_provision=False)
    wanted = wanted_shim_for(shim, "amd64", require_checksum=True)
    assert isinstance(wanted, WantedShim)
    [source] = wanted.sources
    assert (source.location, source.binary_sha256) == (RUNTIME, hashlib.sha256(b"a program").hexdigest())


def test_its_installer_is_the_image_that_the_head_of_the_file_loads_into_k3s() -> None:
    image = SERVICES["runtime"]["image"]
    assert SERVICES["trellis"]["environment"]["TRELLIS_NODE_INSTALLER_IMAGE"] == image
    assert "TRELLIS_INSTALLER_IMAGE" not in SERVICES["trellis"]["environment"], "that of KWasm cannot restart k3s"
    assert ["docker", "save", image, "|", "docker", "compose", "exec", "-T", "k3s", "ctr"] in [
        line.split()[1:11] for line in FILE.read_text().splitlines()
    ]


def test_the_commands_of_the_head_of_the_file_are_those_of_the_page() -> None:
    head = FILE.read_text().partition("services:\n")[0]
    commands = [line.removeprefix("#").strip() for line in head.splitlines() if line.startswith("#   ")]
    page = (ROOT / "docs/local-cluster.md").read_text()
    assert [command for command in commands if command not in page] == []
    for command in commands:
        arguments = shlex.split(command)
        if "trellis" in arguments:
            expect_command(" ".join(arguments[arguments.index("trellis", arguments.index("trellis") + 1) + 1 :]))


@pytest.mark.parametrize("name", OURS)
def test_services_of_trellis_have_settings_and_a_command_that_exist(name: str) -> None:
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
def test_each_awaited_service_exists_and_has_a_health_check(name: str) -> None:
    for other, how in SERVICES[name].get("depends_on", {}).items():
        ends = "restart" not in SERVICES[other] and "healthcheck" not in SERVICES[other]
        expected = "service_completed_successfully" if ends else "service_healthy"
        assert how["condition"] == expected, f"{name} waits for {other}"
    for volume in SERVICES[name].get("volumes", []):
        source = volume.split(":")[0]
        assert source in COMPOSE["volumes"] or (ROOT / source).is_file()


@pytest.mark.parametrize("name", SERVICES)
def test_nothing_listens_beyond_this_machine(name: str) -> None:
    assert all(port.startswith("127.0.0.1:") for port in SERVICES[name].get("ports", []))


def test_its_nats_is_that_of_the_example() -> None:
    [deployment] = [
        manifest
        for manifest in manifests("host-group")
        if manifest["metadata"]["name"] == "nats" and manifest["kind"] == "Deployment"
    ]
    [container] = deployment["spec"]["template"]["spec"]["containers"]
    assert container["image"].endswith(f"/{SERVICES['nats']['image']}")
