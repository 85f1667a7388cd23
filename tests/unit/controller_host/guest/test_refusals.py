"""Forbidden parts of a module are refused, by name and with a remedy."""

from __future__ import annotations

from pathlib import Path

import pytest
from wasmtime import wat2wasm

from controller_host.guest import rewriting
from controller_host.guest.instructions import table_change
from controller_host.guest.modules import ModuleRefused, Modules, RefusalReason
from controller_host.guest.reading import Reader
from controller_host.guest.rewriting import rewrite
from support.guests import wat

EXPORTS = """(func (export "alloc") (param i32) (result i32) i32.const 0)
  (func (export "reconcile") (param i32 i32) (result i64) i64.const 0)"""


def module(parts: str, memory: str = '(memory (export "memory") 1)') -> bytes:
    return bytes(wat2wasm(f"(module {parts} {memory} {EXPORTS})"))


REFUSED = {
    "nothing at all": (b"", RefusalReason.NOT_WASM, "does not begin"),
    "an archive": (b"PK\3\4" + bytes(100), RefusalReason.NOT_WASM, "does not begin"),
    "a component": (b"\0asm\x0d\0\1\0", RefusalReason.NOT_WASM, "a component"),
    "a module cut short": (wat.guest()[:-5], RefusalReason.NOT_WASM, "ends in the middle"),
    "no memory": (
        module("", memory="(memory 1)"), RefusalReason.MISSING_EXPORT, "no memory under the name `memory`"),
    "no alloc": (
        wat.text('(module (memory (export "memory") 1))'), RefusalReason.MISSING_EXPORT, "does not export alloc"),
    "a command": (
        wat.text('(module (memory (export "memory") 1) (func (export "_start")))'),
        RefusalReason.MISSING_EXPORT, "build a reactor"),
    "an alloc of another type": (
        wat.text('(module (memory (export "memory") 1) (func (export "alloc") (param i64) (result i32) i32.const 0))'),
        RefusalReason.WRONG_TYPE, "exports alloc as (i64) -> (i32); it has to be (i32) -> (i32)"),
    "an alloc that is no function": (
        wat.text('(module (memory (export "memory") 1) (global (export "alloc") i32 i32.const 0))'),
        RefusalReason.WRONG_TYPE, "exports alloc as a global"),
    "an unknown import": (
        module('(import "env" "abort" (func))'), RefusalReason.UNKNOWN_IMPORT, "imports env.abort"),
    "a function of another WASI": (
        module('(import "wasi:cli/stdout@0.2.0" "get-stdout" (func (result i32)))'),
        RefusalReason.UNKNOWN_IMPORT, "get-stdout"),
    "an import of another type": (
        module('(import "trellis" "call" (func (param i32) (result i32)))'),
        RefusalReason.WRONG_TYPE, "imports trellis.call as (i32) -> (i32); it has to be (i32, i32) -> (i32)"),
    "an imported global": (
        module('(import "env" "g" (global i32))'), RefusalReason.UNSAVABLE_STATE, "imports the global env.g"),
    "an imported table": (
        module('(import "env" "t" (table 1 funcref))'), RefusalReason.UNSAVABLE_STATE, "imports the table env.t"),
    "an imported memory": (
        bytes(wat2wasm(f'(module (import "env" "m" (memory 1)) (export "memory" (memory 0)) {EXPORTS})')),
        RefusalReason.UNSAVABLE_STATE, "imports the memory env.m"),
    "a second memory": (
        module("", '(memory (export "memory") 1) (memory 1)'), RefusalReason.UNSAVABLE_STATE, "2 memories"),
    "shared memory": (
        module("", '(memory (export "memory") 1 2 shared)'), RefusalReason.UNSAVABLE_STATE, "memory is shared"),
    "64-bit memory": (
        module("", '(memory (export "memory") i64 1)'), RefusalReason.UNSAVABLE_STATE, "memory is 64-bit"),
    "a mutable reference": (
        module("(global (mut funcref) ref.null func)"), RefusalReason.UNSAVABLE_STATE, "mutable global 0 is a funcref"),
    "a mutable external reference": (
        module("(global i32 i32.const 0) (global (mut externref) ref.null extern)"),
        RefusalReason.UNSAVABLE_STATE, "mutable global 1 is a externref"),
    "a mutable vector": (
        module("(global (mut v128) v128.const i64x2 0 0)"),
        RefusalReason.UNSAVABLE_STATE, "mutable global 0 is a v128"),
    "passive data": (
        module("", '(memory (export "memory") 1) (data "x")'), RefusalReason.UNSAVABLE_STATE, "passive data"),
    "passive elements": (
        module("(func $f) (elem func $f)"), RefusalReason.UNSAVABLE_STATE, "passive element"),
    "a name of the host's": (
        module('(global (export "trellis:global:0") (mut i32) i32.const 0)'),
        RefusalReason.RESERVED_NAME, "trellis:global:0"),
    "another version of the ABI": (
        module('(func (export "abi_version") (result i32) i32.const 7)'),
        RefusalReason.UNSUPPORTED_ABI, "version 7 of the ABI, this host supports 1"),
    "a huge table": (module("(table 1000000 funcref)"), RefusalReason.TOO_LARGE, "1000000 elements in tables"),
    "a throw": (module("(tag) (func throw 0)"), RefusalReason.NOT_WASM, "section 13"),
    "an atomic": (
        module("(func (drop (i32.atomic.load (i32.const 0))))"), RefusalReason.NOT_WASM, "instruction 0xfe"),
}  # fmt: skip

