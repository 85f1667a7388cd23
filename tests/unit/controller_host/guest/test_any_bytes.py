"""Any bytes of a module are refused with a reason or run within limits."""

from __future__ import annotations

import contextlib

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from controller_host.guest.binary import MAGIC
from controller_host.guest.faults import GuestFault
from controller_host.guest.instance import Instance
from controller_host.guest.limits import Limits
from controller_host.guest.modules import ModuleRefused, Modules
from controller_host.guest.rewriting import rewrite
from support.guests import wat

WHOLE = wat.guest(
    "(drop (call $call (local.get $p) (local.get $n))) (call_indirect (i32.const 0)) i64.const 0",
    imports='(import "trellis" "call" (func $call (param i32 i32) (result i32)))',
    more="""(global (mut i32) i32.const 1) (global (mut f64) f64.const 2) (table 2 funcref) (elem (i32.const 0) func $f)
      (func $f (block (br_table 0 0 (i32.const 1)))) (start $f) (data (i32.const 8) "data")
      (func (export "abi_version") (result i32) i32.const 1)""",
)
"""A module with a section of every kind."""

CHANGES = st.lists(st.tuples(st.integers(8, len(WHOLE) - 1), st.integers(0, 255)), min_size=1, max_size=4)
LIMITS = Limits(memory_bytes=1 << 20, cpu_seconds=0.05, wall_seconds=5)


@pytest.mark.thorough
@settings(max_examples=300, deadline=None)
@given(changes=CHANGES, cut=st.integers(0, len(WHOLE)))
def test_a_changed_module_is_refused_or_runs(modules: Modules, changes: list[tuple[int, int]], cut: int) -> None:
    wasm = bytearray(WHOLE)
    for at, byte in changes:
        wasm[at] = byte
    for candidate in (bytes(wasm), bytes(wasm[:cut])):
        with contextlib.suppress(ModuleRefused, GuestFault):
            instance = Instance.boot(modules.load(candidate), LIMITS, wat.RecordingHost())
            instance.call("reconcile", b"{}")
            instance.close()


@settings(max_examples=300, deadline=None)
@given(sections=st.lists(st.tuples(st.integers(0, 14), st.binary(max_size=30)), max_size=6))
@example(sections=[(7, b"\1\6memory\2\0")])
def test_any_sections_are_refused(sections: list[tuple[int, bytes]]) -> None:
    wasm = MAGIC + b"".join(bytes([number, len(body)]) + body for number, body in sections)
    with contextlib.suppress(ModuleRefused):
        rewrite(wasm)
