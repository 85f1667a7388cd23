"""Compilation of modules within bounds: each in a separate process, except very small modules.

In: a module's bytes. Out: its metadata and machine code, or the reason for its rejection. Called by ``modules``, in
threads that can block. Invariants: parsing and compiling any module stays within the bounds on memory, CPU and time,
outside this process; a module that exceeded them is not compiled a second time.
"""

from __future__ import annotations

import hashlib
import signal
import subprocess
import sys
import threading
from collections import OrderedDict
from typing import Any, Final

import orjson
import wasmtime

from controller_host.guest.compiling import LENGTH_BYTES, OUT_OF_MEMORY, compile_module
from controller_host.guest.limits import CompileBounds
from controller_host.guest.refusals import ModuleRefused, RefusalReason

SMALL_BYTES: Final = 4096
"""Maximum size of a module that is compiled in this process: the slowest known one compiles in some 10 ms."""
MOST_CODE_BYTES: Final = 1 << 30
_REMEMBERED: Final = 1024
_ALWAYS: Final = (-signal.SIGXCPU, -signal.SIGABRT, -signal.SIGSEGV, OUT_OF_MEMORY)
"""Exit statuses of a process that reached its limit of CPU time, memory or stack."""


class CompilerFailed(Exception):  # noqa: N818 (named after the outcome; the module is not the cause)
    """The compiler process could not run, or the host ended it. The caller can retry."""


class Compiler:
    """Compiler for one engine; thread-safe."""

    def __init__(self, native: wasmtime.Engine, bounds: CompileBounds) -> None:
        self._native: Final = native
        self._bounds: Final = bounds
        self._lock: Final = threading.Lock()
        self._running: Final[set[subprocess.Popen[bytes]]] = set()
        self._refused: Final[OrderedDict[str, None]] = OrderedDict()
        self._closed = False

    def compile(self, wasm: bytes) -> tuple[dict[str, Any], bytes]:
        """Return the metadata of a module, and its machine code.

        Raises:
            ModuleRefused: The module is rejected, with reason and message.
            CompilerFailed: The compiler could not run.
        """
        if len(wasm) <= SMALL_BYTES:
            return compile_module(self._native, wasm)
        sha256 = hashlib.sha256(wasm).hexdigest()
        if sha256 in self._refused:
            raise self._above()
        answer = self._answer(sha256, wasm)
        length = int.from_bytes(answer[:LENGTH_BYTES], "big")
        events: dict[str, Any] = orjson.loads(answer[LENGTH_BYTES : LENGTH_BYTES + length])
        if (refused := events.get("refused")) is not None:
            raise ModuleRefused(RefusalReason(refused[0]), refused[1])
        return events, answer[LENGTH_BYTES + length :]

    @property
    def under_way(self) -> int:
        """Number of compiler processes."""
        return len(self._running)

    def close(self) -> None:
        """End all compilations in progress."""
        with self._lock:
            self._closed = True
            for process in self._running:
                process.kill()

    def _answer(self, sha256: str, wasm: bytes) -> bytes:
        """Return the output of the process; raise ModuleRefused if it reached a limit."""
        process = self._start()
        answer, late = b"", False
        try:
            answer, _ = process.communicate(wasm, timeout=self._bounds.clock_seconds)
        except subprocess.TimeoutExpired:
            late = True
        finally:
            process.kill()
            process.communicate()
            with self._lock:
                self._running.discard(process)
        if self._closed:
            raise CompilerFailed("this host is shutting down")
        if process.returncode in _ALWAYS:
            self._remember(sha256)
        # After a timeout, or if the kernel ended the process for lack of memory, a retry can succeed.
        if late or process.returncode in (*_ALWAYS, -signal.SIGKILL):
            raise self._above()
        if process.returncode:
            raise CompilerFailed(f"the compiler process ended with status {process.returncode}")
        return answer

    def _remember(self, sha256: str) -> None:
        with self._lock:
            self._refused[sha256] = None
            while len(self._refused) > _REMEMBERED:
                self._refused.popitem(last=False)

    def _start(self) -> subprocess.Popen[bytes]:
        arguments = [str(self._bounds.memory_bytes), str(self._bounds.cpu_seconds)]
        command = [sys.executable, "-m", "controller_host.guest.compiling", *arguments]
        pipe = subprocess.PIPE
        with self._lock:
            if self._closed:
                raise CompilerFailed("this host is shutting down")
            try:
                process = subprocess.Popen(  # noqa: S603 - its own interpreter
                    command, stdin=pipe, stdout=pipe, stderr=subprocess.DEVNULL
                )
            except OSError as error:
                raise CompilerFailed(f"the compiler process cannot be started: {error.strerror}") from error
            self._running.add(process)
            return process

    def _above(self) -> ModuleRefused:
        memory, seconds = self._bounds.memory_bytes >> 20, self._bounds.cpu_seconds
        return ModuleRefused(
            RefusalReason.COMPILER_LIMIT_EXCEEDED,
            f"compiling it requires more than {seconds} s of CPU time, {self._bounds.clock_seconds} s of time or "
            f"{memory} MiB of memory, the maximum on this platform: build it without functions of megabytes or with "
            "thousands of nested blocks",
        )
