"""The command line imports the command that is asked for, and no other; also in an image without the extra `local`."""

from __future__ import annotations

import subprocess
import sys

import pytest

from support.suite.naming import lacking
from trellis_bundle.commands import COMMANDS, LOCAL

WITHOUT = "import sys; sys.modules['psutil'] = None; from trellis_bundle.command_line import main; main()"
AND_THEN = """
import sys
from trellis_bundle.command_line import main
try:
    main()
finally:
    print(*(name for name in sys.modules if name.startswith("trellis_bundle.")), file=sys.stderr)
"""


def run(*arguments: str, program: str = WITHOUT) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-c", program, *arguments], capture_output=True, text=True, timeout=60, check=False
    )


def test_everything_else_works_without_the_extra() -> None:
    done = run("version")
    assert (done.returncode, done.stderr) == (0, "")


def test_the_demo_says_how_to_get_it() -> None:
    done = run("demo", "--nodes", "3")
    assert (done.returncode, done.stdout) == (1, "")
    assert "trellis-wasm[local]" in done.stderr
    assert done.stderr.count("\n") == 1


@pytest.mark.parametrize("asked", ["run", "nodes", "crds", "dev", "migrate"])
def test_a_command_is_there_and_imports_none_of_the_others(asked: str) -> None:
    done = run(asked, "--help", program=AND_THEN)
    assert done.returncode == 0, done.stderr
    assert f"Usage: trellis {asked}" in done.stdout.replace("-c", "trellis")
    imported = set(done.stderr.split())
    modules = {name: f"trellis_bundle.{place.partition(':')[0]}" for name, place in COMMANDS.items()}
    assert {name for name, module in modules.items() if module in imported} == {asked}


@pytest.mark.parametrize("arguments", [["--help"], []])
def test_help_names_every_command(arguments: list[str]) -> None:
    said = run(*arguments, program=AND_THEN).stdout
    assert all(f" {name} " in said for name in [*COMMANDS, "version"])


def test_a_command_that_does_not_exist_is_answered_with_one_that_does() -> None:
    done = run("node", program=AND_THEN)
    assert done.returncode == 2
    assert lacking(done.stderr, "'node'", "'nodes'") == []


def test_what_needs_the_extra_is_a_command() -> None:
    assert COMMANDS.keys() >= LOCAL
