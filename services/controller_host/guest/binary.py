"""Parser of a module's sections into a :class:`Binary`, for the checks before the module can run.

In: the original bytes. Out: types, imports, exports, globals and the kinds of state of the module. Called by
``rewriting``. Pure. Invariants: unsupported content is rejected, never skipped; the length of a vector is compared
with its bound before the vector is read; the engine validates the module afterwards.
Source: WebAssembly core specification 2.0, "Binary Format".
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Final

from controller_host.guest import bounds
from controller_host.guest.instructions import constant, i32_constant, table_change
from controller_host.guest.reading import Malformed, Reader, TooMany

MAGIC: Final = b"\0asm\1\0\0\0"
COMPONENT: Final = b"\0asm\x0d\0\1\0"
WASM_PAGE: Final = 65536

VALUE_TYPES: Final = {
    0x7F: "i32",
    0x7E: "i64",
    0x7D: "f32",
    0x7C: "f64",
    0x7B: "v128",
    0x70: "funcref",
    0x6F: "externref",
}
KINDS: Final = ("function", "table", "memory", "global", "tag")
CUSTOM, EXPORT, START = 0, 7, 8


@dataclass(frozen=True, slots=True)
class FunctionType:
    """Parameters and results, as the names of value types."""

    parameters: tuple[str, ...]
    results: tuple[str, ...]

    def __str__(self) -> str:
        return f"({', '.join(self.parameters)}) -> ({', '.join(self.results)})"


@dataclass(frozen=True, slots=True)
class Import:
    """``module``.``name``; ``type`` is None unless the import is a function."""

    module: str
    name: str
    kind: str
    type: FunctionType | None


@dataclass(frozen=True, slots=True)
class Section:
    """Offsets of a section: ``start`` of its id, ``body`` of its content."""

    id: int
    start: int
    body: int
    end: int
    name: str = ""


@dataclass(slots=True)
class Binary:
    """A parsed module. ``functions`` and ``globals`` include imports, as the indices in the module do."""

    data: bytes
    sections: list[Section] = field(default_factory=list)
    types: list[FunctionType] = field(default_factory=list)
    imports: list[Import] = field(default_factory=list)
    functions: list[FunctionType] = field(default_factory=list)
    imported_functions: int = 0
    tables: list[int] = field(default_factory=list)  # initial elements
    memories: list[tuple[int, int]] = field(default_factory=list)  # flags, initial WASM pages
    globals: list[tuple[str, bool]] = field(default_factory=list)  # value type, mutable
    exports: dict[str, tuple[str, int]] = field(default_factory=dict)  # kind, index
    start: int | None = None
    passive: str | None = None  # kind of segment
    # Range of initial data in memory, in bytes; all other memory is initially zero.
    data_span: tuple[int, int] | None = None
    table_change: str | None = None
    version: int | None = None  # the i32 constant that `abi_version` returns, if its body is only that


def read(data: bytes) -> Binary:
    """Parse a module.

    Raises:
        Malformed: The bytes are not a core module, or use unsupported features.
    """
    if data.startswith(COMPONENT):
        raise Malformed("it is a component: build a core module (target `wasm32-wasip1`, not `wasm32-wasip2`)")
    if not data.startswith(MAGIC):
        raise Malformed("it does not begin with the header of a WebAssembly module")
    binary = Binary(data)
    reader = Reader(data, len(MAGIC))
    while not reader.done():
        if len(binary.sections) >= bounds.MOST_SECTIONS:
            raise TooMany("sections", len(binary.sections) + 1, bounds.MOST_SECTIONS)
        start = reader.at
        section_id, length = reader.byte(), reader.u32()
        body = reader.skip(length)
        name = Reader(data, body, reader.at).name() if section_id == CUSTOM else ""
        binary.sections.append(Section(section_id, start, body, reader.at, name))
        if section_id != CUSTOM:
            if section_id not in _SECTIONS:
                raise Malformed(f"it has a section {section_id}, which is not supported")
            _SECTIONS[section_id](binary, Reader(data, body, reader.at))
    return binary


def _vector(reader: Reader, what: str, most: int) -> range:
    """Return the indices of the following vector, after a check of its length against ``most`` and the section."""
    count = reader.u32()
    if count > most:
        raise TooMany(what, count, most)
    if count > reader.end - reader.at:
        raise Malformed("it ends in the middle of a section")
    return range(count)


def _value_type(reader: Reader) -> str:
    byte = reader.byte()
    if byte not in VALUE_TYPES:
        raise Malformed(f"it has the value type {byte:#04x}, which is not supported")
    return VALUE_TYPES[byte]


def _types(binary: Binary, reader: Reader) -> None:
    for _ in _vector(reader, "types", bounds.MOST_TYPES):
        if reader.byte() != 0x60:
            raise Malformed("it has types of the garbage collection proposal, which is not supported")
        parameters, results = (
            tuple(_value_type(reader) for _ in _vector(reader, f"{what} of a type", bounds.MOST_PARAMETERS))
            for what in ("parameters", "results")
        )
        binary.types.append(FunctionType(parameters, results))


def _type_at(binary: Binary, index: int) -> FunctionType:
    if index >= len(binary.types):
        raise Malformed("it has a function of a type that it does not define")
    return binary.types[index]


def _limits(reader: Reader) -> tuple[int, int]:
    """Return flags and minimum. 64-bit limits are read only partly: the flag rejects them later."""
    flags, minimum = reader.byte(), reader.u32()
    if flags & 1:
        reader.u32()
    return flags, minimum


def _imports(binary: Binary, reader: Reader) -> None:
    for _ in _vector(reader, "imports", bounds.MOST_IMPORTS):
        module, name, kind = reader.name(), reader.name(), reader.byte()
        function: FunctionType | None = None
        if kind == 0:
            function = _type_at(binary, reader.u32())
            binary.functions.append(function)
            binary.imported_functions += 1
        elif kind == 1:
            _value_type(reader)
            _limits(reader)
        elif kind == 2:
            _limits(reader)
        elif kind == 3:
            _value_type(reader)
            reader.byte()
        else:
            raise Malformed(f"it imports {module}.{name} of the kind {kind}, which is not supported")
        binary.imports.append(Import(module, name, KINDS[kind], function))


def _functions(binary: Binary, reader: Reader) -> None:
    binary.functions.extend(_type_at(binary, reader.u32()) for _ in _vector(reader, "functions", bounds.MOST_FUNCTIONS))


def _tables(binary: Binary, reader: Reader) -> None:
    for _ in _vector(reader, "tables", bounds.MOST_TABLES):
        first = reader.byte()
        if first not in VALUE_TYPES:
            raise Malformed("it has a table in an unsupported format")
        binary.tables.append(_limits(reader)[1])


def _memories(binary: Binary, reader: Reader) -> None:
    binary.memories.extend(_limits(reader) for _ in _vector(reader, "memories", bounds.MOST_MEMORIES))


def _globals(binary: Binary, reader: Reader) -> None:
    for _ in _vector(reader, "globals", bounds.MOST_GLOBALS):
        value_type = _value_type(reader)
        binary.globals.append((value_type, bool(reader.byte())))
        constant(reader)


def _exports(binary: Binary, reader: Reader) -> None:
    for _ in _vector(reader, "exports", bounds.MOST_EXPORTS):
        name, kind, index = reader.name(), reader.byte(), reader.u32()
        if kind >= len(KINDS):
            raise Malformed(f"it exports {name} of the kind {kind}, which is not supported")
        binary.exports[name] = (KINDS[kind], index)


def _start(binary: Binary, reader: Reader) -> None:
    if binary.start is not None:
        raise Malformed("it has two start functions")
    binary.start = reader.u32()
    if not reader.done():
        raise Malformed("its start section has more than one function")


def _elements(binary: Binary, reader: Reader) -> None:
    for _ in _vector(reader, "element segments", bounds.MOST_SEGMENTS):
        flags = reader.u32()
        if flags > 7:
            raise Malformed("it has an element segment in an unsupported format")
        if not flags & 1:
            if flags & 2:
                reader.u32()
            constant(reader)
        elif not flags & 2:
            binary.passive = "element"
        if flags & 3:
            reader.byte()  # kind or type of the elements
        for _ in _vector(reader, "elements in a segment", bounds.MOST_TABLE_ELEMENTS):
            if flags & 4:
                constant(reader)
            else:
                reader.u32()


def _code(binary: Binary, reader: Reader) -> None:
    kind, version = binary.exports.get("abi_version", ("", -1))
    for index in _vector(reader, "functions", bounds.MOST_FUNCTIONS):
        length = reader.u32()
        if length > bounds.MOST_BODY_BYTES:
            raise TooMany("bytes in a function", length, bounds.MOST_BODY_BYTES)
        body = Reader(reader.data, reader.skip(length), reader.at)
        for _ in _vector(body, "groups of locals in a function", bounds.MOST_LOCALS):
            body.u32()
            _value_type(body)
        if kind == "function" and binary.imported_functions + index == version:
            binary.version = i32_constant(body.data[body.at : body.end - 1])
        binary.table_change = binary.table_change or table_change(body)


def _data(binary: Binary, reader: Reader) -> None:
    for _ in _vector(reader, "data segments", bounds.MOST_SEGMENTS):
        flags = reader.u32()
        if flags == 1:
            binary.passive = "data"
            offset: int | None = 0
        else:
            if flags == 2:
                reader.u32()
            offset = i32_constant(constant(reader))
        length = reader.u32()
        reader.skip(length)
        if not length:
            continue
        # If the offset is not constant, the data can be anywhere in the initial memory.
        size = max((pages for _, pages in binary.memories), default=0) * WASM_PAGE
        span = (0, size) if offset is None else (offset, offset + length)
        known = binary.data_span or span
        binary.data_span = min(known[0], span[0]), max(known[1], span[1])


def _data_count(_binary: Binary, reader: Reader) -> None:
    reader.u32()


_SECTIONS: Final[dict[int, Callable[[Binary, Reader], None]]] = {
    1: _types,
    2: _imports,
    3: _functions,
    4: _tables,
    5: _memories,
    6: _globals,
    EXPORT: _exports,
    START: _start,
    9: _elements,
    10: _code,
    11: _data,
    12: _data_count,
}
