"""One guest that runs: started, called, ended; suspended to disk and woken by ``suspending``.

In: a module, limits, a host, requests as JSON. Out: answers as JSON, or a :class:`GuestFault`. Called from pool
threads, one at a time for an instance. Invariants: after a fault the instance is gone, and no other instance sees
anything of it; a call has all it needs with it.
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
"""The least stack of a thread that runs guests: 512 KiB are the guest's, and below its deepest call Python runs."""


@dataclass(frozen=True, slots=True)
class Called:
    """What a call gave. ``answer``: a JSON object; ``requeue_ms``: the shortest the guest asked for, if any.

    Seconds: processor time of the guest; time by the clock without, and time of, the host's own calls.
    """

    answer: bytes
    requeue_ms: int | None
    cpu_seconds: float
    wall_seconds: float
    host_seconds: float


class Instance:
    """A guest in memory. Made by :meth:`boot` or :meth:`wake`; whoever made it ends it."""

    def __init__(self, module: Module, limits: Limits, host: Host) -> None:
        self.module: Final = module
        self._busy: Final = threading.Lock()
        self._functions: Final[dict[str, Any]] = {}
        self.store: Final = native.NativeStore(module.engine.native, limits.memory_bytes, LOOKED_AT)
        self.closed = False
        self.abi: int | None = module.abi
        """The version of the ABI that it is made for; None: it was asked when it was booted, by a former instance."""
        self._claimed: tuple[Snapshots, str] | None = None
        if module.memory_pages * WASM_PAGE > limits.memory_bytes:
            self.store.close()
            raise GuestFault(
                FaultKind.MEMORY_EXCEEDED,
                f"it begins with {module.memory_pages * WASM_PAGE} bytes of memory, and {limits.memory_bytes} are "
                "allowed (spec.limits.memory)",
            )
        try:
            self.store.instantiate(module.prepared)
        except native.Ended as ended:
            self.store.close()
            raise GuestFault(FaultKind.TRAPPED, f"it could not be started: {_reason(ended)}") from None
        self.guest: Final = Guest(limits, host, Memory(self.store.context, self.store.export(b"memory").memory))
        self._state: Final = State(self.store, self.guest, module.globals, module.data_span)

    @classmethod
    def boot(
        cls, module: Module, limits: Limits, host: Host, begun: Callable[[Instance], None] = lambda _: None
    ) -> Instance:
        """Start a guest: its start function and ``_initialize`` run, within the limits of one call.

        ``begun`` gets it before anything of it runs: whoever interrupts it from then on ends its start.

        Raises:
            GuestFault: It did not start.
            ModuleRefused: It says, now that it runs, that it is made for another version of the ABI.
        """
        instance = cls(module, limits, host)
        begun(instance)
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
        """Bring a suspended guest back: nothing of it runs, and nothing is read before it is touched.

        Raises:
            SnapshotLost: The snapshot is not there any more, or not of this module: start cold.
            GuestFault: Its memory is above the limit, which has been lowered.
            RuntimeError: An instance of this controller is awake.
        """
        if (snapshot.identity.module_sha256, snapshot.identity.engine) != (module.sha256, module.engine.key):
            raise SnapshotLost("it is of another module")
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
        """Put the guest to disk, with a note of the host's that is found with it; the instance is gone afterwards.

        Raises:
            SnapshotFailed: The disk would not take it. The instance is awake as before.
        """
        with self.exclusive():
            done = self._state.save(snapshots, identity, note)
            self.close()
            return done

    def resident_bytes(self) -> int:
        """Return how much memory is this guest's alone, in bytes: pages it only reads are the file's."""
        return self._state.resident_bytes()

    def call(self, export: str, request: bytes | None) -> Called:
        """Call an export of the ABI with a request (None for those that take none).

        Raises:
            GuestFault: The guest failed; the instance is gone.
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
        """End the call that is in progress, and each that comes: as Interrupted, within a tenth of a second.

        From any thread. A guest that is in no call can be suspended to disk afterwards.
        """
        self.guest.interrupt()

    def close(self) -> None:
        """Give everything back; harmless a second time. Never while a call is in progress."""
        if not self.closed:
            self.closed = True
            self.guest.memory.gone()
        self._functions.clear()
        self.store.close()
        if self._claimed is not None:
            snapshots, uid = self._claimed
            snapshots.release(uid)
            self._claimed = None

    @contextmanager
    def exclusive(self) -> Iterator[None]:
        """Hold the instance; raise RuntimeError if somebody does, or if it is gone: both are the caller's faults."""
        if not self._busy.acquire(blocking=False):
            raise RuntimeError("an instance is called by one thread at a time, and not by its own host")
        try:
            if self.closed:
                raise RuntimeError("this instance is gone")
            yield
        finally:
            self._busy.release()

    @contextmanager
    def _call(self, what: str) -> Iterator[None]:
        """Run a call: whatever fails in it closes the instance and comes out by name."""
        guest = self.guest
        with self.exclusive():
            guest.begin()
            self.store.deadline(guest.budget.ticks())
            try:
                with running(guest), self.module.engine.ticker:
                    yield
            except native.Ended as ended:
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
                guest.answer = None  # up to 4 MiB that no budget counts

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
                f"its alloc found no room for a request of {len(request)} bytes{self._memory_words()}",
            )
        self.guest.memory.write(pointer, request)
        return pointer

    def _answer(self, result: int) -> bytes:
        pointer, length = result >> 32 & 0xFFFF_FFFF, result & 0xFFFF_FFFF
        if not result:
            return abi.EMPTY
        if length > abi.MOST_BYTES:
            raise GuestFault(
                FaultKind.RESULT_TOO_LARGE, f"it returned {length} bytes, and at most {abi.MOST_BYTES} are read"
            )
        answer = self.guest.memory.read(pointer, length)
        if answer != abi.EMPTY:
            _check_answer(answer)
        return answer

    def _fault(self, ended: native.Ended, what: str) -> GuestFault:
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
            message += self._memory_words()
        return GuestFault(kind, f"{what}: {message}")

    def _out_of_memory(self) -> bool:
        """Return whether the memory is as good as full.

        Guests answer a refused ``memory.grow`` by ending themselves.
        """
        return self.guest.memory.size() > self.guest.limits.memory_bytes * 15 // 16

    def _memory_words(self) -> str:
        return (
            f"; it has {self.guest.memory.size()} of at most {self.guest.limits.memory_bytes} bytes of memory "
            "(spec.limits.memory)"
        )


def _check_answer(answer: bytes) -> None:
    try:
        parsed = orjson.loads(answer)
    except ValueError as error:
        raise GuestFault(FaultKind.BAD_RESULT, f"it returned what is not JSON: {error}") from None
    if not isinstance(parsed, dict):
        raise GuestFault(FaultKind.BAD_RESULT, f"it returned a JSON {type(parsed).__name__}, and no object")


def _reason(ended: native.Ended) -> str:
    """Return the engine's last words: what trapped, without the lines of the backtrace between."""
    if ended.code is not None:
        return ended.code.name.lower().replace("_", " ")
    return ended.text.strip().splitlines()[-1] if ended.text.strip() else "no reason given"