TABLE = "(table $t 4 funcref)"
CHANGES = {
    "table.set": "(table.set $t (i32.const 0) (ref.null func))",
    "table.grow": "(drop (table.grow $t (ref.null func) (i32.const 1)))",
    "table.fill": "(table.fill $t (i32.const 0) (ref.null func) (i32.const 1))",
    "table.copy": "(table.copy $t $t (i32.const 0) (i32.const 1) (i32.const 1))",
    "table.init": "(table.init $t 0 (i32.const 0) (i32.const 0) (i32.const 0))",
}
"""Instructions that change a table."""

BEFORE = """(block $a (block $b (br_table $a $b $a (i32.const 38)))) (drop (i32.const 0x26)) (drop (i64.const 0x0cfc))
  (drop (f64.const 1.5)) (drop (v128.const i8x16 38 38 38 38 38 38 38 38 38 38 38 38 38 38 38 38))
  (drop (select (result i32) (i32.const 1) (i32.const 2) (i32.const 3)))
  (drop (i8x16.extract_lane_s 3 (i8x16.splat (i32.const 1))))
  (drop (v128.load8_lane offset=38 3 (i32.const 0) (v128.const i64x2 0 0)))
  (drop (i64x2.extmul_low_i32x4_s (v128.const i64x2 0 0) (v128.const i64x2 0 0)))
  (memory.fill (i32.const 0) (i32.const 0) (i32.const 0)) (drop (i32.trunc_sat_f64_u (f64.const 1)))"""
"""Harmless instructions, some with operands that look like one that changes tables."""


@pytest.mark.parametrize("case", REFUSED)
def test_a_module_is_refused_for(case: str) -> None:
    wasm, reason, expected_text = REFUSED[case]
    with pytest.raises(ModuleRefused) as refused:
        rewrite(wasm)
    assert refused.value.reason is reason
    assert expected_text in refused.value.message


@pytest.mark.parametrize("instruction", CHANGES)
def test_a_module_that_changes_tables_is_refused_by_the_instructions_name(instruction: str) -> None:
    elements = "(elem declare func $f) (elem (table $t) (i32.const 0) func $f)"
    wasm = module(f"{TABLE} {elements} (func $f {BEFORE} {CHANGES[instruction]})")
    with pytest.raises(ModuleRefused, match=f"instruction {instruction}") as refused:
        rewrite(wasm)
    assert refused.value.reason is RefusalReason.UNSAVABLE_STATE


def test_operands_that_look_like_such_an_instruction_are_none() -> None:
    wasm = module(f"{TABLE} (elem declare func $f) (func $f {BEFORE} (drop (table.get $t (i32.const 0))))")
    assert rewrite(wasm).exports == {"alloc", "reconcile"}


def test_an_instruction_whose_number_is_written_with_more_bytes_than_it_needs_is_seen_too() -> None:
    assert table_change(Reader(b"\x01\xfc\x91\x00\x00\x0b")) == "table.fill"


def test_an_overly_large_module_is_refused_before_it_is_read(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rewriting, "MOST_MODULE_BYTES", 10)
    with pytest.raises(ModuleRefused) as refused:
        rewrite(wat.guest())
    assert refused.value.reason is RefusalReason.TOO_LARGE


def test_an_error_of_the_engine_is_reported_in_its_words(tmp_path: Path) -> None:
    wasm = wat.guest().replace(b"\x42\x00\x0b", b"\x41\x00\x0b")  # reconcile gives an i32 instead of an i64
    with pytest.raises(ModuleRefused, match="type mismatch") as refused:
        Modules(tmp_path / "modules").load(wasm)
    assert refused.value.reason is RefusalReason.NOT_WASM


def test_a_message_is_one_printable_line_for_any_names_in_the_module() -> None:
    name = "evil\\0a\\1b[31m" + "x" * 5000
    with pytest.raises(ModuleRefused) as refused:
        rewrite(module(f'(import "env" "{name}" (func))'))
    assert refused.value.message.isprintable()
    assert len(refused.value.message) <= 600


def test_all_mutable_globals_are_exported_and_the_start_function_is_taken_out() -> None:
    wasm = module(
        """(global i32 i32.const 1) (global (mut i32) i32.const 2) (global (export "mine") (mut f64) f64.const 3)
        (func $s unreachable) (start $s)"""
    )
    rewritten = rewrite(wasm)
    assert rewritten.globals == ("i32", "f64")
    assert rewriting.START_EXPORT in rewritten.exports
    again = rewriting.read(rewritten.wasm)
    assert again.start is None
    assert again.exports["trellis:global:0"] == ("global", 1)
    assert again.exports["trellis:global:1"] == ("global", 2)


def test_sections_for_debuggers_are_left_out_and_names_stay() -> None:
    wasm = wat.guest() + b"\0\x0b\x06.debug" + b"none" + b"\0\x05\x04name"
    rewritten = rewrite(wasm)
    assert b".debug" not in rewritten.wasm
    assert b"\x04name" in rewritten.wasm


def test_a_module_reports_the_location_of_its_initial_data() -> None:
    data = '(data (i32.const 100) "abc") (data (i32.const 7) "z") (data (i32.const 200) "")'
    assert rewrite(module("", f'(memory (export "memory") 1) {data}')).data_span == (7, 103)
    assert rewrite(module("", '(memory (export "memory") 1)')).data_span == (0, 0)
    unknown = '(global $g i32 i32.const 5) (memory (export "memory") 2) (data (global.get $g) "abc")'
    assert rewrite(module("", unknown)).data_span == (0, 2 * 65536)
