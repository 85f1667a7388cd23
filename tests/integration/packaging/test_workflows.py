"""The workflows of the repository: what actionlint and zizmor find in them, and that they run commands that exist."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest
import yaml

from trellis_dev.localcluster import tools
from trellis_dev.localcluster.progress import Lines

ROOT = Path(__file__).parents[3]
GITHUB = ROOT / ".github"
WORKFLOWS = sorted((GITHUB / "workflows").glob("*.yml"))
PINNED = re.compile(r"[\w-]+/[\w-]+@[0-9a-f]{40}")


def test_actionlint_finds_nothing() -> None:
    # Programs that may be on this machine or not would find more or less.
    command = [str(tools.ensure("actionlint", Lines())), "-shellcheck=", "-pyflakes=", *map(str, WORKFLOWS)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr


def test_zizmor_finds_nothing() -> None:
    program = Path(sys.executable).with_name("zizmor")
    command = [str(program), "--offline", "--no-progress", str(GITHUB)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.parametrize("workflow", WORKFLOWS, ids=lambda path: path.stem)
def test_actions_are_pinned_by_commit_with_their_version_beside_it(workflow: Path) -> None:
    used = re.findall(r"uses: (\S+)(?: # (\S+))?", workflow.read_text())
    assert used
    for action, version in used:
        assert PINNED.fullmatch(action), action
        assert re.fullmatch(r"v\d+\.\d+\.\d+", version), action


def test_an_action_has_one_version() -> None:
    used = {item for path in WORKFLOWS for item in re.findall(r"uses: (\S+)@(\S+)", path.read_text())}
    assert len({name for name, _ in used}) == len(used)


@pytest.mark.parametrize("workflow", WORKFLOWS, ids=lambda path: path.stem)
def test_targets_of_make_exist(workflow: Path) -> None:
    makefile = (ROOT / "Makefile").read_text()
    jobs = yaml.safe_load(workflow.read_text())["jobs"].values()
    text = "\n".join(step.get("run", "") for job in jobs for step in job["steps"])
    for target in re.findall(r"^\s*make ([a-z-]+)", text, re.MULTILINE):
        assert re.search(rf"^{target}:", makefile, re.MULTILINE), target
    for path in re.findall(r"(?<=\s)(tests/\S+|deploy/\S+)", text):
        assert (ROOT / path).exists(), path


def test_the_version_of_uv_is_that_of_the_makefile() -> None:
    wanted = re.search(r"^UV_VERSION := (\S+)$", (ROOT / "Makefile").read_text(), re.MULTILINE)
    assert wanted is not None
    found = [version for path in WORKFLOWS for version in re.findall(r"uv==(\S+)", path.read_text())]
    assert set(found) == {wanted[1]}
