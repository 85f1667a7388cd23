"""Usage and errors of commands as in kubectl: arguments without types of Python, unknown words with their parent.

In: commands of typer. Out: the same commands, worded so. Called when a command is loaded and run. Source: the usage
lines of kubectl, such as ``rollout status (TYPE NAME | TYPE/NAME)``, and its error ``unknown command "x" for
"kubectl"``.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from difflib import get_close_matches
from typing import Any, Final

import typer
from typer.core import TyperArgument, TyperGroup

RENAMED: Final = {"trellis bus passwords": "trellis bus secret"}
"""Current commands by their former names in a group, which are rejected."""


def usage_of(argument: Any) -> str:  # noqa: ANN401 (click's types in typer are private)
    """Return an argument for a usage line: ``NAME``, ``[NAME]``, ``[NAME...]`` or ``(NAME | KIND/NAME)``."""
    name = str(argument.metavar or argument.name.upper())
    if " | " in name:  # alternatives for one object, whatever the number of words
        return f"({name})" if argument.required else f"[{name}]"
    name += "..." if argument.nargs != 1 else ""
    return name if argument.required else f"[{name}]"


class Argument(TyperArgument):
    """An argument; its name in help and errors is upper-case, its type is not shown."""

    @property
    def display_name_raw(self) -> str:
        """The name in errors."""
        return self.metavar or str(self.name).upper()

    def get_usage_pieces(self, ctx: Any) -> list[str]:  # noqa: ANN401 (as above)
        """Return the words of the usage line."""
        del ctx
        return [usage_of(self)]

    def get_help_record(self, ctx: Any) -> tuple[str, str] | None:  # noqa: ANN401 (as above)
        """Return the row of the help, None if the argument is hidden."""
        record = super().get_help_record(ctx)
        return record and (usage_of(self), record[1])


class CommandGroup(TyperGroup):
    """A group of commands; an unknown one is an error that names the group."""

    def resolve_command(self, ctx: Any, args: list[str]) -> Any:  # noqa: ANN401 (as above)
        """Return the name, the command and its arguments."""
        name = args[0]
        if not ctx.resilient_parsing and not name.startswith("-") and self.get_command(ctx, name) is None:
            if (former := f"{ctx.command_path} {name}") in RENAMED:
                ctx.fail(f'command "{former}": renamed to "{RENAMED[former]}"')
            ctx.fail(_unknown("command", name, ctx, get_close_matches(name, list(self.commands))))
        return super().resolve_command(ctx, args)


@contextmanager
def usage_errors() -> Iterator[None]:
    """Give the usage errors of typer the form of all errors: in lower case, without a period.

    The error keeps the usage line and the hint of its command, and exit status 2. An unknown option is worded like an
    unknown command. An invalid value has no prefix of pydantic, which typer uses.
    """
    try:
        yield
    except typer.TyperException as error:
        if "\n" not in error.message:  # else it is the help of a group without a command
            text = _text_of(error)
            error.format_message = lambda: text  # type: ignore[method-assign]
        raise


def _text_of(error: Any) -> str:  # noqa: ANN401 (as above)
    if hasattr(error, "possibilities"):  # no such option; typer has escaped control characters in its name
        return _unknown("option", error.message.partition(": ")[2], error.ctx, error.possibilities or ())
    text = str(error.format_message()).replace("Value error, ", "", 1).removesuffix(".")
    return text[:1].lower() + text[1:]


def _unknown(kind: str, name: str, ctx: Any, similar: Sequence[str]) -> str:  # noqa: ANN401 (as above)
    names = " or ".join(f'"{item}"' for item in similar)
    return f'unknown {kind} "{name}" for "{ctx.command_path}"' + (f"; did you mean {names}?" if names else "")


def word_arguments(command: Any) -> None:  # noqa: ANN401 (as above)
    """Word the arguments of a command and of those below it."""
    for parameter in command.params:
        if type(parameter) is TyperArgument:
            parameter.__class__ = Argument  # typer has no option for the class of an argument
    for below in getattr(command, "commands", {}).values():
        word_arguments(below)
