"""Calls: requests and answers, and a failing guest that is named and affects no other."""

from __future__ import annotations

import threading
import time
from concurrent.futures import ThreadPoolExecutor

import pytest

from controller_host.guest import abi, instance, lines
from controller_host.guest.faults import FaultKind, GuestFault
from controller_host.guest.instance import Instance
from controller_host.guest.limits import Limits
from controller_host.guest.modules import ModuleRefused, Modules, RefusalReason
from support.guests import wat
from support.suite.naming import lacking

CALL = '(import "trellis" "call" (func $call (param i32 i32) (result i32)))'
TAKE = '(import "trellis" "take" (func $take (param i32)))'
LOG = '(import "trellis" "log" (func $log (param i32 i32 i32)))'
REQUEUE = '(import "trellis" "requeue" (func $requeue (param i64)))'
SLEEP = """(import "wasi_snapshot_preview1" "poll_oneoff" (func $poll (param i32 i32 i32 i32) (result i32)))"""
TINY = Limits(memory_bytes=1 << 20, cpu_seconds=0.1, wall_seconds=60)
SHORT = Limits(wall_seconds=1)
COUNTS = ("(global $calls (mut i32) i32.const 0)", "(global.set $calls (i32.add (global.get $calls) (i32.const 1)))")


def boot(modules: Modules, wasm: bytes, limits: Limits = TINY, host: wat.RecordingHost | None = None) -> Instance:
    return Instance.boot(modules.load(wasm), limits, host or wat.RecordingHost())


def echo() -> bytes:
    """A guest that returns its request."""
    return wat.guest(
        "(i64.or (i64.shl (i64.extend_i32_u (local.get $p)) (i64.const 32)) (i64.extend_i32_u (local.get $n)))"
    )


def test_a_request_goes_in_and_the_answer_comes_out(modules: Modules) -> None:
    guest = boot(modules, echo())
    assert guest.call("reconcile", b'{"key": "\xc3\xa4"}').answer == b'{"key": "\xc3\xa4"}'
    assert boot(modules, wat.guest()).call("reconcile", b"{}").answer == b"{}"


def test_the_start_function_runs_before_initialize_and_both_once(modules: Modules) -> None:
    data, result = wat.json_at(64, '{"order": "12"}')
    more = f"""{data} (global $at (mut i32) i32.const 75)
      (func $put (param i32) (i32.store8 (global.get $at) (local.get 0))
        (global.set $at (i32.add (global.get $at) (i32.const 1))))
      (func $start (call $put (i32.const 0x61))) (start $start)
      (func (export "_initialize") (call $put (i32.const 0x62)))"""
    guest = boot(modules, wat.guest(result, more=more))
    assert guest.call("reconcile", b"{}").answer == b'{"order": "ab"}'
    assert guest.call("reconcile", b"{}").answer == b'{"order": "ab"}'


def test_a_guest_asks_its_host_and_takes_the_answer(modules: Modules) -> None:
    data, result = wat.json_at(200, '{"a": 1}')
    body = f"(drop (call $call (local.get $p) (local.get $n))) (call $take (i32.const 200)) {result}"
    host = wat.RecordingHost(answer=b'{"b": 2}')
    guest = boot(modules, wat.guest(body, imports=CALL + TAKE, more=data), host=host)
    assert guest.call("reconcile", b'{"op": "get"}').answer == b'{"b": 2}'
    assert host.requests == [b'{"op": "get"}']
    assert guest.guest.answer is None, "nothing of it stays in the host's memory"


def test_the_shortest_requeue_counts_and_does_not_outlive_its_call(modules: Modules) -> None:
    body = """(if (i32.eq (local.get $n) (i32.const 2))
      (then (call $requeue (i64.const 500)) (call $requeue (i64.const 20)) (call $requeue (i64.const 900))))
      i64.const 0"""
    guest = boot(modules, wat.guest(body, imports=REQUEUE))
    assert guest.call("reconcile", b"{}").requeue_ms == 20
    assert guest.call("reconcile", b"{ }").requeue_ms is None


