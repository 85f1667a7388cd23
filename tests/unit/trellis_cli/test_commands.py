"""The command line imports the command that is asked for, and no other; also without `trellis-wasm-dev`."""

from __future__ import annotations

import os
import re
import subprocess
import sys

import pytest

from support.suite.naming import lacking
from trellis_cli.command_line import COMPLETE, all_commands
from trellis_cli.commands import COMMANDS, RENAMED, load
from trellis_cli.common.usage import usage_of

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
def test_a_command_of_the_other_distribution_names_it(asked: list[str]) -> None:
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
    modules = {name: f"trellis_cli.{item.place.partition(':')[0]}" for name, item in COMMANDS.items()}
    modules |= {"dev": "trellis_dev.commands.dev", "demo": "trellis_dev.demo.command"}
    assert {name for name, module in modules.items() if module in imported} == {asked}


@pytest.mark.parametrize("arguments", [["--help"], ["-h"], []])
def test_help_names_every_command_and_imports_none(arguments: list[str]) -> None:
    done = run(*arguments, program=AND_THEN)
    output = done.stdout + done.stderr
    assert not {f"trellis_cli.{command.place.partition(':')[0]}" for command in COMMANDS.values()} & set(
        done.stderr.split()
    )
    assert all(f" {name} " in output for name in [*COMMANDS, "version"])


def test_help_prints_patterns_as_they_are() -> None:
    assert lacking(run("events", "tail", "--help").stdout, "'node.ready.*'", "'*.failed.>'") == []


@pytest.mark.parametrize(
    ("asked", "named"),
    [
        (("node",), ('unknown command "node" for "trellis"', '"nodes"')),
        (("get",), ('unknown command "get" for "trellis"',)),
        (("bus", "passwords"), ('"trellis bus passwords"', 'renamed to "trellis bus secret"')),
        (("rollout", "stat"), ('unknown command "stat" for "trellis rollout"', '"status"')),
    ],
    ids=["similar to a command", "similar to none", "former", "of a group"],
)
def test_an_unknown_command_is_an_error_that_names_its_parent(asked: tuple[str, ...], named: tuple[str, ...]) -> None:
    done = run(*asked, program=AND_THEN)
    assert done.returncode == 2
    assert lacking(done.stderr, *named) == []


