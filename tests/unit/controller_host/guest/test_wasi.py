"""WASI preview 1 as guests of Go, Rust and C use it, without anything that would have to be kept."""

from __future__ import annotations

import struct

import pytest

from controller_host.guest import abi
from controller_host.guest.faults import FaultKind, GuestFault
from controller_host.guest.instance import Instance
from controller_host.guest.limits import Limits
from controller_host.guest.lines import WARNING
from controller_host.guest.modules import Modules
from controller_host.guest.wasi import BADF, INVAL, NOSYS, SPIPE, SUCCESS
from support.guests import wat

RESULT = 60000
"""Where the guest of these tests puts the errno."""


def ran(modules: Modules, name: str, *arguments: int, memory: dict[int, bytes] | None = None) -> Ran:
    """Call a function of WASI from a guest, with the memory prepared."""
    kind = abi.WASI[name]
    parameters = " ".join(kind.parameters)
    results = f"(result {kind.results[0]})" if kind.results else ""
    pushed = " ".join(f"({k}.const {value})" for k, value in zip(kind.parameters, arguments, strict=True))
    data = "".join(wat.data(at, raw) for at, raw in (memory or {}).items())
    call = f"(call $f {pushed})"
    wasm = wat.guest(
        f"(i32.store (i32.const {RESULT}) {call if results else '(i32.const 0)'}) i64.const 0",
        imports=f'(import "wasi_snapshot_preview1" "{name}" (func $f (param {parameters}) {results}))',
        more=data,
    )
    host = wat.RecordingHost()
    instance = Instance.boot(modules.load(wasm), Limits(memory_bytes=1 << 20), host)
    instance.call("reconcile", b"{}")
    return Ran(instance, host)


class Ran:
    def __init__(self, instance: Instance, host: wat.RecordingHost) -> None:
        self.instance = instance
        self.host = host

    @property
    def errno(self) -> int:
        return int(struct.unpack("<I", self.memory(RESULT, 4))[0])

    def memory(self, pointer: int, length: int) -> bytes:
        return self.instance.guest.memory.read(pointer, length)


@pytest.mark.parametrize("name", sorted(set(abi.WASI) - {"proc_exit"}))
def test_every_function_is_there_and_answers_an_errno(name: str, modules: Modules) -> None:
    answered = ran(modules, name, *(4096 for _ in abi.WASI[name].parameters)).errno
    assert answered in {SUCCESS, BADF, INVAL, NOSYS, SPIPE}


@pytest.mark.parametrize("name", ["fd_prestat_get", "fd_prestat_dir_name", "path_open", "fd_readdir", "sock_recv"])
def test_there_are_no_files_and_no_sockets(name: str, modules: Modules) -> None:
    assert ran(modules, name, *(3 for _ in abi.WASI[name].parameters)).errno == BADF


def test_output_is_logged_by_line_and_partial_lines_at_the_end_of_the_call(modules: Modules) -> None:
    vectors = struct.pack("<IIII", 300, 6, 400, 9)
    done = ran(modules, "fd_write", 1, 100, 2, 200, memory={100: vectors, 300: b"one\ntw", 400: b"o\x1b[1m\nend"})
    assert done.errno == SUCCESS
    assert done.memory(200, 4) == struct.pack("<I", 15)
    assert done.host.lines == [(1, "one"), (1, "two [1m"), (1, "end")]


def test_nothing_but_the_three_streams_is_written_or_read(modules: Modules) -> None:
    assert ran(modules, "fd_write", 3, 100, 0, 200).errno == BADF
    assert ran(modules, "fd_write", 0, 100, 0, 200).errno == BADF
    assert ran(modules, "fd_read", 1, 100, 0, 200).errno == BADF
    assert ran(modules, "fd_write", 1, 100, 1025, 200).errno == INVAL
    end_of_file = ran(modules, "fd_read", 0, 100, 0, 200, memory={200: b"\7\7\7\7"})
    assert (end_of_file.errno, end_of_file.memory(200, 4)) == (SUCCESS, bytes(4))