def test_lines_are_bounded_in_number_and_length_and_printable(modules: Modules) -> None:
    body = """(local $i i32)
      (loop (call $log (i32.const 9) (i32.const 0) (i32.const 60000))
        (br_if 0 (i32.lt_u (local.tee $i (i32.add (local.get $i) (i32.const 1))) (i32.const 1000)))) i64.const 0"""
    host = wat.RecordingHost()
    boot(modules, wat.guest(body, imports=LOG), host=host).call("reconcile", b"{}")
    assert len(host.lines) == lines.MOST_LINES + 1
    level, last = host.lines[-1]
    assert (level, lacking(last, "900")) == (2, [])
    assert all(len(text) <= lines.LONGEST_LINE and text.isprintable() for _, text in host.lines)
    assert {level for level, _ in host.lines[:-1]} == {3}


FAULTS = {
    "a trap": (wat.guest("unreachable"), FaultKind.TRAPPED, "reconcile: unreachable"),
    "a division by zero": (
        wat.guest("(drop (i32.div_u (i32.const 1) (i32.const 0))) i64.const 0"),
        FaultKind.TRAPPED, "integer division by zero"),
    "a load outside of its memory": (
        wat.guest("(drop (i32.load (i32.const -1))) i64.const 0"), FaultKind.TRAPPED, "memory out of bounds"),
    "an endless loop": (wat.guest("(loop br 0) i64.const 0"), FaultKind.CPU_EXCEEDED, "0.1 s of processor time"),
    "an endless loop in alloc": (wat.guest(alloc="(loop br 0) i32.const 0"), FaultKind.CPU_EXCEEDED, "cpuPerCall"),
    "endless recursion": (
        wat.guest("(call $reconcile (local.get $p) (local.get $n))"), FaultKind.STACK_EXHAUSTED, "too deeply"),
    "a giant result": (wat.guest("i64.const 0x0000000010000000"), FaultKind.RESULT_TOO_LARGE, "268435456 bytes"),
    "a result outside of its memory": (wat.guest("i64.const 0xffff000000000020"), FaultKind.BAD_POINTER, "0xffff0000"),
    "a result that wraps around": (wat.guest("i64.const 0xffffffff00000002"), FaultKind.BAD_POINTER, "0xffffffff"),
    "a result that is not JSON": (wat.guest("i64.const 0x20"), FaultKind.BAD_RESULT, "not JSON"),
    "a result that is no object": (
        wat.guest(wat.json_at(64, "[1]")[1], more=wat.json_at(64, "[1]")[0]), FaultKind.BAD_RESULT, "a JSON list"),
    "an alloc without room": (wat.guest(alloc="i32.const 0"), FaultKind.MEMORY_EXCEEDED, "for a request of 2 bytes"),
    "an alloc outside of its memory": (wat.guest(alloc="i32.const -2"), FaultKind.BAD_POINTER, "0xfffffffe"),
    "a memory bomb": (
        wat.guest("(loop (br_if 0 (i32.ne (memory.grow (i32.const 1)) (i32.const -1)))) unreachable"),
        FaultKind.MEMORY_EXCEEDED, "1048576 of at most 1048576 bytes"),
    "a request of the host outside of its memory": (
        wat.guest("(drop (call $call (i32.const 8) (i32.const -1))) i64.const 0", imports=CALL),
        FaultKind.BAD_POINTER, "4294967295 bytes at 0x8"),
    "taking what was not asked for": (
        wat.guest("(call $take (i32.const 8)) i64.const 0", imports=TAKE),
        FaultKind.NOTHING_TO_TAKE, "without a `call`"),
    "taking it to where no room is": (
        wat.guest("(drop (call $call (i32.const 8) (i32.const 2))) (call $take (i32.const 65530)) i64.const 0",
                  imports=CALL + TAKE), FaultKind.BAD_POINTER, "0xfffa"),
    "a line outside of its memory": (
        wat.guest("(call $log (i32.const 1) (i32.const -1) (i32.const -1)) i64.const 0", imports=LOG),
        FaultKind.BAD_POINTER, "0xffffffff"),
    "an exit": (
        wat.guest("(call $exit (i32.const 3)) i64.const 0",
                  imports='(import "wasi_snapshot_preview1" "proc_exit" (func $exit (param i32)))'),
        FaultKind.EXITED, "status 3"),
}  # fmt: skip


