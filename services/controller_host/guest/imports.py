"""The functions that guests import, as callbacks of the engine.

Defined once per linker by :func:`define_all`; each gets its guest from the current thread. Called by the engine.
Invariant: a callback never raises: it stores the exception on its guest and traps, so that the call of this guest
raises the exception.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Final

from wasmtime import Linker

from controller_host.guest import abi, native, wasi
from controller_host.guest.binary import FunctionType
from controller_host.guest.faults import FaultKind, GuestFault
from controller_host.guest.guest import Guest, current, failed
from controller_host.guest.lines import MOST_LINE_BYTES

HostFunction = Callable[..., int | None]

TOO_LARGE: Final = (
    b'{"error": {"code": 0, "reason": "TooLarge", "message": "more than 4 MiB: use limit and selectors"}}'
)


def _call(guest: Guest, pointer: int, length: int) -> int:
    if length > abi.MOST_BYTES:
        guest.memory.check(pointer, length)
        answer = TOO_LARGE
    else:
        request = guest.memory.read(pointer, length)
        with guest.budget.of_host():
            answer = _call_host(guest, request)
    guest.answer = answer if len(answer) <= abi.MOST_BYTES else TOO_LARGE
    return len(guest.answer)


def _call_host(guest: Guest, request: bytes) -> bytes:
    try:
        return guest.host.call(request)
    except Exception as error:
        raise GuestFault(FaultKind.HOST_FAILED, f"the host failed on a request: {type(error).__name__}") from error


def _take(guest: Guest, pointer: int) -> None:
    if guest.answer is None:
        raise GuestFault(FaultKind.NOTHING_TO_TAKE, "it called `take` without a `call` before it")
    guest.memory.write(pointer, guest.answer)


def _log(guest: Guest, level: int, pointer: int, length: int) -> None:
    guest.memory.check(pointer, length)
    if guest.lines.full():
        guest.lines.line(level, "")
    else:
        text = guest.memory.read(pointer, min(length, MOST_LINE_BYTES)).decode(errors="replace")
        guest.lines.line(level if level < 1 << 31 else 0, text)


def _now(_guest: Guest) -> int:
    return time.time_ns()


def _random(guest: Guest, pointer: int, length: int) -> None:
    wasi.random_get(guest, pointer, length)


def _requeue(guest: Guest, milliseconds: int) -> None:
    wished = milliseconds if milliseconds < 1 << 63 else 0  # a negative number means immediately
    guest.requeue_ms = wished if guest.requeue_ms is None else min(wished, guest.requeue_ms)


_TRELLIS: Final[dict[str, HostFunction]] = {
    "call": _call,
    "take": _take,
    "log": _log,
    "now": _now,
    "monotonic": Guest.monotonic,
    "random": _random,
    "requeue": _requeue,
}


def define_all(linker: Linker) -> None:
    """Define all functions that a guest can import."""
    for name, callback in _TRELLIS_CALLBACKS.items():
        native.define(linker, "trellis", name, abi.TRELLIS[name], callback)
    for name, callback in _WASI_CALLBACKS.items():
        native.define(linker, "wasi_snapshot_preview1", name, abi.WASI[name], callback)


def _callback(function: HostFunction, type_: FunctionType) -> native.Callback:
    wide = [parameter == "i64" for parameter in type_.parameters]
    results = type_.results

    def called(_environment: object, _caller: object, values: native.Values, _count: int) -> int:
        try:
            guest = current()
            arguments = [
                values[at].i64 & 0xFFFF_FFFF_FFFF_FFFF if is_wide else values[at].i32 & 0xFFFF_FFFF
                for at, is_wide in enumerate(wide)
            ]
            result = function(guest, *arguments)
            if results:
                values[0].i64 = result
        except BaseException as error:  # noqa: BLE001 (a callback must not raise; the call raises the error)
            failed(error)
            return native.trap(b"ended by the host")
        return 0

    return native.HostCallback(called)


_TRELLIS_CALLBACKS: Final = {name: _callback(_TRELLIS[name], kind) for name, kind in abi.TRELLIS.items()}
_WASI_CALLBACKS: Final = {name: _callback(wasi.function(name), kind) for name, kind in abi.WASI.items()}


def _looked_at(_context: object, _data: object, delta: native.Values, kind: native.Values) -> int:
    """Continue or end the guest at a deadline: the engine calls this after the number of ticks."""
    try:
        guest = current()
        if guest.stopped() is None:
            delta[0] = guest.budget.ticks()
            kind[0] = 0  # go on
            return 0
    except BaseException as error:  # noqa: BLE001 (as above)
        failed(error)
    return native.error(b"ended by the host")


LOOKED_AT: Final = native.DeadlineCallback(_looked_at)
"""Deadline callback of every store."""
