"""``trellis completion``: the shell script for completion of commands, options and names of objects.

In: the name of a shell. Out: its script. Called by the command line; the script calls ``trellis`` at each completion.
"""

from __future__ import annotations

from enum import StrEnum
from typing import Annotated

import typer
from typer._completion_shared import get_completion_script

from trellis_cli.common.output import print_text


class Shell(StrEnum):
    """Shells with completion."""

    BASH = "bash"
    ZSH = "zsh"
    FISH = "fish"
    POWERSHELL = "powershell"


def completion(shell: Annotated[Shell, typer.Argument(help="bash, zsh, fish or powershell")]) -> None:
    """Print the completion script of a shell.

    Bash: `source <(trellis completion bash)`. Names of objects and namespaces are completed from the cluster of the
    kubeconfig.
    """
    print_text(get_completion_script(prog_name="trellis", complete_var="_TRELLIS_COMPLETE", shell=shell.value))
