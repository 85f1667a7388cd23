"""The page of the command line: every command with its arguments and options.

Pure. In: the commands of click. Out: a page. Called by ``__main__``.
Invariant: independent of the machine: no terminal width, no defaults from the environment.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final

from trellis_cli.common.usage import usage_of
from trellis_tools.reference.markdown import GENERATED, cell, code, escaped, table

_ROOT: Final = "trellis"
_VALUES: Final = {"str": "TEXT", "int": "NUMBER"}
_INTRODUCTION: Final = """# Commands

Objects are named as in kubectl: `node NAME` or `node/NAME`, with plural and short names (`no`, `whc`, `app`, `svc`).
Lists take `-o table|wide|json|yaml|name`, other commands `-o table|json|yaml`. Lists of the state of a cluster take
[`-w`](../command.md#watch-a-list). Without `--namespace` all namespaces are read. Exit status: 0, 1 for a failure or a
problem that was found, 2 for a wrong option or setting.
[Settings](settings.md) have the addresses of the cluster and the bus: `TRELLIS_KUBECONFIG`, `TRELLIS_NATS_URL`.
"""


def commands_page(root: Any) -> str:  # noqa: ANN401 (a click command; typer hides click)
    """Return the page of a command and its subcommands."""
    return "\n".join([GENERATED, _INTRODUCTION, *_commands(root, _ROOT)])


def _commands(command: Any, name: str) -> Iterator[str]:  # noqa: ANN401 (as above)
    below = getattr(command, "commands", {})
    # A group with its own action has more parameters than the help option.
    if not below or (name != _ROOT and [param for param in command.params if param.name != "help"]):
        yield _command(command, name)
    for item in sorted(below):
        if not below[item].hidden:
            yield from _commands(below[item], f"{name} {item}")


def _command(command: Any, name: str) -> str:  # noqa: ANN401 (as above)
    parameters = [param for param in command.params if not getattr(param, "hidden", False) and param.name != "help"]
    arguments = [parameter for parameter in parameters if parameter.param_type_name == "argument"]
    usage = " ".join([name, *(usage_of(argument) for argument in arguments)])
    rows = [
        (_names(parameter), cell(parameter.help or "") + (" (required)" if parameter.required else ""))
        for parameter in parameters
    ]
    text = f"## {name}\n\n```\n{usage}\n```\n\n{_paragraphs(command.help or '')}\n"
    return text + (f"\n{table(('', ''), rows)}" if rows else "")


def _names(parameter: Any) -> str:  # noqa: ANN401 (as above)
    if parameter.param_type_name == "argument":
        return code(usage_of(parameter))
    found = [*parameter.opts, *parameter.secondary_opts]
    value = (
        ""
        if parameter.is_flag
        else f" {parameter.metavar or _VALUES.get(parameter.bare_type(), parameter.bare_type().upper())}"
    )
    return ", ".join(code(item) for item in found[:-1]) + (", " if len(found) > 1 else "") + code(f"{found[-1]}{value}")


def _paragraphs(text: str) -> str:
    """Return a help text as paragraphs, without the line breaks of the source."""
    parts = text.replace("\b", "").replace("\f", "").split("\n\n")
    return "\n\n".join(map(escaped, parts))
