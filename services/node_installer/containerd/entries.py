"""One runtime of containerd's CRI plugin, and how it is written as TOML.

Pure: an entry in, TOML text out. Called by ``config`` and ``plan``.
Invariant: the text of :func:`render` parses to :meth:`Entry.value`, for any text in the options.
"""

from __future__ import annotations

import math
import re
import tomllib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, Final

_BARE = re.compile(r"[A-Za-z0-9_-]+")
_WHOLE_END: Final = 2**63


@dataclass(frozen=True, slots=True)
class Entry:
    """One runtime of the CRI plugin: the shim's absolute path on the node, and options for it."""

    handler: str
    runtime_type: str
    options: Mapping[str, str] = field(default_factory=dict)

    def value(self) -> dict[str, Any]:
        """Return the parsed table."""
        table: dict[str, Any] = {"runtime_type": self.runtime_type}
        if self.options:
            table["options"] = {key: option_value(text) for key, text in self.options.items()}
        return table


def render(entries: Iterable[Entry], plugin: str) -> str:
    """Return the TOML of entries for the section of Trellis."""
    lines: list[str] = []
    for entry in entries:
        table = f'plugins."{plugin}".containerd.runtimes.{_name(entry.handler)}'
        lines += [f"[{table}]", f"runtime_type = {_literal(entry.runtime_type)}"]
        if entry.options:
            lines.append(f"[{table}.options]")
            lines += [f"{_name(key)} = {_literal(option_value(text))}" for key, text in sorted(entry.options.items())]
    return "\n".join(lines) + "\n"


def option_value(text: str) -> object:
    """Return the value of an option's text: a TOML value if it is one (``true``, ``3``, ``"text"``), else the text.

    Numbers are those that containerd reads, of 64 bits; it rejects its whole configuration for any other. The Shim's
    options are a map of strings; its first implementation wrote them into the file unquoted.
    """
    if "\n" in text or "\r" in text:
        return text
    try:
        value = tomllib.loads(f"v = {text}")
    except (ValueError, RecursionError):  # a number of thousands of digits, thousands of lists
        return text
    plain = value.get("v")
    is_plain = all(map(_is_plain, plain)) if isinstance(plain, list) else _is_plain(plain) or _is_number(plain)
    return plain if set(value) == {"v"} and is_plain else text


def _is_plain(value: object) -> bool:
    return isinstance(value, str) or (isinstance(value, int) and -_WHOLE_END <= value < _WHOLE_END)


def _is_number(value: object) -> bool:
    return isinstance(value, float) and math.isfinite(value)


def _name(key: str) -> str:
    return key if _BARE.fullmatch(key) else _literal(key)


def _literal(value: object) -> str:
    match value:
        case bool():
            return "true" if value else "false"
        case int() | float():
            return repr(value)
        case list():
            return "[" + ", ".join(_literal(item) for item in value) + "]"
        case _:
            escaped = "".join(
                f"\\u{ord(char):04x}" if char in '"\\' or ord(char) < 32 or ord(char) == 127 else char
                for char in str(value)
            )
            return f'"{escaped}"'
