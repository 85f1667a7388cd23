"""Bindings of wasmtime's C API where its Python classes do not suffice: host functions, calls and deadlines.

Called by ``engine``, ``memory`` and ``instance``. wasmtime's ``Func`` stores the last exception of any host function in
a global of a Python module, so that with threads the call of another guest could raise it; it is not used here. The
bindings are private: the version is pinned exactly.
Invariants: a callback never raises, and memory of the engine is released.
"""

from __future__ import annotations

import ctypes
from collections.abc import Sequence
from typing import Any, Final

from wasmtime import Engine, FuncType, Linker, Module, Trap, TrapCode, ValType, WasmtimeError
from wasmtime import _bindings as raw
from wasmtime._ffi import dll

from controller_host.guest.binary import FunctionType

# ctypes has no useful types for these.
Pointer = Any
Context = Any
Handle = Any  # of an export
Values = Any
Callback = Any

HostCallback = raw.wasmtime_func_unchecked_callback_t
DeadlineCallback = raw._wasmtime_store_epoch_deadline_callback.argtypes[1]  # noqa: SLF001 (it has no name)
_NoFinalizer: Final = ctypes.cast(0, ctypes.CFUNCTYPE(None, ctypes.c_void_p))
_NEVER: Final = 1 << 60  # ticks
_VALUE_TYPES: Final = {"i32": ValType.i32, "i64": ValType.i64}

_memory_data: Final = ctypes.CFUNCTYPE(ctypes.c_void_p, ctypes.c_void_p, ctypes.c_void_p)(("wasmtime_memory_data", dll))


def define(linker: Linker, module: str, name: str, type_: FunctionType, callback: Callback) -> None:
    """Define a host function for all instances of an engine; ``callback`` has to outlive the linker."""
    kind = FuncType([_VALUE_TYPES[p]() for p in type_.parameters], [_VALUE_TYPES[r]() for r in type_.results])
    texts = [ctypes.create_string_buffer(text.encode()) for text in (module, name)]
    _raise(
        raw.wasmtime_linker_define_func_unchecked(
            linker.ptr(), texts[0], len(module), texts[1], len(name), kind.ptr(), callback, None, _NoFinalizer
        )
    )


def trap(message: bytes) -> int:
    """Return the address of a new trap, for a callback to return; the engine then owns it."""
    made = raw.wasmtime_trap_new(ctypes.create_string_buffer(message), len(message))
    return ctypes.cast(made, ctypes.c_void_p).value or 0


def error(message: bytes) -> int:
    """Return the address of a new error, for a deadline callback to return; the engine then owns it."""
    made = raw.wasmtime_error_new(ctypes.create_string_buffer(message))
    return ctypes.cast(made, ctypes.c_void_p).value or 0


class CallEnded(Exception):  # noqa: N818 (named after the outcome)
    """A call that did not return. ``code``: of a trap; ``text``: message of the engine, partly from the guest."""

    def __init__(self, code: TrapCode | None, text: str) -> None:
        super().__init__(code, text)
        self.code: Final = code
        self.text: Final = text


