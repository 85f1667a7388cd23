"""The module that a canary pod runs: a WASI command that prints one line and exits with status 0.

Pure. Out: the module's bytes; ``python -m node_installer.domain.canary`` writes them, when the image is built. Written
manually, because a compiler for these 190 bytes would be a thousand times the size. Source: WebAssembly 1.0, section 5
(binary format); WASI preview 1, ``fd_write`` and ``proc_exit``. Invariant: the status is 0 only if a runtime has a
memory, calls the host, and the host wrote the line.
"""

from __future__ import annotations

import sys
from collections.abc import Iterable
from typing import Final

LINE: Final = b"trellis canary: wasm runs on this node\n"
_HOST: Final = b"wasi_snapshot_preview1"
_I32, _FUNCTION, _EMPTY, _MEMORY = 0x7F, 0x60, 0x40, 0x02
_TYPE, _IMPORT, _FUNCTIONS, _MEMORIES, _EXPORT, _CODE, _DATA = 1, 2, 3, 5, 7, 10, 11
_IF, _END, _CALL, _GET, _TEE, _CONST = 0x04, 0x0B, 0x10, 0x20, 0x22, 0x41
_VECTOR_AT, _WRITTEN_AT, _TEXT_AT = 0, 8, 16
_STANDARD_OUTPUT: Final = 1


def module() -> bytes:
    """Return the module: ``status = fd_write(1, {LINE}); if status: proc_exit(status)``."""
    types = [
        _signature([_I32] * 4, [_I32]),
        _signature([_I32], []),
        _signature([], []),
    ]
    imports = [_sized(_HOST) + _sized(name) + bytes([0, kind]) for kind, name in enumerate((b"fd_write", b"proc_exit"))]
    exports = [_sized(b"memory") + bytes([_MEMORY, 0]), _sized(b"_start") + bytes([0, len(imports)])]
    calls_write = [_CONST, _STANDARD_OUTPUT, _CONST, _VECTOR_AT, _CONST, 1, _CONST, _WRITTEN_AT, _CALL, 0]
    leaves_if_failed = [_TEE, 0, _IF, _EMPTY, _GET, 0, _CALL, 1, _END]
    body = bytes([1, 1, _I32, *calls_write, *leaves_if_failed, _END])
    vector = _TEXT_AT.to_bytes(4, "little") + len(LINE).to_bytes(4, "little")
    memory = vector.ljust(_TEXT_AT, b"\0") + LINE
    sections = {
        _TYPE: types,
        _IMPORT: imports,
        _FUNCTIONS: [bytes([2])],
        _MEMORIES: [bytes([0, 1])],
        _EXPORT: exports,
        _CODE: [_sized(body)],
        _DATA: [bytes([0, _CONST, _VECTOR_AT, _END]) + _sized(memory)],
    }
    return b"\0asm\1\0\0\0" + b"".join(bytes([number]) + _sized(_many(items)) for number, items in sections.items())


def _signature(takes: list[int], gives: list[int]) -> bytes:
    return bytes([_FUNCTION, len(takes), *takes, len(gives), *gives])


def _sized(content: bytes) -> bytes:
    return _number(len(content)) + content


def _many(items: Iterable[bytes]) -> bytes:
    listed = list(items)
    return _number(len(listed)) + b"".join(listed)


def _number(value: int) -> bytes:
    """Return an unsigned LEB128 number."""
    encoded = bytearray()
    while value > 0x7F:
        encoded.append(value & 0x7F | 0x80)
        value >>= 7
    return bytes(encoded) + bytes([value])


if __name__ == "__main__":
    sys.stdout.buffer.write(module())
