"""The command of the documentation that gives a second installation permissions of its own beside the first one's."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path
from typing import Any

import pytest
import yaml

ROOT = Path(__file__).parents[2]
RBAC = sorted((ROOT / "deploy/rbac").glob("*.yaml"))
CLUSTER_WIDE = ("ClusterRole", "ClusterRoleBinding")


def documented(file: Path) -> list[dict[str, Any]]:
    """Return the objects of a file as the documented command applies them."""
    page = (ROOT / "docs/without-helm.md").read_text(encoding="utf-8")
    [block] = re.findall(r"```sh\n(sed [^`]*)```", page)
    command = block.replace("deploy/rbac/host-manager.yaml", str(file)).partition("| kubectl")[0]
    done = subprocess.run(["sh", "-c", command], capture_output=True, text=True, check=True)
    return [item for item in yaml.safe_load_all(done.stdout) if item]


def places(objects: list[dict[str, Any]]) -> set[tuple[str, str, str]]:
    return {(item["kind"], item["metadata"].get("namespace", ""), item["metadata"]["name"]) for item in objects}


@pytest.mark.parametrize("file", RBAC, ids=lambda file: file.stem)
def test_a_second_installation_takes_no_object_of_the_first(file: Path) -> None:
    first = [item for item in yaml.safe_load_all(file.read_text(encoding="utf-8")) if item]
    second = documented(file)
    assert len(second) == len(first)
    assert not places(first) & places(second)
    roles = {(kind, name) for kind, _, name in places(second) if kind in {"Role", "ClusterRole"}}
    for item, former in zip(second, first, strict=True):
        if item["kind"].endswith("Binding"):
            assert (item["roleRef"]["kind"], item["roleRef"]["name"]) in roles
            accounts = [subject for subject in item["subjects"] if subject["kind"] == "ServiceAccount"]
            assert {subject["namespace"] for subject in accounts} <= {"blue"}
            assert [subject["name"] for subject in item["subjects"]] == [
                subject["name"] for subject in former["subjects"]
            ]
        if item["kind"] == "ServiceAccount":
            assert item["metadata"]["name"] == former["metadata"]["name"]