def test_a_stream_is_a_character_device(modules: Modules) -> None:
    stat = ran(modules, "fd_fdstat_get", 1, 100)
    assert (stat.errno, stat.memory(100, 1)) == (SUCCESS, b"\2")
    assert ran(modules, "fd_fdstat_get", 3, 100).errno == BADF
    assert ran(modules, "fd_seek", 1, 0, 0, 100).errno == SPIPE


def test_output_that_does_not_lie_in_memory_is_the_guests_fault(modules: Modules) -> None:
    with pytest.raises(GuestFault) as fault:
        ran(modules, "fd_write", 1, 100, 1, 200, memory={100: struct.pack("<II", 8, 0xFFFF_FFFF)})
    assert fault.value.kind is FaultKind.BAD_POINTER


def test_a_flood_of_output_is_bounded(modules: Modules) -> None:
    vectors = struct.pack("<II", 0, 65536) * 1024
    wasm = wat.guest(
        "(drop (call $f (i32.const 1) (i32.const 65536) (i32.const 1024) (i32.const 80000))) i64.const 0",
        imports='(import "wasi_snapshot_preview1" "fd_write" (func $f (param i32 i32 i32 i32) (result i32)))',
        memory='(memory (export "memory") 4)',
        more=wat.data(65536, vectors) + wat.data(10, b"\n"),
    )
    host = wat.RecordingHost()
    Instance.boot(modules.load(wasm), Limits(cpu_seconds=30), host).call("reconcile", b"{}")
    assert len(host.lines) == 101
    assert host.lines[-1][0] == WARNING


def test_clocks_are_available_and_other_imports_are_not(modules: Modules) -> None:
    real = ran(modules, "clock_time_get", 0, 0, 100)
    assert int.from_bytes(real.memory(100, 8), "little") > 1_700_000_000_000_000_000
    first = int.from_bytes(ran(modules, "clock_time_get", 1, 0, 100).memory(100, 8), "little")
    assert int.from_bytes(ran(modules, "clock_time_get", 1, 0, 100).memory(100, 8), "little") > first
    assert ran(modules, "clock_time_get", 2, 0, 100).errno == INVAL
    assert ran(modules, "clock_res_get", 9, 100).errno == INVAL


def test_random_numbers_fill_the_requested_buffer(modules: Modules) -> None:
    filled = ran(modules, "random_get", 0, 50000)
    assert filled.memory(0, 50000).count(0) < 1000
    with pytest.raises(GuestFault):
        ran(modules, "random_get", 0, 70000)


def clock(user: int, timeout: int, *, absolute: bool = False, number: int = 1) -> bytes:
    return struct.pack("<QB7xI4xQQH6x", user, 0, number, timeout, 0, absolute)


def stream(user: int, kind: int, fd: int) -> bytes:
    return struct.pack("<QB7xI28x", user, kind, fd)


def events(done: Ran) -> list[tuple[int, int, int]]:
    (count,) = struct.unpack("<I", done.memory(2000, 4))
    return [struct.unpack("<QHB", done.memory(1000 + 32 * at, 11)) for at in range(count)]


def test_sleeping_ends_with_the_first_clock(modules: Modules) -> None:
    polled = clock(7, 10**12) + clock(8, 1_000_000) + clock(9, 5, absolute=True)
    done = ran(modules, "poll_oneoff", 100, 1000, 3, 2000, memory={100: polled})
    assert events(done) == [(9, SUCCESS, 0)]
    done = ran(modules, "poll_oneoff", 100, 1000, 2, 2000, memory={100: polled})
    assert events(done) == [(8, SUCCESS, 0)]


def test_streams_are_ready_at_once_and_others_are_not_there(modules: Modules) -> None:
    polled = stream(1, 1, 0) + stream(2, 2, 1) + stream(3, 1, 5) + clock(4, 10**12)
    done = ran(modules, "poll_oneoff", 100, 1000, 4, 2000, memory={100: polled})
    assert events(done) == [(1, SUCCESS, 1), (2, SUCCESS, 2), (3, BADF, 1)]
    assert ran(modules, "poll_oneoff", 100, 1000, 0, 2000).errno == INVAL
    assert ran(modules, "poll_oneoff", 100, 1000, 1025, 2000).errno == INVAL
