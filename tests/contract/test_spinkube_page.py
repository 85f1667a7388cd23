"""docs/spinkube.md is correct: its Shim is that of the command, samples are installed or refused as described."""

from __future__ import annotations

import re
import textwrap
from typing import Any

import pytest
import yaml

from support.operators.spin_operator import SAMPLES
from support.suite.commands import expect_command
from support.suite.pages import DOCS, table
from trellis.crds.shim import RuntimeClassSpec
from trellis.installer_api.spec import WantedShim
from trellis.provisioning.shims import Refusal, view_shim, wanted_shim_for
from trellis_cli.shims.command import read_catalogue
from trellis_cli.shims.model import find_release, make_shim

PAGE = DOCS / "spinkube.md"
TEXT = PAGE.read_text(encoding="utf-8")
ROWS = {row[0].strip("`"): row for row in table(PAGE, "sample")}


def block(name: str) -> dict[str, Any]:
    [found] = re.findall(rf"^ *```yaml {name}\n(.*?)^ *```$", TEXT, re.DOTALL | re.MULTILINE)
    loaded: dict[str, Any] = yaml.safe_load(textwrap.dedent(found))
    return loaded


def test_the_shim_of_the_page_is_that_of_the_command() -> None:
    [(release, name, key, value)] = re.findall(
        r"trellis shims add (\S+) --name (\S+) --node-selector (\w+)=(\w+)", TEXT
    )
    assert block("shim") == make_shim(find_release(read_catalogue(), release), name, {key: value}, "10%")
    assert f"kubectl label node NODE {key}={value}\n" in TEXT


def test_the_executor_names_the_runtime_class_and_the_app_the_executor() -> None:
    executor = block("executor")
    runtime_class = block("shim")["spec"]["runtimeClass"]
    assert executor["spec"]["deploymentConfig"]["runtimeClassName"] == runtime_class["name"]
    assert block("app")["spec"]["executor"] == executor["metadata"]["name"]
    placed = block("placement")["spec"]["runtimeClass"]
    assert {name: placed[name] for name in runtime_class} == runtime_class
    assert RuntimeClassSpec.model_validate(placed).model_dump(by_alias=True, exclude_unset=True) == placed


def test_the_page_has_each_sample() -> None:
    assert ROWS.keys() == SAMPLES.keys()


@pytest.mark.parametrize("name", SAMPLES)
@pytest.mark.parametrize("architecture", ["amd64", "arm64"])
def test_a_sample_is_installed_or_refused_as_the_page_describes(name: str, architecture: str) -> None:
    manifest = SAMPLES[name]
    shim = view_shim(manifest | {"metadata": manifest["metadata"] | {"uid": "u", "resourceVersion": "1"}})
    _, runtime_class, result = ROWS[name]
    assert (shim.invalid, shim.runtime_class) == ("", runtime_class.strip("`"))
    wanted = wanted_shim_for(shim, architecture, require_checksum=True)
    if isinstance(wanted, WantedShim):
        assert result.startswith("installed, unchanged")
        [source] = wanted.sources
        assert source.sha256
    else:
        assert (wanted, f"`{wanted.value}`" in result) == (Refusal.CHECKSUM_MISSING, True)


def test_the_commands_of_the_page_exist() -> None:
    lines = re.findall(r"(?:^ *|`)trellis ([^`\n]+)", TEXT, re.MULTILINE)
    assert lines
    for line in lines:
        expect_command(line)
