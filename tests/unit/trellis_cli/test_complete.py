"""Candidates of a shell's completion, from a cluster with two Shims and two namespaces."""

from __future__ import annotations

from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

import pytest

from trellis_cli.command_line import all_commands
from trellis_cli.common import complete
from trellis_cli.common.complete import complete_namespace, complete_shim
from trellis_cli.common.objects import read_kind

NAMES = {"shim": ["spin", "wasi"], "namespace": ["default", "shop"]}


@pytest.fixture(autouse=True)
def cluster(monkeypatch: pytest.MonkeyPatch) -> None:
    async def listed(word: str, given: dict[str, Any], accepted: list[str]) -> list[str]:
        del given
        return NAMES[read_kind(word, accepted) if accepted else word]

    monkeypatch.setattr(complete, "_listed", listed)


def context(*shim: str) -> Any:
    return SimpleNamespace(params={"shim": shim})


@pytest.mark.parametrize(
    ("given", "incomplete", "found"),
    [
        ((), "", ["spin", "wasi"]),
        ((), "sp", ["spin"]),
        ((), "shim/", ["shim/spin", "shim/wasi"]),
        ((), "shims/w", ["shims/wasi"]),
        ((), "node/", []),
        (("shim",), "", ["spin", "wasi"]),
        (("spin",), "", []),
        (("shim", "spin"), "", []),
    ],
)
def test_a_shim_is_completed_in_each_of_its_forms(given: tuple[str, ...], incomplete: str, found: list[str]) -> None:
    assert complete_shim(context(*given), incomplete) == found


def namespace_options(command: Any, path: str = "trellis") -> Iterator[tuple[str, Any]]:
    yield from ((path, item) for item in command.params if "--namespace" in item.opts)
    for name, below in getattr(command, "commands", {}).items():
        yield from namespace_options(below, f"{path} {name}")


def test_each_option_for_a_namespace_completes_it() -> None:
    options = [*namespace_options(all_commands())]
    assert len(options) > 5
    found = {path: [item.value for item in option.shell_complete(context(), "sh")] for path, option in options}
    assert {path: names for path, names in found.items() if names != ["shop"]} == {}
    assert complete_namespace(context(), "x") == []