@pytest.mark.parametrize(
    ("asked", "path", "named"),
    [
        (("rollout", "history"), "trellis rollout history", ("missing argument", "NAME | shim/NAME")),
        (
            ("nodes", "--contexts", "a"),
            "trellis nodes",
            ('unknown option "--contexts" for "trellis nodes"', '"--context"'),
        ),
        (("--verson",), "trellis", ('unknown option "--verson" for "trellis"', '"--version"')),
        (("version", "now"), "trellis version", ("unexpected", "argument", "now")),
        (("nodes", "-o", "tables"), "trellis nodes", ("invalid value", "'tables'")),
        (("nods",), "trellis", ('unknown command "nods" for "trellis"', '"nodes"')),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_all_usage_errors_have_one_form(asked: tuple[str, ...], path: str, named: tuple[str, ...]) -> None:
    done = run(*asked)
    assert (done.returncode, done.stdout) == (2, "")
    usage, hint, blank, error = done.stderr.splitlines()
    assert usage.startswith(f"Usage: {path} ")
    assert (blank, lacking(hint, "-h")) == ("", [])
    assert error.startswith("Error: ")
    assert error.removeprefix("Error: ")[0].islower()
    assert not error.endswith(".")
    assert lacking(error, *named) == []


def test_an_option_without_its_value_is_one_line() -> None:
    """The parser of typer does not know the command then, so there is no usage line."""
    done = run("nodes", "--context")
    assert (done.returncode, done.stderr.count("\n")) == (2, 1)
    assert lacking(done.stderr, "Error: option '--context'", "argument") == []


def test_arguments_are_shown_as_in_kubectl_and_without_types_of_python() -> None:
    commands = [all_commands()]
    for command in commands:
        commands += getattr(command, "commands", {}).values()
    arguments = [item for command in commands for item in command.params if item.param_type_name == "argument"]
    assert len(arguments) > 20
    usages = {usage_of(item) for item in arguments}
    assert usages >= {"DIRECTORY", "[KIND]", "[SERVICE...]", "(NAME | shim/NAME)", "(KIND NAME | KIND/NAME)"}
    help_of = run("check", "--help", program=AND_THEN).stdout
    assert lacking(help_of, "trellis check [OPTIONS] [SERVICE...]") == []
    assert "<list" not in help_of


def test_help_imports_neither_models_nor_terminals() -> None:
    """They are what takes time: the limit is 0.4 s of processor time."""
    program = AND_THEN.replace('startswith(("trellis_cli.", "trellis_dev."))', 'startswith("")')
    loaded = set(run("--help", program=program).stderr.split())
    assert not loaded & {"pydantic", "rich", "asyncio", "aiohttp", "nats", "yaml", "importlib.metadata"}


def test_a_page_of_wasmcloud_v2_imports_neither_the_bus_nor_the_models_of_crds() -> None:
    """They take longer to import than all other modules of the page."""
    program = "import sys; from trellis_cli.commands import load; load('explain'); import trellis_cli.v2.page; "
    done = subprocess.run(
        [sys.executable, "-c", f"{program}print(*sys.modules)"], capture_output=True, text=True, check=True
    )
    assert not {*done.stdout.split()} & {"faststream", "nats", "trellis.crds.kinds", "trellis.provisioning.shims"}


@pytest.mark.parametrize("name", COMMANDS)
def test_the_help_of_a_command_begins_with_its_line_in_the_list(name: str) -> None:
    command = load(name)
    assert " ".join(command.help.partition("\n\n")[0].split()) == COMMANDS[name].help
    assert len(COMMANDS[name].help) <= 58, "a line of a terminal"


@pytest.mark.parametrize("arguments", [["version"], ["--version"]])
def test_the_version_is_printed(arguments: list[str]) -> None:
    done = run(*arguments)
    assert done.returncode == 0
    assert re.fullmatch(r"\d+\.\d+\.\d+\S*\n", done.stdout)


@pytest.mark.parametrize(("former", "present"), RENAMED.items())
def test_a_former_command_is_refused_with_the_present_one(former: str, present: str) -> None:
    done = run(former)
    assert (done.returncode, done.stdout) == (2, "")
    assert lacking(done.stderr, former, f"trellis {present}") == []


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish", "powershell"])
def test_a_shell_gets_its_completion_script(shell: str) -> None:
    done = run("completion", shell)
    assert (done.returncode, done.stderr) == (0, "")
    assert COMPLETE in done.stdout


def completed(words: str, *, word: int) -> list[str]:
    environment = {**os.environ, COMPLETE: "complete_bash", "COMP_WORDS": words, "COMP_CWORD": str(word)}
    done = subprocess.run(
        [sys.executable, "-m", "trellis_cli"], capture_output=True, text=True, timeout=60, check=False, env=environment
    )
    assert done.stderr == ""
    return done.stdout.split()


def test_commands_options_and_kinds_are_completed() -> None:
    assert completed("trellis no", word=1) == ["nodes"]
    assert "--no-headers" in completed("trellis nodes --no", word=2)
    assert completed("trellis explain sh", word=2) == ["shim"]
    assert completed("trellis explain secret", word=2) == ["secretgrant"], "a kind without a page is not completed"
    assert completed("trellis trace secret", word=2) == ["secret"]
    assert completed("trellis top contr", word=2) == ["controller"]
    assert completed("trellis circuit-breaker close node", word=3) == ["node-watcher"]
    assert "history" in completed("trellis rollout ", word=2)


def test_words_of_the_plugin_are_completed_by_kubectl() -> None:
    program = "from trellis_cli.kubectl_complete import main; main()"
    assert run("rollout", "st", program=program).stdout == "status\n:4\n"
    assert run("explain", "", program=program).stdout.splitlines()[:2] == ["node", "shim"]
    assert "rollout" in run(program=program).stdout.split()
    nothing = run("dead", "x", program=program)
    assert (nothing.returncode, nothing.stdout, nothing.stderr) == (0, ":4\n", "")


def test_without_a_cluster_no_name_is_completed() -> None:
    assert completed("trellis rollout status --kubeconfig /nowhere ", word=5) == []


@pytest.mark.parametrize("arguments", ["--help", "crds --help", "completion bash"])
def test_output_whose_reader_has_ended_ends_quietly(arguments: str) -> None:
    command = f"{sys.executable} -m trellis_cli {arguments} | true; exit ${{PIPESTATUS[0]}}"
    done = subprocess.run(["bash", "-c", command], capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode in {0, 141}
    assert done.stderr == ""


def test_no_summary_of_a_command_is_cut_off() -> None:
    groups = [name for name in COMMANDS if getattr(load(name), "commands", None)]
    assert "rollout" in groups
    for name in groups:
        assert [line for line in run(name, "--help").stdout.splitlines()[1:] if line.endswith("...")] == []


@pytest.mark.parametrize("command", ["explain", "trace"])
def test_the_usage_of_a_command_for_one_object_has_one_object(command: str) -> None:
    [usage] = [line for line in run(command, "--help").stdout.splitlines() if line.startswith("Usage: ")]
    assert "..." not in usage
    assert run(command, "node", "a", "b").returncode == 2


@pytest.mark.parametrize(("redirection", "reason"), [(">/dev/full", "space"), (">&-", "closed")])
def test_output_that_cannot_be_written_is_one_error(redirection: str, reason: str) -> None:
    command = f"{sys.executable} -m trellis_cli version {redirection}"
    done = subprocess.run(["bash", "-c", command], capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 1
    assert done.stderr.count("\n") == 1
    assert lacking(done.stderr, "Error", "standard output", reason) == []


@pytest.mark.parametrize("arguments", ["nodes -o table-of-all", "run no-such-service", "explain node"])
def test_an_invalid_argument_is_an_error_of_the_command_and_not_of_a_library(arguments: str) -> None:
    done = run(*arguments.split())
    assert (done.returncode, done.stdout) == (2, "")
    error = done.stderr.splitlines()[-1]
    assert error.startswith("Error: ")
    assert "Value error" not in error