@pytest.mark.parametrize("case", FAULTS)
def test_the_fault_is_named_and_a_neighbour_goes_on_after(case: str, modules: Modules) -> None:
    wasm, kind, expected_text = FAULTS[case]
    neighbour = boot(modules, echo())
    guest = boot(modules, wasm)
    with pytest.raises(GuestFault) as fault:
        guest.call("reconcile", b"{}")
    assert (fault.value.kind, expected_text in fault.value.message) == (kind, True), fault.value
    assert fault.value.message.isprintable()
    assert guest.closed
    with pytest.raises(RuntimeError, match="gone"):
        guest.call("reconcile", b"{}")
    assert neighbour.call("reconcile", b'{"still": "here"}').answer == b'{"still": "here"}'


def test_a_guest_that_sleeps_too_long_is_ended_by_the_clock(modules: Modules) -> None:
    body = """(i64.store (i32.const 24) (i64.const 60000000000))
      (drop (call $poll (i32.const 0) (i32.const 100) (i32.const 1) (i32.const 200))) i64.const 0"""
    guest = boot(modules, wat.guest(body, imports=SLEEP), SHORT)
    with pytest.raises(GuestFault, match=r"\b1 s\b") as fault:
        guest.call("reconcile", b"{}")
    assert fault.value.kind is FaultKind.TIME_EXCEEDED


def test_a_memory_that_begins_above_its_limit_is_not_started(modules: Modules) -> None:
    with pytest.raises(GuestFault, match=r"\b2097152\b.*\b1048576\b") as fault:
        boot(modules, wat.guest(memory='(memory (export "memory") 32)'))
    assert fault.value.kind is FaultKind.MEMORY_EXCEEDED


def test_memory_beyond_the_limit_is_refused_to_the_guest_and_it_goes_on(modules: Modules) -> None:
    data, result = wat.json_at(64, "{}")
    body = f"(if (i32.ne (memory.grow (i32.const 16)) (i32.const -1)) (then unreachable)) {result}"
    guest = boot(modules, wat.guest(body, more=data))
    assert guest.call("reconcile", b"{}").answer == b"{}"


def test_a_start_that_fails_is_named(modules: Modules) -> None:
    with pytest.raises(GuestFault, match="starting: unreachable"):
        boot(modules, wat.guest(more="(func $s unreachable) (start $s)"))


def test_a_version_known_only_to_the_guest_is_requested_at_start(modules: Modules) -> None:
    def version(number: int) -> bytes:
        return wat.guest(
            more=f'(func (export "abi_version") (result i32) (i32.add (i32.const {number}) (i32.const 1)))'
        )

    assert boot(modules, version(0)).module.abi is None
    with pytest.raises(ModuleRefused, match="version 9 of the ABI") as refused:
        boot(modules, version(8))
    assert refused.value.reason is RefusalReason.UNSUPPORTED_ABI


def test_a_guest_that_traps_on_its_version_call_is_named(modules: Modules) -> None:
    traps = wat.guest(more='(func (export "abi_version") (result i32) unreachable)')
    with pytest.raises(GuestFault, match="starting: unreachable"):
        boot(modules, traps)


def test_a_closed_instance_cannot_be_used(modules: Modules) -> None:
    guest = boot(modules, wat.guest())
    guest.close()
    guest.close()
    for touch in (guest.guest.memory.size, guest.resident_bytes, lambda: guest.call("reconcile", b"{}")):
        with pytest.raises(RuntimeError, match="gone"):
            touch()


def test_segments_that_are_written_by_code_are_no_call_of_the_guest(modules: Modules) -> None:
    """A segment beyond the memory's end traps as the instance is made, whether or not the epoch has gone on."""
    for _ in range(3):
        modules.engine.native.increment_epoch()
    outside = wat.guest(more='(data (i32.const 70000) "x")')
    with pytest.raises(GuestFault) as fault:
        boot(modules, outside)
    assert fault.value.kind is FaultKind.TRAPPED
    table = wat.guest(more="(table 1 funcref) (elem (i32.const 1) func $alloc)")
    with pytest.raises(GuestFault) as fault:
        boot(modules, table)
    assert fault.value.kind is FaultKind.TRAPPED


