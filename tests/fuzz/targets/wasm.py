"""Modules from strangers: read, rewritten so that their state can be kept, and judged by the engine itself."""

from __future__ import annotations

import functools
import random
from dataclasses import dataclass
from typing import Any

import wasmtime

from controller_host.guest import abi
from controller_host.guest.binary import COMPONENT, MAGIC
from controller_host.guest.reading import u32
from controller_host.guest.refusals import ModuleRefused
from controller_host.guest.rewriting import START_EXPORT, global_export, rewrite
from fuzz.target import Target, tried
from support.suite.mutations import spoilt

_TYPES = {"i32": 0x7F, "i64": 0x7E, "f32": 0x7D, "f64": 0x7C, "v128": 0x7B, "funcref": 0x70, "externref": 0x6F}
_PAGE = 65536
_FRAGMENTS = (
    b"\0", b"\x0b", b"\xff\xff\xff\xff\x0f", b"\x80\x80\x80\x80\x00", b"\x41\x00\x0b", b"\x01", b"\x7f", b"memory",
    b"\x00\x61\x73\x6d", b"\x05\x03\x01\x00\x01", b"\x08\x01\x00", b"\xfc\x0a\x00\x00", b"\x26\x00", b"\xd0\x70",
)  # fmt: skip


@dataclass
class Module:
    """A module as it is drawn, by its parts; ``whole`` are its bytes, ``good``: they are unmodified."""

    whole: bytes
    good: bool
    globals: list[tuple[str, bool]]
    data: list[tuple[int, bytes]]
    start: bool
    version: int | None


def _section(number: int, items: list[bytes]) -> bytes:
    body = u32(len(items)) + b"".join(items)
    return bytes([number]) + u32(len(body)) + body if items else b""


def _name(text: str) -> bytes:
    return u32(len(text.encode())) + text.encode()


def signed(value: int) -> bytes:
    """LEB128 of a signed number."""
    found = bytearray()
    while True:
        low = value & 0x7F
        value >>= 7
        if value in (0, -1) and (value == -1) == bool(low & 0x40):
            return bytes([*found, low])
        found.append(low | 0x80)


def _type(parameters: str, results: str) -> bytes:
    found = b"\x60"
    for side in (parameters, results):
        kinds = [_TYPES[item] for item in side.split()]
        found += u32(len(kinds)) + bytes(kinds)
    return found


_CONSTANTS = {
    "i32": b"\x41\x07", "i64": b"\x42\x07", "f32": b"\x43\0\0\0\0", "f64": b"\x44" + bytes(8),
    "v128": b"\xfd\x0c" + bytes(16), "funcref": b"\xd0\x70", "externref": b"\xd0\x6f",
}  # fmt: skip
_BODIES = (
    b"", b"\x01", b"\x02\x40\x0b", b"\x03\x40\x0b", b"\x41\x00\x04\x40\x01\x05\x01\x0b", b"\x41\x00\x28\x02\x00\x1a",
    b"\x41\x00\x41\x05\x36\x02\x00", b"\x3f\x00\x1a", b"\x41\x00\x40\x00\x1a", b"\x42\x80\x7f\x1a",
    b"\x44" + bytes(8) + b"\x1a",    b"\x41\x00\x41\x00\x41\x00\xfc\x0b\x00", b"\x41\x00\xc0\x1a", b"\xd0\x70\x1a",
    b"\x02\x40\x41\x00\x0e\x01\x00\x00\x0b",
    b"\x41\x00\x25\x00\x1a", b"\x41\x00\xd0\x70\x26\x00", b"\x00", b"\xfd\x0c" + bytes(16) + b"\x1a", b"\x12\x00",
)  # fmt: skip


