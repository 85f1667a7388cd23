"""Extensions of the command line by another distribution, and how to install it.

In: a group of entry points and a name in it. Out: the object of the entry point. Called for commands and flags that
need a local control plane or server: these are in the distribution ``trellis-wasm-dev``, which no cluster needs.
Source: the specification of entry points (packaging.python.org).
"""

from __future__ import annotations

from typing import Any, Final

COMMANDS: Final = "trellis.commands"
"""Group of commands: a Typer application, or a function."""
RUN: Final = "trellis.run"
"""Group of extensions for flags of ``trellis run``."""
HOW: Final = "`make install` in a clone, or `pip install trellis-wasm-dev`"


def addition(group: str, name: str) -> Any | None:  # noqa: ANN401 - defined by the group
    """Return the object of an installed entry point, None if there is none."""
    from importlib.metadata import entry_points  # noqa: PLC0415 - slower than the rest of the help

    for found in entry_points(group=group, name=name):
        return found.load()
    return None
