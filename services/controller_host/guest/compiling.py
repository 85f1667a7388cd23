"""Parses, rewrites and compiles one module in a separate process with limits.

In: the module on stdin; the limits of memory in bytes and CPU time in seconds as arguments. Out on stdout: the length
of a JSON document (8 bytes, big-endian), the document, machine code; the document is ``{"refused": [reason, message]}``
or the metadata that ``modules`` stores with the code. Started by ``compiler``. A separate process is required because
some kilobytes can keep the compiler busy for minutes, with gigabytes of memory, and it cannot be interrupted (ADR 59).
"""

from __future__ import annotations

import contextlib
import os
import resource
import sys
from pathlib import Path
from typing import Any, Final

import orjson
import wasmtime

from controller_host.guest.engine import make_config
from controller_host.guest.refusals import ModuleRefused, RefusalReason
from controller_host.guest.rewriting import Rewritten, rewrite

LENGTH_BYTES: Final = 8
OUT_OF_MEMORY: Final = 70
"""Exit status when Python runs out of memory; in the engine, a signal ends the process."""
_NICENESS: Final = 3
_FIRST_TO_GO: Final = "1000"
_THREADS: Final = "2"
_HARD_LIMIT: Final = 5
"""Seconds of CPU time between the soft limit (SIGXCPU) and the hard limit (SIGKILL)."""


def compile_module(native: wasmtime.Engine, wasm: bytes) -> tuple[dict[str, Any], bytes]:
    """Return the metadata of a module, and its machine code.

    Raises:
        ModuleRefused: The module is rejected, with reason and message.
    """
    rewritten = rewrite(wasm)
    try:
        code = bytes(wasmtime.Module(native, rewritten.wasm).serialize())
    except wasmtime.WasmtimeError as error:
        raise ModuleRefused(RefusalReason.NOT_WASM, f"the engine rejects it: {error}") from error
    return _described(rewritten), code


def _described(rewritten: Rewritten) -> dict[str, Any]:
    return {
        "abi": rewritten.version,
        "exports": sorted(rewritten.exports),
        "globals": rewritten.globals,
        "memoryPages": rewritten.memory_pages,
        "dataSpan": rewritten.data_span,
    }


def main(memory_bytes: int, cpu_seconds: int) -> None:
    """Compile the module from stdin, with a lower priority than other processes."""
    os.nice(_NICENESS)
    with contextlib.suppress(OSError):  # not on Linux
        Path("/proc/self/oom_score_adj").write_text(_FIRST_TO_GO)
    # Limit data, not address space: allocators reserve far more address space than they use.
    resource.setrlimit(resource.RLIMIT_DATA, (memory_bytes, memory_bytes))
    resource.setrlimit(resource.RLIMIT_CPU, (cpu_seconds, cpu_seconds + _HARD_LIMIT))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    os.environ["RAYON_NUM_THREADS"] = _THREADS  # of the engine
    code = b""
    try:
        document, code = compile_module(wasmtime.Engine(make_config()), sys.stdin.buffer.read())
    except ModuleRefused as refused:
        document = {"refused": [refused.reason.value, refused.message]}
    except MemoryError:
        sys.exit(OUT_OF_MEMORY)
    head = orjson.dumps(document)
    for part in (len(head).to_bytes(LENGTH_BYTES, "big"), head, code):
        sys.stdout.buffer.write(part)
    sys.stdout.buffer.flush()


if __name__ == "__main__":
    main(int(sys.argv[1]), int(sys.argv[2]))
