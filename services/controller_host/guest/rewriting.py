"""Prepares a module for snapshots: checks it, exports its mutable globals, removes its start function.

In: the original bytes. Out: a :class:`Rewritten`, or :class:`ModuleRefused` with the resolution. Pure; called by
``modules``, once per digest. Invariant: the only state of an accepted module is one memory and the listed globals, so
that a snapshot of these is complete (ADR 51).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from controller_host.guest import abi, bounds, reading
from controller_host.guest.binary import (
    CUSTOM,
    EXPORT,
    MAGIC,
    START,
    WASM_PAGE,
    Binary,
    FunctionType,
    Section,
    read,
)
from controller_host.guest.refusals import ModuleRefused, RefusalReason

REVISION: Final = 1
"""Incremented when the rewriting changes, which invalidates cached modules."""

START_EXPORT: Final = f"{abi.RESERVED}start"
MOST_MODULE_BYTES: Final = 64 << 20

_SAVED_TYPES: Final = frozenset({"i32", "i64", "f32", "f64"})
_SHARED, _MEMORY64, _PAGE_SIZE = 2, 4, 8


@dataclass(frozen=True, slots=True)
class Rewritten:
    """A module that can be compiled.

    ``globals``: the types of its mutable globals, which it exports as :func:`global_export` of 0, 1, …; ``data_span``:
    range of bytes in memory that can contain initial data; ``version``: of the ABI, None if only the running module
    can return it.
    """

    wasm: bytes
    globals: tuple[str, ...]
    exports: frozenset[str]
    memory_pages: int
    data_span: tuple[int, int]
    version: int | None


def global_export(number: int) -> str:
    """Return the name of the export of a mutable global."""
    return f"{abi.RESERVED}global:{number}"


def rewrite(wasm: bytes) -> Rewritten:
    """Check and rewrite a module.

    Raises:
        ModuleRefused: The module is rejected, with reason and message.
    """
    if len(wasm) > MOST_MODULE_BYTES:
        raise ModuleRefused(
            RefusalReason.TOO_LARGE,
            f"the module has {len(wasm)} bytes, the maximum is {MOST_MODULE_BYTES}: strip it (`wasm-opt -Oz`, "
            "`-s`), or build it with fewer dependencies",
        )
    try:
        binary = read(wasm)
        _check_start(binary)
    except reading.TooMany as error:
        raise ModuleRefused(RefusalReason.TOO_LARGE, str(error)) from error
    except reading.Malformed as error:
        raise ModuleRefused(RefusalReason.NOT_WASM, f"this is not a supported module: {error}") from error
    _check_imports(binary)
    _check_exports(binary)
    _check_state(binary)
    _check_sizes(binary)
    mutable = [(index, kind) for index, (kind, changes) in enumerate(binary.globals) if changes]
    return Rewritten(
        wasm=_written(binary, [index for index, _ in mutable]),
        globals=tuple(kind for _, kind in mutable),
        exports=frozenset(
            name for name in (*abi.REQUIRED, *abi.OPTIONAL) if name in binary.exports
        ) | ({START_EXPORT} if binary.start is not None else frozenset()),
        memory_pages=binary.memories[0][1],
        data_span=_data_span(binary),
        version=_version(binary),
    )  # fmt: skip


def _check_start(binary: Binary) -> None:
    """Reject an invalid start function, because the engine does not see the removed section."""
    if binary.start is None:
        return
    numbers = [section.id for section in binary.sections if section.id != CUSTOM]
    at = numbers.index(START)
    if any(number > START for number in numbers[:at]) or any(number < START for number in numbers[at:]):
        raise reading.Malformed("its start section is at the wrong position")
    if binary.start >= len(binary.functions) or binary.functions[binary.start] != FunctionType((), ()):
        raise reading.Malformed("its start function does not exist, or has parameters or results")


def _data_span(binary: Binary) -> tuple[int, int]:
    start, end = binary.data_span or (0, 0)
    size = binary.memories[0][1] * WASM_PAGE
    return min(start, size), min(end, size)


def _check_imports(binary: Binary) -> None:
    for entry in binary.imports:
        full = f"{entry.module}.{entry.name}"
        if entry.kind in {"global", "table", "memory"}:
            raise _unsavable(f"it imports the {entry.kind} {full}: define it in the module")
        known = abi.IMPORTS.get(entry.module, {}).get(entry.name)
        if known is None or entry.kind != "function":
            modules = " and ".join(f"`{name}`" for name in abi.IMPORTS)
            raise ModuleRefused(
                RefusalReason.UNKNOWN_IMPORT,
                f"it imports {full}, which the host does not provide: import only functions of {modules}, listed in "
                "docs/controller-abi.md",
            )
        if entry.type != known:
            raise ModuleRefused(RefusalReason.WRONG_TYPE, f"it imports {full} as {entry.type}; it has to be {known}")


def _check_exports(binary: Binary) -> None:
    for name in binary.exports:
        if name.startswith(abi.RESERVED):
            raise ModuleRefused(
                RefusalReason.RESERVED_NAME, f"it exports {name}: the prefix {abi.RESERVED} is reserved for the host"
            )
    if "_start" in binary.exports and "reconcile" not in binary.exports:
        raise _missing("it exports _start, so it is a command: build a reactor (`-mexec-model=reactor`, "
                       "`-buildmode=c-shared`, crate type `cdylib`) that exports alloc and reconcile")  # fmt: skip
    if binary.exports.get("memory", ("", 0))[0] != "memory" or not binary.memories:
        raise _missing("it exports no memory under the name `memory`, which the host requires for requests")
    for name, type_ in {**abi.REQUIRED, **abi.OPTIONAL}.items():
        kind, index = binary.exports.get(name, ("", 0))
        if not kind and name in abi.REQUIRED:
            raise _missing(f"it does not export {name}, a function {type_}")
        if not kind:
            continue
        actual = binary.functions[index] if kind == "function" and index < len(binary.functions) else None
        if actual != type_:
            raise ModuleRefused(
                RefusalReason.WRONG_TYPE, f"it exports {name} as {actual or 'a ' + kind}; it has to be {type_}"
            )


def _check_state(binary: Binary) -> None:
    if len(binary.memories) > 1:
        raise _unsavable(f"it has {len(binary.memories)} memories; a snapshot supports only one")
    for flags, _ in binary.memories:
        for bit, what in ((_SHARED, "is shared"), (_MEMORY64, "is 64-bit"), (_PAGE_SIZE, "has pages of its own size")):
            if flags & bit:
                raise _unsavable(f"its memory {what}: build the module without threads, for wasm32")
    for index, (kind, changes) in enumerate(binary.globals):
        if changes and kind not in _SAVED_TYPES:
            raise _unsavable(f"its mutable global {index} is a {kind}; a snapshot supports only numbers")
    if binary.passive:
        raise _unsavable(f"it has a passive {binary.passive} segment: build it without bulk initialisation of memory "
                         "(no `--passive-segments`, no threads)")  # fmt: skip
    if binary.table_change:
        raise _unsavable(f"it has the instruction {binary.table_change}: a snapshot does not contain changed tables")


def _check_sizes(binary: Binary) -> None:
    elements = sum(binary.tables)
    if elements > bounds.MOST_TABLE_ELEMENTS:
        message = f"it has {elements} elements in tables, the maximum is {bounds.MOST_TABLE_ELEMENTS}"
        raise ModuleRefused(RefusalReason.TOO_LARGE, message)


def _version(binary: Binary) -> int | None:
    if "abi_version" not in binary.exports:
        return 1
    if binary.version is not None:
        check_version(binary.version)
    return binary.version


def check_version(version: int) -> None:
    """Raise ModuleRefused unless this host supports the version of the ABI."""
    if version not in abi.VERSIONS:
        ours = ", ".join(str(known) for known in sorted(abi.VERSIONS))
        raise ModuleRefused(
            RefusalReason.UNSUPPORTED_ABI,
            f"it requires version {version} of the ABI, this host supports {ours}: build it with an SDK of this "
            "release",
        )


def _written(binary: Binary, mutable: list[int]) -> bytes:
    """Return the module with new exports, without the start section and custom sections except ``name``."""
    out = bytearray(MAGIC)
    for section in binary.sections:
        if section.id == EXPORT:
            out += _exports(binary, section, mutable)
        elif section.id != START and (section.id != CUSTOM or section.name == "name"):
            out += binary.data[section.start : section.end]
    return bytes(out)


def _exports(binary: Binary, section: Section, mutable: list[int]) -> bytes:
    reader = reading.Reader(binary.data, section.body, section.end)
    count = reader.u32()
    old = binary.data[reader.at : section.end]
    added = [reading.name(global_export(number)) + b"\x03" + reading.u32(at) for number, at in enumerate(mutable)]
    if binary.start is not None:
        added.append(reading.name(START_EXPORT) + b"\x00" + reading.u32(binary.start))
    body = reading.u32(count + len(added)) + old + b"".join(added)
    return bytes([EXPORT]) + reading.u32(len(body)) + body


def _missing(message: str) -> ModuleRefused:
    return ModuleRefused(RefusalReason.MISSING_EXPORT, message)


def _unsavable(message: str) -> ModuleRefused:
    return ModuleRefused(RefusalReason.UNSAVABLE_STATE, message)
