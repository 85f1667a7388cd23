"""What another distribution adds to the command line, and how to get it where it is not installed.

In: a group of entry points and a name in it. Out: what stands there. Called for commands and flags that need a control
plane or a server on this machine: the distribution ``trellis-wasm-dev`` has them, which no cluster needs.
Source: the specification of entry points (packaging.python.org).
"""

from __future__ import annotations

from typing import Any, Final

COMMANDS: Final = "trellis.commands"
"""Group of commands: a Typer application, or a function."""
RUN: Final = "trellis.run"
"""Group of what flags of ``trellis run`` need."""
HOW: Final = "pip install trellis-wasm-dev"


def addition(group: str, name: str) -> Any | None:  # noqa: ANN401 - what it is the group says
    """Return what is installed under a name, None if nothing is."""
    from importlib.metadata import entry_points  # noqa: PLC0415 - takes longer than all of help

    for found in entry_points(group=group, name=name):
        return found.load()
    return None
