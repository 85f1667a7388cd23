"""A guest that carries out the commands of its request: it stores, grows, sets globals. Its requests are bytes, not
JSON.

A request is a row of commands of 12 bytes: what, and two numbers.
"""

from __future__ import annotations

import struct
from typing import Final

from controller_host.guest.instance import Instance
from controller_host.guest.limits import Limits
from controller_host.guest.modules import Module, Modules
from support.guests import wat

STORE, GROW, SET_I32, SET_I64, SET_F32, SET_F64, TELL, CLOCK = range(8)
GLOBALS_AT: Final = 64
"""Where ``TELL`` puts the globals: i32, i64, f32, f64, in 8 bytes each."""
CLOCK_AT: Final = 128
REQUEST_AT: Final = 65536
LIMITS: Final = Limits(memory_bytes=8 << 20, cpu_seconds=60, wall_seconds=60)

_GLOBALS: Final = """(global $i (mut i32) i32.const -7) (global $l (mut i64) i64.const -9000000000)
  (global $f (mut f32) f32.const nan:0x200001) (global $d (mut f64) f64.const -0.0)
  (data (i32.const 200) "initial data")"""
_WIDE: Final = "(i64.or (i64.shl (i64.extend_i32_u (local.get $x)) (i64.const 32)) (i64.extend_i32_u (local.get $y)))"
_DOES: Final = {
    STORE: "(i32.store (local.get $x) (local.get $y))",
    GROW: "(drop (memory.grow (local.get $x)))",
    SET_I32: "(global.set $i (local.get $x))",
    SET_I64: f"(global.set $l {_WIDE})",
    SET_F32: "(global.set $f (f32.reinterpret_i32 (local.get $x)))",
    SET_F64: f"(global.set $d (f64.reinterpret_i64 {_WIDE}))",
    TELL: f"""(i32.store (i32.const {GLOBALS_AT}) (global.get $i))
      (i64.store (i32.const {GLOBALS_AT + 8}) (global.get $l))
      (f32.store (i32.const {GLOBALS_AT + 16}) (global.get $f))
      (f64.store (i32.const {GLOBALS_AT + 24}) (global.get $d))""",
    CLOCK: f"(i64.store (i32.const {CLOCK_AT}) (call $monotonic))",
}
_BODY: Final = (
    """(local $what i32) (local $x i32) (local $y i32) (local $end i32)
  (local.set $end (i32.add (local.get $p) (local.get $n)))
  (block $done (loop $next
    (br_if $done (i32.ge_u (local.get $p) (local.get $end)))
    (local.set $what (i32.load (local.get $p)))
    (local.set $x (i32.load offset=4 (local.get $p)))
    (local.set $y (i32.load offset=8 (local.get $p)))"""
    + "".join(f"(if (i32.eq (local.get $what) (i32.const {what})) (then {does}))" for what, does in _DOES.items())
    + "(local.set $p (i32.add (local.get $p) (i32.const 12))) (br $next))) i64.const 0"
)

Command = tuple[int, int, int]


def module(modules: Modules, pages: int = 3, more: str = "") -> Module:
    """Return the guest's module; it begins with so many pages of 64 KiB, and has ``more`` fields."""
    return modules.load(
        wat.guest(
            _BODY,
            imports='(import "trellis" "monotonic" (func $monotonic (result i64)))',
            memory=f'(memory (export "memory") {pages})',
            alloc=f"i32.const {REQUEST_AT}",
            more=_GLOBALS + more,
        )
    )


def boot(module_: Module, limits: Limits = LIMITS) -> Instance:
    """Start the guest cold."""
    return Instance.boot(module_, limits, wat.RecordingHost())


def do(instance: Instance, *commands: Command) -> None:
    """Have the guest do all that."""
    instance.call("reconcile", b"".join(struct.pack("<III", *command) for command in commands))


def state(instance: Instance) -> bytes:
    """Return all the guest has: its memory, with its globals in it."""
    do(instance, (TELL, 0, 0))
    return instance.guest.memory.read(0, instance.guest.memory.size())


def clock(instance: Instance) -> int:
    """Return the time of the guest's monotonic clock."""
    do(instance, (CLOCK, 0, 0))
    return int.from_bytes(instance.guest.memory.read(CLOCK_AT, 8), "little")
