"""Commands, settings, files and figures that the README and pages name exist."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
import yaml

import provisioner.settings
from support.suite.commands import expect_command
from trellis.crds.host_config import WasmCloudHostConfigSpec
from trellis.crds.shim import RuntimeClassSpec
from trellis.installer_api.spec import WantedShim
from trellis.provisioning.shims import is_for, view_shim, wanted_shim_for
from trellis.services import SERVICES
from trellis_dev.testing.builders import a_node

ROOT = Path(__file__).parents[2]
README = (ROOT / "README.md").read_text()
COMPARISON = (ROOT / "docs/comparison.md").read_text()
SETTINGS_PAGE = (ROOT / "docs/without-helm.md").read_text()
SHIM_PAGES = [ROOT / f"docs/{name}.md" for name in ("shims", "concepts")]
PLACEMENT_PAGE = (ROOT / "docs/shims/placement.md").read_text()
HOSTS_PAGE = (ROOT / "docs/host-groups.md").read_text()
RESULTS = (ROOT / "bench/RESULTS.md").read_text()
DOCUMENTS = [
    ROOT / "README.md",
    *(ROOT / f"{name}.md" for name in ("CHANGELOG", "CONTRIBUTING", "MAINTAINERS", "SECURITY")),
    *(path for folder in ("docs", "deploy") for path in sorted((ROOT / folder).rglob("*.md"))),
]
FIGURE = re.compile(r"(?<![\w.-])([0-9][0-9.,]*) (?:s|ms|MiB)(?!\w)")


def variables() -> set[str]:
    return {f"TRELLIS_{name.upper()}" for service in SERVICES.values() for name in service.settings.model_fields}


def test_the_two_commands_come_first() -> None:
    first = re.search(r"```sh\n(.*?)```", README, re.DOTALL)
    assert first is not None
    assert [line.split("#")[0].strip() for line in first[1].splitlines()] == ["make demo", "make test"]


def test_every_setting_the_readme_names_exists() -> None:
    assert set(re.findall(r"TRELLIS_[A-Z_]+", README)) <= variables()


def test_every_setting_of_the_page_on_settings_exists() -> None:
    named = set(re.findall(r"TRELLIS_[A-Z_]+", SETTINGS_PAGE))
    assert named
    assert named <= variables()


def test_the_defaults_of_the_page_are_the_defaults() -> None:
    settings = provisioner.settings.Settings()
    assert settings.installer_image == "", "no image of another project runs unless a user names it"
    assert "| `TRELLIS_INSTALLER_IMAGE` | |" in SETTINGS_PAGE
    assert settings.max_unavailable.resolve(100) == 10
    assert "| `TRELLIS_MAX_UNAVAILABLE` | `10%` |" in SETTINGS_PAGE
    assert f"| `TRELLIS_HALT_AFTER_FAILURES` | `{settings.halt_after_failures}` |" in SETTINGS_PAGE
    assert (settings.job_deadline, settings.retry_min, settings.retry_max) == (600, 10, 300)
    assert "| `TRELLIS_JOB_DEADLINE` | `10m` |" in SETTINGS_PAGE


def commands() -> list[str]:
    return re.findall(r"(?:^|\n|`)(?:\.venv/bin/)?trellis ((?:[a-z-]+ ?)+(?:--?[a-z-]+(?: [A-Z0-9]+)? ?)*)", README)


@pytest.mark.parametrize("line", sorted(set(commands())))
def test_every_command_the_readme_shows_exists(line: str) -> None:
    expect_command(line)


@pytest.mark.parametrize("page", SHIM_PAGES, ids=lambda path: path.stem)
def test_the_shim_of_a_page_can_be_applied_and_is_for_the_nodes_it_selects(page: Path) -> None:
    block = re.search(r"```yaml shim\n(.*?)```", page.read_text(), re.DOTALL)
    assert block is not None
    manifest = yaml.safe_load(block[1])
    shim = view_shim(manifest | {"metadata": {**manifest["metadata"], "uid": "u", "resourceVersion": "1"}})
    assert not shim.invalid
    labelled = a_node("n", labels=(("wasm", "true"),))
    assert not is_for(shim, a_node("n"), auto_provision=False)
    assert is_for(shim, labelled, auto_provision=False)
    assert isinstance(wanted_shim_for(shim, "amd64", require_checksum=True), WantedShim)


def test_the_placement_of_the_page_is_read_as_it_is_written() -> None:
    block = re.search(r"```yaml placement\n(.*?)```", PLACEMENT_PAGE, re.DOTALL)
    assert block is not None
    runtime_class = yaml.safe_load(block[1])["spec"]["runtimeClass"]
    read = RuntimeClassSpec.model_validate(runtime_class)
    assert read.model_dump(by_alias=True, exclude_unset=True) == runtime_class


def test_the_host_group_of_the_page_has_only_known_fields() -> None:
    block = re.search(r"```yaml hosts\n(.*?)```", HOSTS_PAGE, re.DOTALL)
    assert block is not None
    spec = yaml.safe_load(block[1])["spec"]
    read = WasmCloudHostConfigSpec.model_validate(spec)
    assert read.model_dump(by_alias=True, exclude_unset=True) == spec


@pytest.mark.parametrize("document", DOCUMENTS, ids=lambda path: path.name)
def test_every_link_to_a_file_leads_somewhere(document: Path) -> None:
    prose = re.sub(r"^```.*?^```$", "", document.read_text(), flags=re.DOTALL | re.MULTILINE)
    for target in re.findall(r"\]\((?!https?://)([^)#]+)", re.sub(r"`[^`\n]*`", "", prose)):
        assert (document.parent / target).exists(), f"{document.name} links to {target}"


def test_the_makefile_has_the_targets_the_readme_names() -> None:
    makefile = (ROOT / "Makefile").read_text()
    for target in set(re.findall(r"`make ([a-z0-9-]+)`", README)) | {"demo", "test", "install"}:
        assert re.search(rf"^{target}:", makefile, re.MULTILINE), target


def test_every_figure_of_the_comparison_was_measured() -> None:
    table = COMPARISON.partition("## Measurements")[2].partition("\n## ")[0]
    rows = [line for line in table.splitlines() if line.startswith("|")][2:]
    found = [figure for row in rows for figure in FIGURE.findall(row)] + re.findall(r"\| ([0-9][0-9,]+);", table)
    assert len(found) > 20
    for figure in found:
        assert re.search(rf"(?<![0-9.,]){re.escape(figure)}(?![0-9])", RESULTS), figure
