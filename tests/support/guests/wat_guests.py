"""Small guests that do one thing, mostly a bad one, in WebAssembly's own language."""

from __future__ import annotations

import json
from typing import Any

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
    "gushes": """(drop (memory.grow (i32.const 70)))
      (memory.fill (i32.const 131072) (i32.const 120) (i32.const 4194000))
      (i64.store (i32.const 131072) (i64.const 0x22726f727265227b))
      (i32.store16 (i32.const 131080) (i32.const 0x223a))
      (i32.store16 (i32.const 4325070) (i32.const 0x7d22))
      (i64.const 0x0002_0000_003f_fed0)""",
    "points-nowhere": "(i64.const 0x7fff_0000_0000_0100)",
    "babbles": "(i64.const 0x0000_1000_0000_0004)",
    "asks-nowhere": "(drop (call $call (i32.const 0x7fffffff) (i32.const 64))) (i64.const 0)",
    "floods": "(loop (drop (call $call (i32.const 16) (i32.const 12))) (br 0)) (i64.const 0)",
    "says-much": "(loop (call $log (i32.const 1) (i32.const 16) (i32.const 12)) (br 0)) (i64.const 0)",
}
"""What ``reconcile`` does. ``gushes`` returns an error of 4 MiB, as JSON."""

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


_SAYS = """(module
  (import "trellis" "call" (func $call (param i32 i32) (result i32)))
  (import "trellis" "log" (func $log (param i32 i32 i32)))
  (memory (export "memory") 2)
  (data (i32.const 2048) "{asked}")
  (data (i32.const 4096) "{answer}")
  (func (export "alloc") (param i32) (result i32) (i32.const 8192))
  (func (export "reconcile") (param i32 i32) (result i64)
    (call $log (i32.const 1) (local.get 0) (local.get 1))
    (drop (call $call (i32.const 2048) (i32.const {asked_length})))
    (i64.const {result})))"""


def logging_guest(requested: dict[str, Any], answer: dict[str, Any]) -> bytes:
    """Return a module that logs its requests, makes one call, and answers always the same."""
    texts = {"asked": json.dumps(requested), "answer": json.dumps(answer)}
    escaped = {name: text.replace('"', '\\"') for name, text in texts.items()}
    result = 4096 << 32 | len(texts["answer"])
    return bytes(wasmtime.wat2wasm(_SAYS.format(**escaped, asked_length=len(texts["asked"]), result=result)))


_BEATS = """(module
  (import "trellis" "call" (func $call (param i32 i32) (result i32)))
  (import "wasi_snapshot_preview1" "poll_oneoff" (func $poll (param i32 i32 i32 i32) (result i32)))
  (memory (export "memory") {pages})
  (global $calls (mut i32) (i32.const 0))
  (data (i32.const 1032) "\\00")
  (data (i32.const 1040) "\\01")
  (data (i32.const 1048) "{pause}")
  (data (i32.const 2048) "{list}")
  (data (i32.const 3072) "{apply}")
  (func (export "alloc") (param i32) (result i32) (i32.const 8192))
  (func (export "reconcile") (param i32 i32) (result i64)
    (memory.fill (i32.const 65536) (i32.const 7) (i32.sub (i32.mul (memory.size) (i32.const 65536)) (i32.const 65536)))
    (global.set $calls (i32.add (global.get $calls) (i32.const 1)))
    (if (i32.le_u (global.get $calls) (i32.const {before})) (then (return (i64.const 0))))
    (loop
      (drop (call $call (i32.const 2048) (i32.const {list_length})))
      (drop (call $call (i32.const 3072) (i32.const {apply_length})))
      (drop (call $poll (i32.const 1024) (i32.const 1200) (i32.const 1) (i32.const 1300)))
      (br 0))
    (i64.const 0)))"""


def beats(namespace: str, name: str, *, before: int = 0, pages: int = 2, pause: float = 0.05) -> bytes:
    """Return a module whose call has no end: it lists ConfigMaps, then applies one, then pauses, in seconds.

    ``before``: calls that end at once; ``pages``: of 64 KiB, which it writes to.
    """
    nanoseconds = "".join(f"\\{byte:02x}" for byte in int(pause * 1e9).to_bytes(8, "little"))
    kind = {"apiVersion": "v1", "kind": "ConfigMap"}
    applied = kind | {"metadata": {"namespace": namespace, "name": name}, "data": {"beats": "on"}}
    texts = {
        "list": json.dumps({"op": "list", "namespace": namespace, "limit": 1} | kind),
        "apply": json.dumps({"op": "apply", "force": True, "object": applied}),
    }
    lengths = {f"{op}_length": len(text) for op, text in texts.items()}
    escaped = {op: text.replace('"', '\\"') for op, text in texts.items()}
    return bytes(wasmtime.wat2wasm(_BEATS.format(**escaped, **lengths, before=before, pages=pages, pause=nanoseconds)))


def with_version(version: int) -> bytes:
    """Return a module that reports its version of the ABI only when it runs, as those of Go do."""
    function = (
        f'(func (export "abi_version") (result i32) (i32.add (i32.const {version}) (i32.load8_u (i32.const 0)))))'
    )
    return bytes(wasmtime.wat2wasm(_AROUND.format(body=BODIES["good"])[:-1] + function))


def sleeping(seconds: int) -> bytes:
    """Return a module whose calls sleep for so long, which takes a thread and no processor."""
    wait = (
        f"(i64.store (i32.const 1048) (i64.const {seconds * 10**9}))"
        "(drop (call $poll (i32.const 1024) (i32.const 2048) (i32.const 1) (i32.const 3072))) (i64.const 0)"
    )
    poll = '(import "wasi_snapshot_preview1" "poll_oneoff" (func $poll (param i32 i32 i32 i32) (result i32)))'
    return bytes(wasmtime.wat2wasm(_AROUND.format(body=wait).replace("(module", f"(module {poll}", 1)))
