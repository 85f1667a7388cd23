"""The command line imports the command that is asked for, and no other; also without `trellis-wasm-dev`."""

from __future__ import annotations

import subprocess
import sys

import pytest

from support.suite.naming import lacking
from trellis_cli.commands import ADDED, COMMANDS, RENAMED

WITHOUT = (
    "import importlib.metadata; importlib.metadata.entry_points = lambda **asked: (); "
    "from trellis_cli.command_line import main; main()"
)
AND_THEN = """
import sys
from trellis_cli.command_line import main
try:
    main()
finally:
    print(*(name for name in sys.modules if name.startswith(("trellis_cli.", "trellis_dev."))), file=sys.stderr)
"""


def run(*arguments: str, program: str = WITHOUT) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-c", program, *arguments], capture_output=True, text=True, timeout=60, check=False
    )


def test_everything_else_works_without_the_other_distribution() -> None:
    done = run("version")
    assert (done.returncode, done.stderr) == (0, "")


@pytest.mark.parametrize(("former", "present"), RENAMED.items())
def test_a_former_name_is_refused_with_the_present_one(former: str, present: str) -> None:
    done = run(former, "list")
    assert (done.returncode, done.stdout) == (2, "")
    assert f"trellis {present}" in done.stderr


@pytest.mark.parametrize("asked", [["demo", "--nodes", "3"], ["dev", "up"]])
def test_what_is_of_the_other_distribution_names_it(asked: list[str]) -> None:
    done = run(*asked)
    assert (done.returncode, done.stdout) == (1, "")
    assert "pip install trellis-wasm-dev" in done.stderr
    assert done.stderr.count("\n") == 1


def test_a_bus_of_ones_own_names_it_too() -> None:
    done = run("run", "node-watcher", "--own-nats", "somewhere")
    assert (done.returncode, done.stdout) == (2, "")
    assert "--own-nats" in done.stderr
    assert "pip install trellis-wasm-dev" in done.stderr


@pytest.mark.thorough
@pytest.mark.parametrize("asked", ["run", "nodes", "crds", "dev", "migrate"])
def test_a_command_is_there_and_imports_none_of_the_others(asked: str) -> None:
    done = run(asked, "--help", program=AND_THEN)
    assert done.returncode == 0, done.stderr
    assert f"Usage: trellis {asked}" in done.stdout.replace("-c", "trellis")
    imported = set(done.stderr.split())
    modules = {name: f"trellis_cli.{place.partition(':')[0]}" for name, place in COMMANDS.items()}
    modules |= {"dev": "trellis_dev.commands.dev", "demo": "trellis_dev.demo.command"}
    assert {name for name, module in modules.items() if module in imported} == {asked}


@pytest.mark.parametrize("arguments", [["--help"], []])
def test_help_names_every_command(arguments: list[str]) -> None:
    said = run(*arguments, program=AND_THEN).stdout
    assert all(f" {name} " in said for name in [*COMMANDS, *ADDED, "version"])


def test_a_command_that_does_not_exist_is_answered_with_one_that_does() -> None:
    done = run("node", program=AND_THEN)
    assert done.returncode == 2
    assert lacking(done.stderr, "'node'", "'nodes'") == []
