"""Makes a module one whose state can be kept: checks it, exports its mutable globals, takes its start function out.

In: the bytes as they were built. Out: a :class:`Rewritten`, or :class:`ModuleRefused` with what to do. Pure; called by
``modules``, once for a digest. Invariant: whatever passes has no state but one memory and the globals listed here, so a
snapshot of these is a snapshot of all (ADR 51).
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
"""Counted up when modules are rewritten otherwise than before: compiled ones in a cache are then of no use."""

START_EXPORT: Final = f"{abi.RESERVED}start"
MOST_MODULE_BYTES: Final = 64 << 20

_SAVED_TYPES: Final = frozenset({"i32", "i64", "f32", "f64"})
_SHARED, _MEMORY64, _PAGE_SIZE = 2, 4, 8


@dataclass(frozen=True, slots=True)
class Rewritten:
    """A module that may be compiled.

    ``globals``: the types of its mutable globals, which it exports as :func:`global_export` of 0, 1, …; ``data_span``:
    from which byte of memory to which its initial data may be; ``version``: of the ABI, None if only the module
    itself can tell, when it runs.
    """

    wasm: bytes
    globals: tuple[str, ...]
    exports: frozenset[str]
    memory_pages: int
    data_span: tuple[int, int]
    version: int | None


def global_export(number: int) -> str:
    """Return the name under which a mutable global is exported."""
    return f"{abi.RESERVED}global:{number}"


def rewrite(wasm: bytes) -> Rewritten:
    """Check and rewrite a module.

    Raises:
        ModuleRefused: It is not run here; the reason and message say why.
    """
    if len(wasm) > MOST_MODULE_BYTES:
        raise ModuleRefused(
            RefusalReason.TOO_LARGE,
            f"the module has {len(wasm)} bytes and at most {MOST_MODULE_BYTES} are run: strip it (`wasm-opt -Oz`, "
            "`-s`), or build it without what it does not need",
        )
    try:
        binary = read(wasm)
        _check_start(binary)
    except reading.TooMany as error:
        raise ModuleRefused(RefusalReason.TOO_LARGE, str(error)) from error
    except reading.Malformed as error:
        raise ModuleRefused(RefusalReason.NOT_WASM, f"this is not a module that is run here: {error}") from error
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
    """Refuse what the engine would refuse of a start function, were its section not taken out before."""
    if binary.start is None:
        return
    numbers = [section.id for section in binary.sections if section.id != CUSTOM]
    at = numbers.index(START)
    if any(number > START for number in numbers[:at]) or any(number < START for number in numbers[at:]):
        raise reading.Malformed("its start section is not in its place")
    if binary.start >= len(binary.functions) or binary.functions[binary.start] != FunctionType((), ()):
        raise reading.Malformed("its start function is none, or takes or returns something")


def _data_span(binary: Binary) -> tuple[int, int]:
    start, end = binary.data_span or (0, 0)
    size = binary.memories[0][1] * WASM_PAGE
    return min(start, size), min(end, size)


def _check_imports(binary: Binary) -> None:
    for entry in binary.imports:
        full = f"{entry.module}.{entry.name}"
        if entry.kind in {"global", "table", "memory"}:
            raise _unsavable(f"it imports the {entry.kind} {full}: let the module have its own")
        known = abi.IMPORTS.get(entry.module, {}).get(entry.name)
        if known is None or entry.kind != "function":
            modules = " and ".join(f"`{name}`" for name in abi.IMPORTS)
            raise ModuleRefused(
                RefusalReason.UNKNOWN_IMPORT,
                f"it imports {full}, which is not there: only functions of {modules} are, as docs/controller-abi.md "
                "lists them",
            )
        if entry.type != known:
            raise ModuleRefused(
                RefusalReason.WRONG_TYPE, f"it imports {full} as {entry.type}; the function there is {known}"
            )


def _check_exports(binary: Binary) -> None:
    for name in binary.exports:
        if name.startswith(abi.RESERVED):
            raise ModuleRefused(
                RefusalReason.RESERVED_NAME, f"it exports {name}: names that begin with {abi.RESERVED} are the host's"
            )
    if "_start" in binary.exports and "reconcile" not in binary.exports:
        raise _missing("it exports _start, as a command does: build a reactor (`-mexec-model=reactor`, "
                       "`-buildmode=c-shared`, crate type `cdylib`) that exports alloc and reconcile")  # fmt: skip
    if binary.exports.get("memory", ("", 0))[0] != "memory" or not binary.memories:
        raise _missing("it exports no memory under the name `memory`: requests could not reach it")
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
        raise _unsavable(f"it has {len(binary.memories)} memories; one is kept")
    for flags, _ in binary.memories:
        for bit, what in ((_SHARED, "is shared"), (_MEMORY64, "is 64-bit"), (_PAGE_SIZE, "has pages of its own size")):
            if flags & bit:
                raise _unsavable(f"its memory {what}: build it without threads, for wasm32")
    for index, (kind, changes) in enumerate(binary.globals):
        if changes and kind not in _SAVED_TYPES:
            raise _unsavable(f"its mutable global {index} is a {kind}; only numbers are kept")
    if binary.passive:
        raise _unsavable(f"it has a passive {binary.passive} segment: build it without bulk initialisation of memory "
                         "(no `--passive-segments`, no threads)")  # fmt: skip
    if binary.table_change:
        raise _unsavable(f"it has the instruction {binary.table_change}: changes of tables are not kept")


def _check_sizes(binary: Binary) -> None:
    elements = sum(binary.tables)
    if elements > bounds.MOST_TABLE_ELEMENTS:
        message = f"it has {elements} elements in tables, and at most {bounds.MOST_TABLE_ELEMENTS} are run"
        raise ModuleRefused(RefusalReason.TOO_LARGE, message)


def _version(binary: Binary) -> int | None:
    if "abi_version" not in binary.exports:
        return 1
    if binary.version is not None:
        check_version(binary.version)
    return binary.version


def check_version(version: int) -> None:
    """Raise ModuleRefused unless this host runs that version of the ABI."""
    if version not in abi.VERSIONS:
        ours = ", ".join(str(known) for known in sorted(abi.VERSIONS))
        raise ModuleRefused(
            RefusalReason.UNSUPPORTED_ABI,
            f"it is made for version {version} of the ABI, and this host runs {ours}: build it with an SDK of this "
            "release",
        )


def _written(binary: Binary, mutable: list[int]) -> bytes:
    """Write the module again: all sections as they were, but the exports, the start, and what only debuggers read."""
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
