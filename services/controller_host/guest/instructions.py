"""Search for instructions that change tables in a function.

In: the bytes of an expression. Out: the name of the first instruction that a snapshot does not cover, or None. Called
by ``binary`` and ``rewriting``. One regular expression skips all other instructions at the speed of C: a Go module has
a million instructions, and this can run in a process with an event loop.
Invariant: an unknown instruction is rejected, so that the search stays aligned; the engine validates the module
afterwards. Source: WebAssembly core specification, "Binary Format".
"""

from __future__ import annotations

import re
from typing import Final

from controller_host.guest.reading import Malformed, Reader

_LEB: Final = rb"[\x80-\xff]*+[\x00-\x7f]"
_MEMORY: Final = _LEB + _LEB  # alignment, offset

_HARMLESS: Final = re.compile(
    rb"(?:"
    rb"[\x00\x01\x05\x0b\x0f\x1a\x1b\x45-\xc4\xd1]++"  # no operands
    rb"|[\x02-\x04\x0c\x0d\x10\x12\x20-\x25\x3f-\x42\xd0\xd2]" + _LEB +
    rb"|[\x28-\x3e]" + _MEMORY +
    rb"|[\x11\x13]" + _LEB + _LEB +  # call_indirect, return_call_indirect
    rb"|\x43.{4}|\x44.{8}"  # f32.const, f64.const
    rb"|\x1c\x01."  # select with a type
    rb"|\xfc(?:[\x00-\x07]|[\x08\x0a]" + _LEB + _LEB + rb"|[\x09\x0b\x0d\x10]" + _LEB + rb")"
    rb"|\xfd(?:[\x00-\x0b\x5c\x5d]" + _MEMORY +
    rb"|[\x0c\x0d].{16}|[\x15-\x22].|[\x54-\x5b]" + _MEMORY + rb"."
    rb"|[\x0e-\x14\x23-\x53\x5e-\x7f]|[\x80-\xff]\x01|[\x80-\x93]\x02)"
    rb")*+",
    re.DOTALL,
)  # fmt: skip
_CONSTANT: Final = re.compile(
    rb"(?:[\x23\x41\x42\xd0\xd2]" + _LEB + rb"|\x43.{4}|\x44.{8}|\xfd\x0c.{16}|[\x6a-\x6c\x7c-\x7e])*+\x0b",
    re.DOTALL,
)
_CHANGES_TABLES: Final = {12: "table.init", 14: "table.copy", 15: "table.grow", 17: "table.fill"}
_BR_TABLE: Final = 0x0E
_TABLE_SET: Final = 0x26
_PREFIX_FC: Final = 0xFC


def table_change(reader: Reader) -> str | None:
    """Read instructions up to the reader's end; return the name of one that changes a table, if there is any.

    Raises:
        Malformed: An instruction of an unsupported proposal, or invalid bytes.
    """
    while True:
        match = _HARMLESS.match(reader.data, reader.at, reader.end)
        assert match is not None  # can be empty
        reader.at = match.end()
        if reader.done():
            return None
        opcode = reader.byte()
        if opcode == _BR_TABLE:
            for _ in range(reader.u32() + 1):
                reader.u32()
        elif opcode == _TABLE_SET:
            return "table.set"
        elif opcode == _PREFIX_FC:
            operation = reader.u32()
            if operation in _CHANGES_TABLES:
                return _CHANGES_TABLES[operation]
            raise Malformed(f"it has the instruction 0xfc {operation}, which is not supported")
        else:
            raise Malformed(f"it has the instruction {opcode:#04x}, which is not supported")


def constant(reader: Reader) -> bytes:
    """Read a constant expression; return it without its end.

    Raises:
        Malformed: The bytes are not a constant expression, or use an unsupported proposal.
    """
    match = _CONSTANT.match(reader.data, reader.at, reader.end)
    if match is None:
        raise Malformed("it has a constant expression that is not supported")
    expression = reader.data[reader.at : match.end() - 1]
    reader.at = match.end()
    return expression


def i32_constant(expression: bytes) -> int | None:
    """Return the value of an expression of a single ``i32.const``, unsigned; None for any other expression."""
    if not expression.startswith(b"\x41"):
        return None
    value = shift = 0
    for at, byte in enumerate(expression[1:], start=2):
        value |= (byte & 0x7F) << shift
        shift += 7
        if byte < 0x80:
            if at != len(expression):
                return None
            return (value - (1 << shift) if byte & 0x40 else value) & 0xFFFF_FFFF
    return None