class Failing(wat.RecordingHost):
    def call(self, request: bytes) -> bytes:  # noqa: ARG002
        raise LookupError("a secret of the host")


def test_an_exception_of_the_host_ends_only_the_guest_that_called(modules: Modules) -> None:
    asks = wat.guest("(drop (call $call (i32.const 8) (i32.const 2))) i64.const 0", imports=CALL)
    failing = boot(modules, asks, host=Failing())
    with pytest.raises(GuestFault, match="LookupError") as fault:
        failing.call("reconcile", b"{}")
    assert fault.value.kind is FaultKind.HOST_FAILED
    assert isinstance(fault.value.__cause__, LookupError)
    assert "secret" not in fault.value.message
    other = boot(modules, wat.guest("unreachable"))
    with pytest.raises(GuestFault) as trap:
        other.call("reconcile", b"{}")
    assert trap.value.kind is FaultKind.TRAPPED
    assert trap.value.__cause__ is None


def test_an_answer_above_the_bound_and_a_request_above_it_are_answered_as_too_large(modules: Modules) -> None:
    body = """(drop (call $call (i32.const 0) (local.get $n))) (call $take (i32.const 1024))
      (i64.or (i64.shl (i64.const 1024) (i64.const 32))
        (i64.extend_i32_u (call $call (i32.const 0) (i32.const 0x400001))))"""
    wasm = wat.guest(body, imports=CALL + TAKE, memory='(memory (export "memory") 80)')
    host = wat.RecordingHost(answer=b" " * (abi.MOST_BYTES + 1))
    guest = boot(modules, wasm, Limits(), host)
    assert b'"TooLarge"' in guest.call("reconcile", b"{}").answer
    assert len(host.requests) == 1


def test_an_answer_does_not_outlive_the_call_it_was_asked_in(modules: Modules) -> None:
    body = """(if (i32.eq (local.get $n) (i32.const 2))
      (then (drop (call $call (i32.const 8) (i32.const 2)))) (else (call $take (i32.const 8)))) i64.const 0"""
    guest = boot(modules, wat.guest(body, imports=CALL + TAKE))
    guest.call("reconcile", b"{}")
    with pytest.raises(GuestFault) as fault:
        guest.call("reconcile", b"{ }")
    assert fault.value.kind is FaultKind.NOTHING_TO_TAKE


class Busy(wat.RecordingHost):
    def call(self, request: bytes) -> bytes:
        end = time.thread_time() + 3 * TINY.cpu_seconds
        while time.thread_time() < end:
            pass
        return super().call(request)


def test_the_processor_time_of_the_host_is_not_the_guests(modules: Modules) -> None:
    body = "(drop (call $call (i32.const 8) (i32.const 2))) (loop (br_if 0 (i32.const 0))) i64.const 0"
    called = boot(modules, wat.guest(body, imports=CALL), host=Busy()).call("reconcile", b"{}")
    assert called.cpu_seconds < TINY.cpu_seconds


class Slow(wat.RecordingHost):
    def call(self, request: bytes) -> bytes:
        threading.Event().wait(1.5)
        return super().call(request)


def test_the_time_of_the_host_is_not_the_guests(modules: Modules) -> None:
    asks = wat.guest("(drop (call $call (i32.const 8) (i32.const 2))) i64.const 0", imports=CALL)
    called = boot(modules, asks, SHORT, Slow()).call("reconcile", b"{}")
    assert called.host_seconds >= SHORT.wall_seconds
    assert called.wall_seconds < called.host_seconds


def test_a_guest_that_asks_its_host_for_ever_is_ended_too(modules: Modules) -> None:
    body = "(loop (drop (call $call (i32.const 8) (i32.const 2))) br 0) i64.const 0"
    with pytest.raises(GuestFault) as fault:
        boot(modules, wat.guest(body, imports=CALL)).call("reconcile", b"{}")
    assert fault.value.kind in {FaultKind.CPU_EXCEEDED, FaultKind.TIME_EXCEEDED}


