"""Rejections of modules: reasons that are used in conditions, and messages for the author of the module.

Raised by ``binary``, ``instructions``, ``abi`` and ``modules``. Invariant: a message names the part of the module and
the resolution; it is one printable line, for any names in the module.
"""

from __future__ import annotations

from enum import StrEnum
from typing import Final

_LONGEST_MESSAGE: Final = 600


class RefusalReason(StrEnum):
    """Reason why a module is rejected."""

    NOT_WASM = "NotWasm"
    UNSUPPORTED_ABI = "UnsupportedAbi"
    MISSING_EXPORT = "MissingExport"
    WRONG_TYPE = "WrongType"
    UNKNOWN_IMPORT = "UnknownImport"
    UNSAVABLE_STATE = "UnsavableState"
    RESERVED_NAME = "ReservedName"
    TOO_LARGE = "TooLarge"
    COMPILER_LIMIT_EXCEEDED = "CompilerLimitExceeded"


class ModuleRefused(Exception):  # noqa: N818 (a result about a module, not an error of the host)
    """A rejected module. ``reason``: for the condition; ``message``: problem and resolution in one line."""

    def __init__(self, reason: RefusalReason, message: str) -> None:
        self.reason: Final = reason
        self.message: Final = printable(message, _LONGEST_MESSAGE)
        super().__init__(reason, self.message)

    def __str__(self) -> str:
        return f"{self.reason}: {self.message}"


def printable(text: str, most: int) -> str:
    """Return ``text`` as one line of at most ``most`` characters, with control characters replaced by spaces."""
    line = "".join(character if character.isprintable() else " " for character in text[: most + 1])
    return line if len(text) <= most else line[: most - 1] + "…"
