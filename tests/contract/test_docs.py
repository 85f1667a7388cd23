"""What the README and the compose file say exists: commands, settings, files."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
import yaml

import application_manager.settings
import controller_host.settings
import host_manager.settings
import node_watcher.settings
import provisioner.settings
import secrets_backend.settings
import service_reflector.settings
from support.commands import expect_command
from trellis.crds.host_config import WasmCloudHostConfigSpec
from trellis.installing import ShimWish
from trellis.settings import ServiceSettings
from trellis.shims import is_for, view_shim, wish_for
from trellis.testing.builders import a_node

ROOT = Path(__file__).parents[2]
README = (ROOT / "README.md").read_text()
DOCUMENTS = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]
MODELS: list[type[ServiceSettings]] = [
    application_manager.settings.Settings,
    controller_host.settings.Settings,
    host_manager.settings.Settings,
    node_watcher.settings.Settings,
    provisioner.settings.Settings,
    secrets_backend.settings.Settings,
    service_reflector.settings.Settings,
]


def variables() -> set[str]:
    return {f"TRELLIS_{name.upper()}" for model in MODELS for name in model.model_fields}


def test_the_two_commands_come_first() -> None:
    first = re.search(r"```sh\n(.*?)```", README, re.DOTALL)
    assert first is not None
    assert [line.split("#")[0].strip() for line in first[1].splitlines()] == ["make demo", "make test"]


def test_every_setting_the_readme_names_exists() -> None:
    named = set(re.findall(r"TRELLIS_[A-Z_]+", README))
    assert named
    assert named <= variables()


def test_the_defaults_the_readme_gives_are_the_defaults() -> None:
    settings = provisioner.settings.Settings()
    assert f"`{settings.installer_image}`" in README
    assert settings.max_unavailable.resolve(100) == 10
    assert "| `TRELLIS_MAX_UNAVAILABLE` | `10%` |" in README
    assert f"| `TRELLIS_HALT_AFTER_FAILURES` | `{settings.halt_after_failures}` |" in README
    assert (settings.job_deadline, settings.retry_min, settings.retry_max) == (600, 10, 300)
    assert "| `TRELLIS_JOB_DEADLINE` | `10m` |" in README


def commands() -> list[str]:
    return re.findall(r"(?:^|\n|`)(?:\.venv/bin/)?trellis ((?:[a-z-]+ ?)+(?:--?[a-z-]+(?: [A-Z0-9]+)? ?)*)", README)


@pytest.mark.parametrize("line", sorted(set(commands())))
def test_every_command_the_readme_shows_exists(line: str) -> None:
    expect_command(line)


def test_the_shim_of_the_readme_can_be_applied_and_is_for_the_nodes_it_selects() -> None:
    block = re.search(r"```yaml shim\n(.*?)```", README, re.DOTALL)
    assert block is not None
    manifest = yaml.safe_load(block[1])
    shim = view_shim(manifest | {"metadata": {**manifest["metadata"], "uid": "u", "resourceVersion": "1"}})
    assert not shim.invalid
    labelled = a_node("n", labels=(("wasm", "true"),))
    assert not is_for(shim, a_node("n"), auto_provision=False)
    assert is_for(shim, labelled, auto_provision=False)
    assert isinstance(wish_for(shim, "amd64", require_checksum=True), ShimWish)


def test_the_host_group_of_the_readme_says_nothing_that_is_not_a_field() -> None:
    block = re.search(r"```yaml hosts\n(.*?)```", README, re.DOTALL)
    assert block is not None
    spec = yaml.safe_load(block[1])["spec"]
    read = WasmCloudHostConfigSpec.model_validate(spec)
    assert read.model_dump(by_alias=True, exclude_unset=True) == spec


@pytest.mark.parametrize("document", DOCUMENTS, ids=lambda path: path.name)
def test_every_link_to_a_file_leads_somewhere(document: Path) -> None:
    prose = re.sub(r"^```.*?^```$", "", document.read_text(), flags=re.DOTALL | re.MULTILINE)
    for target in re.findall(r"\]\((?!https?://)([^)#]+)", prose):
        assert (document.parent / target).exists(), f"{document.name} links to {target}"


def test_the_compose_file_has_the_form_and_the_settings_it_needs() -> None:
    compose = yaml.safe_load((ROOT / "docker-compose.yml").read_text())
    services = compose["services"]
    assert set(services) == {"nats", "jaeger", "k3s", "kubeconfig", "trellis"}
    assert set(services["trellis"]["environment"]) <= variables()
    for service in services.values():
        assert "image" in service or (ROOT / service["build"]["dockerfile"]).exists()
        assert set(service.get("depends_on", {})) <= set(services)
        for volume in service.get("volumes", []):
            assert volume.split(":")[0] in compose["volumes"]


def test_the_makefile_has_the_targets_the_readme_names() -> None:
    makefile = (ROOT / "Makefile").read_text()
    for target in set(re.findall(r"`make ([a-z0-9-]+)`", README)) | {"demo", "test", "install"}:
        assert re.search(rf"^{target}:", makefile, re.MULTILINE), target