class NativeStore:
    """One store, with at most one instance. Closed by :meth:`close`, in the thread that uses it."""

    __slots__ = ("_instance", "_store", "context")

    def __init__(self, engine: Engine, memory_bytes: int, deadline: Callback) -> None:
        self._store: Pointer | None = raw.wasmtime_store_new(engine.ptr(), None, _NoFinalizer)
        self.context: Final[Context] = raw.wasmtime_store_context(self._store)
        self._instance: Final = raw.wasmtime_instance_t()
        raw.wasmtime_store_limiter(self._store, memory_bytes, -1, 1, -1, 1)
        raw.wasmtime_store_epoch_deadline_callback(self._store, deadline, None, _NoFinalizer)
        # Code initialises some segments when the instance is created: the module bounds it, and it is not a call.
        self.deadline(_NEVER)

    def deadline(self, ticks: int) -> None:
        """Call the deadline callback after this number of ticks."""
        raw.wasmtime_context_set_epoch_deadline(self.context, ticks)

    def instantiate(self, prepared: Prepared) -> None:
        """Create the instance; raise Ended on failure."""
        trapped = ctypes.POINTER(raw.wasm_trap_t)()
        failed = raw.wasmtime_instance_pre_instantiate(
            prepared.pointer, self.context, ctypes.byref(self._instance), ctypes.byref(trapped)
        )
        if failed or trapped:
            raise _call_ended(failed, trapped)

    def export(self, name: bytes) -> Handle:
        """Return the instance's export: a ``wasmtime_extern_union``. Raise KeyError if there is none."""
        item = raw.wasmtime_extern_t()
        if not raw.wasmtime_instance_export_get(
            self.context, ctypes.byref(self._instance), name, len(name), ctypes.byref(item)
        ):
            raise KeyError(name)
        return item.of

    def call(self, function: Handle, arguments: Sequence[int]) -> Values:
        """Call a function with i32 arguments; return the slots of its result. Raise Ended if it does not return."""
        values = (raw.wasmtime_val_raw_t * 2)()  # the called functions have at most two parameters and results
        for slot, argument in enumerate(arguments):
            values[slot].i32 = argument
        trapped = ctypes.POINTER(raw.wasm_trap_t)()
        failed = raw.wasmtime_func_call_unchecked(
            self.context, ctypes.byref(function), values, len(values), ctypes.byref(trapped)
        )
        if failed or trapped:
            raise _call_ended(failed, trapped)
        return values

    def close(self) -> None:
        """Release all resources; idempotent."""
        if self._store is not None:
            raw.wasmtime_store_delete(self._store)
            self._store = None

    def __del__(self) -> None:
        self.close()


class Prepared:
    """A module with its imports resolved; any thread can create instances from it."""

    __slots__ = ("_module", "pointer")

    def __init__(self, linker: Linker, module: Module) -> None:
        self._module: Final = module
        self.pointer: Pointer = ctypes.POINTER(raw.wasmtime_instance_pre_t)()
        _raise(raw.wasmtime_linker_instantiate_pre(linker.ptr(), module.ptr(), ctypes.byref(self.pointer)))

    def __del__(self) -> None:
        if self.pointer:
            raw.wasmtime_instance_pre_delete(self.pointer)


def memory_extent(context: Context, memory: Handle) -> tuple[int, int]:
    """Return the current address and size in bytes of a memory: both change when it grows."""
    handle = ctypes.byref(memory)
    size = raw.wasmtime_memory_data_size(context, handle)
    return (_memory_data(context, handle) or 0), size


def memory_grow(context: Context, memory: Handle, pages: int) -> None:
    """Grow a memory by a number of WASM pages; raise WasmtimeError if the limit is exceeded."""
    before = ctypes.c_uint64()
    _raise(raw.wasmtime_memory_grow(context, ctypes.byref(memory), pages, ctypes.byref(before)))


def global_bits(context: Context, handle: Handle, bits: int) -> int:
    """Return the bit pattern of a numeric global, of 32 or 64 bits."""
    value = raw.wasmtime_val_t()
    raw.wasmtime_global_get(context, ctypes.byref(handle), ctypes.byref(value))
    return int.from_bytes(bytes(value.of)[: bits // 8], "little")


def set_global_bits(context: Context, handle: Handle, kind: int, bits: int) -> None:
    """Set a numeric global of the engine's ``kind`` to a bit pattern."""
    value: Values = raw.wasmtime_val_t()
    value.kind = kind
    value.of.i64 = bits  # a union: write the bits, because a conversion could change a float
    _raise(raw.wasmtime_global_set(context, ctypes.byref(handle), ctypes.byref(value)))


def _raise(failed: Pointer) -> None:
    if failed:
        raise WasmtimeError._from_ptr(failed)  # noqa: SLF001 (the bindings have no other way)


def _call_ended(failed: Pointer, trapped: Pointer) -> CallEnded:
    if failed:
        return CallEnded(None, str(WasmtimeError._from_ptr(failed)))  # noqa: SLF001
    made = Trap._from_ptr(trapped)  # noqa: SLF001
    return CallEnded(made.trap_code, made.message)
