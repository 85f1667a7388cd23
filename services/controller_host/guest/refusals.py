"""Why a module is not run: reasons that become condition reasons, messages for who built the module.

Raised by ``binary``, ``instructions``, ``abi`` and ``modules``. Invariant: a message names the thing in the module and
says what to do; it is one printable line, whatever the module's own names hold.
"""

from __future__ import annotations

from enum import StrEnum
from typing import Final

_LONGEST_MESSAGE: Final = 600


class RefusalReason(StrEnum):
    """What is the matter with a module."""

    NOT_WASM = "NotWasm"
    UNSUPPORTED_ABI = "UnsupportedAbi"
    MISSING_EXPORT = "MissingExport"
    WRONG_TYPE = "WrongType"
    UNKNOWN_IMPORT = "UnknownImport"
    UNSAVABLE_STATE = "UnsavableState"
    RESERVED_NAME = "ReservedName"
    TOO_LARGE = "TooLarge"
    TOO_COSTLY = "TooCostly"


class ModuleRefused(Exception):  # noqa: N818 (an answer about a module, and no fault of ours)
    """A module that is not run. ``reason``: for the condition; ``message``: what it has and what to do, one line."""

    def __init__(self, reason: RefusalReason, message: str) -> None:
        self.reason: Final = reason
        self.message: Final = printable(message, _LONGEST_MESSAGE)
        super().__init__(reason, self.message)

    def __str__(self) -> str:
        return f"{self.reason}: {self.message}"


def printable(text: str, most: int) -> str:
    """Return ``text`` as one line of at most ``most`` characters; what a terminal or a log would obey is replaced."""
    line = "".join(character if character.isprintable() else " " for character in text[: most + 1])
    return line if len(text) <= most else line[: most - 1] + "…"
