"""Binary components with imports and exports, without a toolchain.

In: names. Out: bytes. Called by tests. Source: Binary.md of the component model.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

HEADER: Final = b"\x00asm\x0d\x00\x01\x00"


def number(value: int) -> bytes:
    """Return an unsigned LEB128 number."""
    found = bytearray()
    while True:
        value, low = value >> 7, value & 0x7F
        found.append(low | (0x80 if value else 0))
        if not value:
            return bytes(found)


def named(name: str) -> bytes:
    """Return a name of an import or export."""
    raw = name.encode()
    return b"\x00" + number(len(raw)) + raw


def item(name: str, kind: int = 5) -> bytes:
    """Return an import of a kind: core module, function, value, type, component, instance."""
    kinds = {0: b"\x00\x11\x00", 2: b"\x02\x00\x00", 3: b"\x03\x01"}
    return named(name) + kinds.get(kind, bytes([kind, 0]))


def exported(name: str) -> bytes:
    """Return an export of an instance."""
    return named(name) + b"\x05\x00\x00"


def section(kind: int, items: Sequence[bytes]) -> bytes:
    """Return a section of items."""
    body = number(len(items)) + b"".join(items)
    return bytes([kind]) + number(len(body)) + body


def component(imports: Sequence[str] = (), exports: Sequence[str] = ()) -> bytes:
    """Return a component with imported and exported instances."""
    parts = [section(10, list(map(item, imports)))] if imports else []
    parts += [section(11, list(map(exported, exports)))] if exports else []
    return HEADER + b"".join(parts)