def _function(rng: random.Random, ending: bytes) -> bytes:
    groups = [u32(rng.randrange(1, 4)) + bytes([rng.choice([0x7F, 0x7E, 0x7C])]) for _ in range(rng.randrange(3))]
    body = b"".join(rng.choice(_BODIES) for _ in range(rng.choice([0, 0, 1, 2])))
    whole = u32(len(groups)) + b"".join(groups) + body + ending + b"\x0b"
    return u32(len(whole)) + whole


def _module(rng: random.Random) -> Module:
    pages = rng.choice([1, 1, 1, 0, 2])
    mutable = [(rng.choice(["i32", "i64", "f32", "f64", *_TYPES]), rng.random() < 0.6) for _ in range(rng.randrange(4))]
    data = [
        (rng.choice([0, 8, 1024, 65_500, 70_000]), rng.randbytes(rng.randrange(40))) for _ in range(rng.randrange(3))
    ]
    start = rng.random() < 0.3
    version = rng.choice([None, None, 1, 2, -1])
    imports = [_name("trellis") + _name("call") + b"\0" + u32(3)] if rng.random() < 0.4 else []
    if rng.random() < 0.05:
        imports += [_name("env") + _name("x") + rng.choice([b"\0\0", b"\x02\0\1", b"\x03\x7f\0", b"\x01\x70\0\1"])]
    count = sum(item[-2] == 0 or item.endswith(b"\0" + u32(3)) for item in imports)
    functions = [u32(0), u32(1), u32(2), *([u32(4)] if version is not None else [])]
    exports = [
        _name("memory") + b"\x02\0", _name("alloc") + b"\0" + u32(count), _name("reconcile") + b"\0" + u32(count + 1),
    ]  # fmt: skip
    if version is not None:
        exports.append(_name("abi_version") + b"\0" + u32(count + 3))
    exports += [_name(name) + b"\0" + u32(count + 2) for name in ("_initialize", "x", "é") if rng.random() < 0.2]
    rng.shuffle(exports)
    codes = [_function(rng, b"\x41\x80\x08"), _function(rng, b"\x42\x00"), _function(rng, b"")]
    if version is not None:
        ending = b"\x41" + signed(version)
        codes.append(_function(rng, ending) if rng.random() < 0.3 else u32(len(ending) + 2) + b"\0" + ending + b"\x0b")
    tables = [b"\x70\0\x02"] if rng.random() < 0.5 else []
    elements = [b"\0\x41\0\x0b" + u32(1) + u32(count)] if tables and rng.random() < 0.6 else []
    if tables and rng.random() < 0.1:
        elements.append(
            rng.choice([b"\1\0\1\0", b"\5\x70\1\xd0\x70\x0b", b"\4\x41\0\x0b\1\xd2\0\x0b", b"\2\0\x41\0\x0b\0\1\0"])
        )
    segments = [b"\0\x41" + signed(at) + b"\x0b" + u32(len(item)) + item for at, item in data]
    if rng.random() < 0.05:
        segments.append(b"\1\1x")
    custom = [bytes([0]) + u32(len(_name(item)) + 3) + _name(item) + b"abc" for item in ("producers", ".debug_x", "é")]
    parts = [
        _section(
            1, [_type("i32", "i32"), _type("i32 i32", "i64"), _type("", ""), _type("i32 i32", "i32"), _type("", "i32")]
        ),
        _section(2, imports),
        _section(3, functions),
        _section(4, tables),
        _section(5, [_limits(rng, pages)]),
        _section(6, [bytes([_TYPES[kind], changes]) + _CONSTANTS[kind] + b"\x0b" for kind, changes in mutable]),
        _section(7, exports),
        b"\x08" + u32(len(u32(count + 2))) + u32(count + 2) if start else b"",
        _section(9, elements),
        b"\x0c\x01" + u32(len(segments)) if segments and rng.random() < 0.3 else b"",
        _section(10, codes),
        _section(11, segments),
    ]
    if rng.random() < 0.4:
        parts.insert(rng.randrange(len(parts) + 1), rng.choice(custom))
    whole = MAGIC + b"".join(parts)
    good = rng.random() < 0.5
    if not good:
        whole = (COMPONENT if rng.random() < 0.02 else MAGIC) + spoilt(rng, whole[8:], _FRAGMENTS)
    return Module(whole, good, mutable, data, start, version)


