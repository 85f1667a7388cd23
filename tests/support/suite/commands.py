"""Commands as pages show them: whether they exist, with their options."""

from __future__ import annotations

from functools import cache
from typing import Any

from trellis_cli.command_line import all_commands


@cache
def known_commands() -> Any:
    """Return the command line with all commands; it is built once."""
    return all_commands()


def expect_command(line: str) -> None:
    """Fail unless there is such a command with these options; ``line`` is what stands after ``trellis``."""
    command = known_commands()
    arguments = line.split()
    while arguments and not arguments[0].startswith("-") and hasattr(command, "commands"):
        found = command.commands.get(arguments.pop(0))
        assert found is not None, f"no command: trellis {line}"
        command = found
    options = {option for parameter in command.params for option in parameter.opts}
    missing = {argument.partition("=")[0] for argument in arguments if argument.startswith("-")} - options
    assert not missing, f"trellis {line}: there is no {', '.join(sorted(missing))}"
