"""The pages about wasmCloud v2 agree with the code: its permissions are used, settings exist, reasons are complete."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest
import yaml

from support.suite.commands import expect_command, known_commands
from support.v2.explained import asked_of_kubernetes
from trellis.kube.resources import EVENTS, NAMESPACES, WASMCLOUD_V2
from trellis.read_model.live.parts_v2 import v2_parts
from trellis.read_model.reading.explained_v2 import HOST_GROUP
from trellis.read_model.reading.explained_v2 import KINDS as V2_KINDS
from trellis.v2.reasons import Reason
from trellis.v2.timings import V2Timings
from trellis_cli.common.objects import KINDS
from trellis_cli.common.settings import ClientSettings
from trellis_cli.v2.receive import duration, subjects

DOCS = Path(__file__).parents[2] / "docs"
PAGE = "\n".join(path.read_text(encoding="utf-8") for path in [DOCS / "v2.md", *sorted((DOCS / "v2").glob("*.md"))])
LINES = sorted(set(re.findall(r"(?:^|`)trellis ((?:status|explain|top)[^`#\n]*)", PAGE, re.MULTILINE)))


def block(name: str) -> str:
    [found] = re.findall(rf"```\w+ {name}\n(.*?)```", PAGE, re.DOTALL)
    return str(found)


def granted(name: str = "rbac") -> set[tuple[str, str, str]]:
    rules = yaml.safe_load(block(name))["rules"]
    return {
        (verb, group, resource)
        for rule in rules
        for group in rule["apiGroups"]
        for resource in rule["resources"]
        for verb in rule["verbs"]
    }


async def test_the_permissions_of_the_page_are_those_that_are_used() -> None:
    assert await asked_of_kubernetes() == granted()


def test_the_permissions_of_the_page_for_the_console_are_those_that_are_used() -> None:
    watched = {(verb, part.resource.group, part.resource.plural) for part in v2_parts() for verb in ("list", "watch")}
    assert granted("rbac-live") == watched | {("list", "", EVENTS.plural), ("get", "", NAMESPACES.plural)}


def test_no_permission_of_the_page_changes_anything() -> None:
    assert {verb for verb, _, _ in granted()} == {"get", "list"}
    assert {verb for verb, _, _ in granted("rbac-live")} == {"get", "list", "watch"}
    assert {res.plural for res in WASMCLOUD_V2} <= {resource for _, _, resource in granted()}


@pytest.mark.parametrize(("name", "replies"), [("nats", False), ("nats-replies", True)])
def test_the_nats_permissions_of_the_page_are_those_that_are_used(name: str, replies: bool) -> None:
    permissions: dict[str, Any] = json.loads(block(name))
    assert permissions == {"subscribe": list(subjects(replies=replies)), "publish": {"deny": [">"]}}


def test_the_durations_of_the_page_are_those_of_the_code() -> None:
    for replies, option in ((False, "--v2-nats URL"), (True, "--v2-nats URL --v2-replies")):
        [row] = [line for line in PAGE.splitlines() if line.startswith(f"| `{option}` |")]
        assert f"{duration(V2Timings(), replies=replies):g} s" in row


@pytest.mark.parametrize("line", LINES)
def test_every_command_of_the_page_exists(line: str) -> None:
    expect_command(line.strip())


def test_every_kind_with_a_page_is_named() -> None:
    for kind in V2_KINDS:
        assert f"trellis explain {kind}/NAME" in PAGE
        assert KINDS[kind].group == ("" if kind == HOST_GROUP else WASMCLOUD_V2[0].group)


def test_every_option_and_setting_of_the_page_exists_and_none_is_left_out() -> None:
    settings = {f"TRELLIS_{name.upper()}" for name in ClientSettings.model_fields if name.startswith("v2_")}
    assert set(re.findall(r"`(TRELLIS_[A-Z0-9_]+)`", PAGE)) == settings
    options = set(re.findall(r"--v2-[a-z-]+", PAGE))
    for option in options:
        expect_command(f"explain {option}")
    assert options == {
        name for parameter in known_commands().commands["explain"].params for name in parameter.opts if "--v2-" in name
    }


def test_every_reason_has_a_meaning() -> None:
    table = (DOCS / "v2/reasons.md").read_text(encoding="utf-8")
    rows = [line.split("|") for line in table.splitlines() if line.startswith("| `")]
    listed = {name for _, names, *_ in rows for name in re.findall(r"`(\w+)`", names)}
    assert listed == {reason.value for reason in Reason}
    assert all(meaning.strip() for _, _, meaning, _ in rows)
