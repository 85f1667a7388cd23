"""A running guest: started, called, ended; suspended to disk and woken by ``suspending``.

In: a module, limits, a host, requests as JSON. Out: answers as JSON, or a :class:`GuestFault`. Called from pool
threads, one at a time for an instance. Invariants: after a fault the instance is closed, and other instances are not
affected; a call contains all its input.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, Final

import orjson
from wasmtime import TrapCode

from controller_host.guest import abi, native
from controller_host.guest.binary import WASM_PAGE
from controller_host.guest.faults import FaultKind, GuestFault
from controller_host.guest.guest import Guest, Host, running
from controller_host.guest.imports import LOOKED_AT
from controller_host.guest.limits import Limits
from controller_host.guest.memory import Memory
from controller_host.guest.modules import Module
from controller_host.guest.rewriting import START_EXPORT, check_version
from controller_host.guest.snapshots import Identity, Snapshot, SnapshotLost, Snapshots
from controller_host.guest.suspending import State, Suspended

THREAD_STACK_BYTES: Final = 1536 << 10
"""Minimum stack of a thread that runs guests: 512 KiB for the guest, the rest for Python below its deepest call."""


@dataclass(frozen=True, slots=True)
class Called:
    """Result of a call. ``answer``: a JSON object; ``requeue_ms``: the shortest that the guest requested, if any.

    Seconds: CPU time of the guest; wall-clock time without the calls to the host; time of the calls to the host.
    """

    answer: bytes
    requeue_ms: int | None
    cpu_seconds: float
    wall_seconds: float
    host_seconds: float


class Instance:
    """A guest in memory. Created by :meth:`boot` or :meth:`wake`; their caller closes it."""

    def __init__(self, module: Module, limits: Limits, host: Host) -> None:
        self.module: Final = module
        self._busy: Final = threading.Lock()
        self._functions: Final[dict[str, Any]] = {}
        self.store: Final = native.NativeStore(module.engine.native, limits.memory_bytes, LOOKED_AT)
        self.closed = False
        self.abi: int | None = module.abi
        """ABI version of the module; None after a wake if only the module can return it: checked at its boot."""
        self._claimed: tuple[Snapshots, str] | None = None
        if module.memory_pages * WASM_PAGE > limits.memory_bytes:
            self.store.close()
            raise GuestFault(
                FaultKind.MEMORY_EXCEEDED,
                f"its initial memory is {module.memory_pages * WASM_PAGE} bytes, the limit is {limits.memory_bytes} "
                "(spec.limits.memory)",
            )
        try:
            self.store.instantiate(module.prepared)
        except native.CallEnded as ended:
            self.store.close()
            raise GuestFault(FaultKind.TRAPPED, f"it could not be started: {_reason(ended)}") from None
        self.guest: Final = Guest(limits, host, Memory(self.store.context, self.store.export(b"memory").memory))
        self._state: Final = State(self.store, self.guest, module.globals, module.data_span)

    @classmethod
    def boot(
        cls, module: Module, limits: Limits, host: Host, on_start: Callable[[Instance], None] = lambda _: None
    ) -> Instance:
        """Start a guest: run its start function and ``_initialize``, within the limits of one call.

        ``on_start`` receives the instance before guest code runs: an interruption from then on ends the start.

        Raises:
            GuestFault: The guest did not start.
            ModuleRefused: The running module returned an unsupported version of the ABI.
        """
        instance = cls(module, limits, host)
        on_start(instance)
        with instance._call("starting"):
            for name in (START_EXPORT, "_initialize"):
                if name in module.exports:
                    instance._run(name)
            if module.abi is None:
                instance.abi = instance._run("abi_version")[0].i32 & 0xFFFF_FFFF
                check_version(instance.abi)
        return instance

    @classmethod
    def wake(cls, module: Module, limits: Limits, host: Host, snapshot: Snapshot) -> Instance:
        """Restore a suspended guest: no guest code runs, and pages are read when they are accessed.

        Raises:
            SnapshotLost: The snapshot no longer exists, or belongs to another module: start cold.
            GuestFault: Its memory is above the limit, which has been reduced.
            RuntimeError: An instance of this controller is awake.
        """
        if (snapshot.identity.module_sha256, snapshot.identity.engine) != (module.sha256, module.engine.key):
            raise SnapshotLost("it belongs to another module")
        uid = snapshot.identity.controller_uid
        snapshot.snapshots.claim(uid)
        try:
            instance = cls(module, limits, host)
            try:
                instance._state.restore(snapshot)
            except BaseException:
                instance.close()
                raise
        except BaseException:
            snapshot.snapshots.release(uid)
            raise
        instance._claimed = (snapshot.snapshots, uid)
        return instance

    def suspend(self, snapshots: Snapshots, identity: Identity, note: bytes = b"") -> Suspended:
        """Write the guest and a note of the host to its snapshot, and close the instance.

        Raises:
            SnapshotFailed: The snapshot could not be written. The instance is still awake.
        """
        with self.exclusive():
            done = self._state.save(snapshots, identity, note)
            self.close()
            return done

    def resident_bytes(self) -> int:
        """Return the memory of this guest in bytes, without pages that it only reads from its snapshot file."""
        return self._state.resident_bytes()

    def call(self, export: str, request: bytes | None) -> Called:
        """Call an export of the ABI with a request (None for exports without a parameter).

        Raises:
            GuestFault: The guest failed; the instance is closed.
        """
        with self._call(export):
            arguments: tuple[int, ...] = ()
            if request is not None:
                arguments = (self._sent(request), len(request))
            answer = self._answer(self._run(export, arguments)[0].i64)
            self.guest.lines.finish()
            budget = self.guest.budget
            return Called(
                answer, self.guest.requeue_ms, budget.cpu_seconds(), budget.wall_seconds(), budget.host_seconds
            )

    def interrupt(self) -> None:
        """End the call in progress, and all later calls, with the fault Interrupted, within 0.1 s; thread-safe.

        A guest without a call in progress can still be suspended.
        """
        self.guest.interrupt()

    def close(self) -> None:
        """Release all resources; idempotent. Not allowed during a call."""
        if not self.closed:
            self.closed = True
            self.guest.memory.invalidate()
        self._functions.clear()
        self.store.close()
        if self._claimed is not None:
            snapshots, uid = self._claimed
            snapshots.release(uid)
            self._claimed = None

    @contextmanager
    def exclusive(self) -> Iterator[None]:
        """Lock the instance; raise RuntimeError if it is in use or closed: both are errors of the caller."""
        if not self._busy.acquire(blocking=False):
            raise RuntimeError("this instance is in use: one thread at a time can call it, and its host cannot")
        try:
            if self.closed:
                raise RuntimeError("this instance is gone")
            yield
        finally:
            self._busy.release()

    @contextmanager
    def _call(self, what: str) -> Iterator[None]:
        """Run a call: any failure closes the instance and is raised as a fault of its kind."""
        guest = self.guest
        with self.exclusive():
            guest.begin()
            self.store.deadline(guest.budget.ticks())
            try:
                with running(guest), self.module.engine.ticker:
                    yield
            except native.CallEnded as ended:
                fault = self._fault(ended, what)
                self._end()
                raise fault from (guest.fault.__cause__ if isinstance(guest.fault, GuestFault) else guest.fault)
            except GuestFault as fault:
                self._end()
                raise GuestFault(fault.kind, f"{what}: {fault.message}") from fault.__cause__
            except BaseException:
                self._end()
                raise
            finally:
                guest.answer = None  # up to 4 MiB that the memory budget does not include

    def _end(self) -> None:
        try:
            self.guest.lines.finish()
        finally:
            self.close()

    def _run(self, export: str, arguments: Sequence[int] = ()) -> native.Values:
        function = self._functions.get(export)
        if function is None:
            function = self._functions[export] = self.store.export(export.encode()).func
        return self.store.call(function, arguments)

    def _sent(self, request: bytes) -> int:
        pointer: int = self._run("alloc", (len(request),))[0].i32 & 0xFFFF_FFFF
        if not pointer:
            raise GuestFault(
                FaultKind.MEMORY_EXCEEDED,
                f"its alloc returned no memory for a request of {len(request)} bytes{self._memory_text()}",
            )
        self.guest.memory.write(pointer, request)
        return pointer

    def _answer(self, result: int) -> bytes:
        pointer, length = result >> 32 & 0xFFFF_FFFF, result & 0xFFFF_FFFF
        if not result:
            return abi.EMPTY
        if length > abi.MOST_BYTES:
            raise GuestFault(FaultKind.RESULT_TOO_LARGE, f"it returned {length} bytes, the maximum is {abi.MOST_BYTES}")
        answer = self.guest.memory.read(pointer, length)
        if answer != abi.EMPTY:
            _check_answer(answer)
        return answer

    def _fault(self, ended: native.CallEnded, what: str) -> GuestFault:
        fault = self.guest.fault
        if isinstance(fault, GuestFault):
            kind, message = fault.kind, fault.message
        elif fault is not None:
            kind, message = FaultKind.HOST_FAILED, f"the host failed: {type(fault).__name__}"
        elif ended.code is TrapCode.STACK_OVERFLOW:
            kind, message = FaultKind.STACK_EXHAUSTED, "its calls are nested too deeply"
        else:
            kind, message = FaultKind.TRAPPED, _reason(ended)
        if kind in {FaultKind.TRAPPED, FaultKind.EXITED} and self._out_of_memory():
            kind = FaultKind.MEMORY_EXCEEDED
            message += self._memory_text()
        return GuestFault(kind, f"{what}: {message}")

    def _out_of_memory(self) -> bool:
        """Return whether the memory is almost full.

        Guests usually trap after a failed ``memory.grow``.
        """
        return self.guest.memory.size() > self.guest.limits.memory_bytes * 15 // 16

    def _memory_text(self) -> str:
        return (
            f"; it uses {self.guest.memory.size()} of at most {self.guest.limits.memory_bytes} bytes of memory "
            "(spec.limits.memory)"
        )


def _check_answer(answer: bytes) -> None:
    try:
        parsed = orjson.loads(answer)
    except ValueError as error:
        raise GuestFault(FaultKind.BAD_RESULT, f"its result is not JSON: {error}") from None
    if not isinstance(parsed, dict):
        raise GuestFault(FaultKind.BAD_RESULT, f"its result is a JSON {type(parsed).__name__}, not an object")


def _reason(ended: native.CallEnded) -> str:
    """Return the cause of a trap from the engine's message, without its backtrace."""
    if ended.code is not None:
        return ended.code.name.lower().replace("_", " ")
    return ended.text.strip().splitlines()[-1] if ended.text.strip() else "no reason given"