def test_a_call_can_be_interrupted_from_another_thread(modules: Modules) -> None:
    began = threading.Event()

    class Telling(wat.RecordingHost):
        def call(self, request: bytes) -> bytes:
            began.set()
            return super().call(request)

    body = "(drop (call $call (i32.const 8) (i32.const 2))) (loop br 0) i64.const 0"
    guest = boot(modules, wat.guest(body, imports=CALL), Limits(cpu_seconds=60, wall_seconds=60), Telling())
    with ThreadPoolExecutor(1) as pool:
        call = pool.submit(guest.call, "reconcile", b"{}")
        assert began.wait(10)
        guest.interrupt()
        with pytest.raises(GuestFault) as fault:
            call.result(10)
    assert fault.value.kind is FaultKind.INTERRUPTED


def test_a_call_of_the_guest_from_its_own_host_call_is_reported(modules: Modules) -> None:
    class Recursive(wat.RecordingHost):
        def call(self, request: bytes) -> bytes:
            return guest.call("reconcile", request).answer

    asks = wat.guest("(drop (call $call (i32.const 8) (i32.const 2))) i64.const 0", imports=CALL)
    guest = boot(modules, asks, host=Recursive())
    with pytest.raises(GuestFault) as fault:
        guest.call("reconcile", b"{}")
    assert isinstance(fault.value.__cause__, RuntimeError)


@pytest.mark.thorough
def test_sixty_four_guests_at_once_do_not_see_each_other(modules: Modules) -> None:
    """A third traps, a third loops, a third answers: each ends by itself, whatever guests run beside it."""
    data, result = wat.json_at(64, '{"ok": true}')
    answers = modules.load(wat.guest(f"{COUNTS[1]} {result}", more=data + COUNTS[0]))
    kinds = {
        0: (answers, None),
        1: (modules.load(wat.guest("unreachable")), FaultKind.TRAPPED),
        2: (modules.load(wat.guest("(loop br 0) i64.const 0")), FaultKind.CPU_EXCEEDED),
    }
    gate = threading.Barrier(64)

    def run(number: int) -> bool:
        module, expected = kinds[number % 3]
        guest = Instance.boot(module, Limits(cpu_seconds=0.05, wall_seconds=60), wat.RecordingHost())
        gate.wait()
        try:
            for _ in range(20):
                assert guest.call("reconcile", b"{}").answer == b'{"ok": true}'
        except GuestFault as fault:
            return fault.kind is expected
        return expected is None

    with ThreadPoolExecutor(64) as pool:
        assert all(pool.map(run, range(64)))


def test_a_guest_that_recurses_into_the_host_on_a_small_stack_traps(modules: Modules) -> None:
    """The deepest call of a guest is one of the host's: Python has to find room below it."""
    body = "(drop (call $call (i32.const 8) (i32.const 2))) (call $reconcile (local.get $p) (local.get $n))"
    module = modules.load(wat.guest(body, imports=CALL))
    kinds: list[FaultKind] = []

    def run() -> None:
        guest = Instance.boot(module, Limits(cpu_seconds=30, wall_seconds=60), wat.RecordingHost())
        try:
            guest.call("reconcile", b"{}")
        except GuestFault as fault:
            kinds.append(fault.kind)

    before = threading.stack_size(instance.THREAD_STACK_BYTES)
    try:
        thread = threading.Thread(target=run)
        thread.start()
    finally:
        threading.stack_size(before)
    thread.join(60)
    assert kinds == [FaultKind.STACK_EXHAUSTED]


def test_nothing_ticks_while_no_guest_runs(modules: Modules) -> None:
    boot(modules, wat.guest()).call("reconcile", b"{}")
    ticker = modules.engine.ticker
    deadline = time.monotonic() + 10
    while ticker.ticking() and time.monotonic() < deadline:
        threading.Event().wait(0.01)
    assert not ticker.ticking()