def _limits(rng: random.Random, pages: int) -> bytes:
    return rng.choice([b"\0" + u32(pages), b"\1" + u32(pages) + u32(pages + 3)])


@functools.cache
def _engine() -> wasmtime.Engine:
    """An engine that takes what the guests' own does, and several memories."""
    config = wasmtime.Config()
    config.wasm_threads = False
    config.wasm_multi_memory = True
    return wasmtime.Engine(config)


def _is_valid(wasm: bytes) -> bool:
    try:
        wasmtime.Module.validate(_engine(), wasm)
    except wasmtime.WasmtimeError:
        return False
    return True


def _judge_module(module: Module) -> str:
    valid = _is_valid(module.whole)
    outcome, found = tried(lambda: rewrite(module.whole), ModuleRefused)
    if outcome != "accepted":
        assert str(found)
        str(found).encode()
        return str(found.reason)
    assert _is_valid(found.wasm) == valid, "valid stays valid, and nothing becomes it"
    if not valid:
        return "left to the engine"
    _check_meaning(module, found)
    return outcome


def _check_meaning(module: Module, found: Any) -> None:
    before, after = (wasmtime.Module(_engine(), wasm) for wasm in (module.whole, found.wasm))
    exports = {export.name: export.type for export in before.exports}
    added = {export.name: export.type for export in after.exports if export.name not in exports}
    assert {export.name for export in after.exports} == exports.keys() | added.keys()
    kept = [global_export(number) for number in range(len(found.globals))]
    assert set(added) - {START_EXPORT} == set(kept)
    for name, kind in zip(kept, found.globals, strict=True):
        assert added[name].mutable
        assert str(added[name].content) == kind
    assert [(item.module, item.name) for item in before.imports] == [(item.module, item.name) for item in after.imports]
    if module.good:
        assert [kind for kind, changes in module.globals if changes] == list(found.globals)
        assert (START_EXPORT in added) == module.start
        assert found.version in ((1,) if module.version is None else (None, module.version))
    assert found.exports - {START_EXPORT} == {name for name in (*abi.REQUIRED, *abi.OPTIONAL) if name in exports}
    _check_memory(after, found)


def _check_memory(after: wasmtime.Module, found: Any) -> None:
    """Outside of where its data is said to be the memory begins as nothing; and the version is what its code says."""
    store = wasmtime.Store(_engine())
    linker = wasmtime.Linker(_engine())
    linker.define_unknown_imports_as_traps(after)
    try:
        instance = linker.instantiate(store, after)
    except (wasmtime.Trap, wasmtime.WasmtimeError):
        return  # data beyond its memory
    memory: Any = instance.exports(store)["memory"]
    content = bytes(memory.read(store, 0, memory.data_len(store)))
    begin, end = found.data_span
    assert not content[:begin].strip(b"\0")
    assert not content[end:].strip(b"\0")
    assert memory.size(store) == found.memory_pages
    if found.version is not None and "abi_version" in found.exports:
        try:
            abi_version = instance.exports(store)["abi_version"](store)
        except (wasmtime.Trap, wasmtime.WasmtimeError):
            return
        assert abi_version == found.version


MODULE = Target(
    "wasm-modules",
    "controller modules: parsed, checked and rewritten",
    "wasmtime: valid stays valid, invalid stays invalid; equal exports and imports, and each mutable global; memory "
    "outside of the data is empty; the version is the return value of its code",
    _module,
    _judge_module,
    frozenset({"accepted", "left to the engine", "NotWasm", "UnsavableState"}),
    share=8,
    mebibytes=64,
    seconds=5.0,
)

TARGETS = (MODULE,)
