"""Has modules compiled within bounds: each in a process of its own, but for those too small to do harm.

In: a module's bytes. Out: what is to be known of it and its machine code, or why it is refused. Called by ``modules``,
in threads that may wait. Invariants: whatever a module is made of, reading and compiling it takes no more memory,
processor and time than the bounds, and nothing of that in this process; what was refused for them is not tried again.
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
"""A module of so many bytes is compiled here: the worst one that is known takes a few hundredths of a second."""
MOST_CODE_BYTES: Final = 1 << 30
_REMEMBERED: Final = 1024
_ALWAYS: Final = (-signal.SIGXCPU, -signal.SIGABRT, -signal.SIGSEGV, OUT_OF_MEMORY)
"""How a process ends that got no more processor, memory or stack."""


class CompilerFailed(Exception):  # noqa: N818 (what happened; it is no fault of the module)
    """The process that compiles could not be run, or was ended by us: try again."""


class Compiler:
    """Compiles for one engine; every method may be called from any thread."""

    def __init__(self, native: wasmtime.Engine, bounds: CompileBounds) -> None:
        self._native: Final = native
        self._bounds: Final = bounds
        self._lock: Final = threading.Lock()
        self._running: Final[set[subprocess.Popen[bytes]]] = set()
        self._refused: Final[OrderedDict[str, None]] = OrderedDict()
        self._closed = False

    def compile(self, wasm: bytes) -> tuple[dict[str, Any], bytes]:
        """Return what is to be known of a module, and its machine code.

        Raises:
            ModuleRefused: It is not run here; the reason and message say why.
            CompilerFailed: It could not be tried.
        """
        if len(wasm) <= SMALL_BYTES:
            return compile_module(self._native, wasm)
        sha256 = hashlib.sha256(wasm).hexdigest()
        if sha256 in self._refused:
            raise self._above()
        answer = self._answer(sha256, wasm)
        length = int.from_bytes(answer[:LENGTH_BYTES], "big")
        facts: dict[str, Any] = orjson.loads(answer[LENGTH_BYTES : LENGTH_BYTES + length])
        if (refused := facts.get("refused")) is not None:
            raise ModuleRefused(RefusalReason(refused[0]), refused[1])
        return facts, answer[LENGTH_BYTES + length :]

    @property
    def under_way(self) -> int:
        """How many processes compile."""
        return len(self._running)

    def close(self) -> None:
        """End what is in progress."""
        with self._lock:
            self._closed = True
            for process in self._running:
                process.kill()

    def _answer(self, sha256: str, wasm: bytes) -> bytes:
        """Return what the process says; one that was ended for what it took refuses the module."""
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
            raise CompilerFailed("this host stops")
        if process.returncode in _ALWAYS:
            self._remember(sha256)
        # By the clock, or by the kernel for want of memory: another time it may do.
        if late or process.returncode in (*_ALWAYS, -signal.SIGKILL):
            raise self._above()
        if process.returncode:
            raise CompilerFailed(f"the process that compiles ended with status {process.returncode}")
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
                raise CompilerFailed("this host stops")
            try:
                process = subprocess.Popen(command, stdin=pipe, stdout=pipe, stderr=subprocess.DEVNULL)  # noqa: S603 - ours
            except OSError as error:
                raise CompilerFailed(f"the process that compiles cannot be started: {error.strerror}") from error
            self._running.add(process)
            return process

    def _above(self) -> ModuleRefused:
        memory, seconds = self._bounds.memory_bytes >> 20, self._bounds.cpu_seconds
        return ModuleRefused(
            RefusalReason.TOO_COSTLY,
            f"compiling it takes more than {seconds} s of processor, {self._bounds.clock_seconds} s by the clock or "
            f"{memory} MiB of memory, the most that this platform gives for one: build it without functions of "
            "megabytes, or of thousands of nested blocks",
        )
