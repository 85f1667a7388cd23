"""Small guests that do one thing, mostly a bad one, in WebAssembly's own language."""

from __future__ import annotations

import wasmtime

_AROUND = """(module
  (import "trellis" "call" (func $call (param i32 i32) (result i32)))
  (import "trellis" "log" (func $log (param i32 i32 i32)))
  (memory (export "memory") 2)
  (data (i32.const 16) "{{\\22op\\22:\\22get\\22}}")
  (func (export "alloc") (param i32) (result i32) (i32.const 4096))
  (func (export "reconcile") (param i32 i32) (result i64) {body}))"""

BODIES = {
    "good": "(i64.const 0)",
    "traps": "(unreachable)",
    "loops": "(loop (br 0)) (i64.const 0)",
    "eats": "(loop (br_if 0 (i32.ne (memory.grow (i32.const 1)) (i32.const -1)))) (unreachable)",
    "nests": "(call 2 (i32.const 0)) (drop) (call 3 (i32.const 0) (i32.const 0))",
    "shouts": "(i64.const 0x0000_0000_7fff_ffff)",
    "points-nowhere": "(i64.const 0x7fff_0000_0000_0100)",
    "babbles": "(i64.const 0x0000_1000_0000_0004)",
    "asks-nowhere": "(drop (call $call (i32.const 0x7fffffff) (i32.const 64))) (i64.const 0)",
    "floods": "(loop (drop (call $call (i32.const 16) (i32.const 12))) (br 0)) (i64.const 0)",
    "says-much": "(loop (call $log (i32.const 1) (i32.const 16) (i32.const 12)) (br 0)) (i64.const 0)",
}
"""What ``reconcile`` does."""

FAULTS = {
    "traps": "Trapped",
    "loops": "CpuExceeded",
    "eats": "MemoryExceeded",
    "nests": "StackExhausted",
    "shouts": "ResultTooLarge",
    "points-nowhere": "BadPointer",
    "babbles": "BadResult",
    "asks-nowhere": "BadPointer",
    "floods": "HostFailed",
    "says-much": "CpuExceeded",
}
"""How each of them ends."""


def guest(name: str) -> bytes:
    """Return a module."""
    return bytes(wasmtime.wat2wasm(_AROUND.format(body=BODIES[name])))
