"""Reads, rewrites and compiles one module, as a process of its own that is ended when that takes too much.

In: the module on stdin; the most bytes of memory and seconds of processor as arguments. Out on stdout: the length of a
JSON document (8 bytes, big-endian), that document, machine code; the document is ``{"refused": [reason, message]}`` or
what ``modules`` keeps beside the code. Started by ``compiler``. Why apart: a module of some kilobytes can be made to
take the compiler minutes and gigabytes, and neither the compiler nor Python's reading can be told to stop (ADR 59).
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
"""Exit status; the engine's own allocations end the process by a signal."""
_NICENESS: Final = 3
_FIRST_TO_GO: Final = "1000"
_THREADS: Final = "2"
_HARD_LIMIT: Final = 5
"""Seconds of processor after the signal that says so, for a process that did not end by it."""


def compile_module(native: wasmtime.Engine, wasm: bytes) -> tuple[dict[str, Any], bytes]:
    """Return what is to be known of a module, and its machine code.

    Raises:
        ModuleRefused: It is not run here; the reason and message say why.
    """
    rewritten = rewrite(wasm)
    try:
        code = bytes(wasmtime.Module(native, rewritten.wasm).serialize())
    except wasmtime.WasmtimeError as error:
        raise ModuleRefused(RefusalReason.NOT_WASM, f"the engine does not take it: {error}") from error
    return _facts(rewritten), code


def _facts(rewritten: Rewritten) -> dict[str, Any]:
    return {
        "abi": rewritten.version,
        "exports": sorted(rewritten.exports),
        "globals": rewritten.globals,
        "memoryPages": rewritten.memory_pages,
        "dataSpan": rewritten.data_span,
    }


def main(memory_bytes: int, cpu_seconds: int) -> None:
    """Compile what is on stdin, after everything else of this machine."""
    os.nice(_NICENESS)
    with contextlib.suppress(OSError):  # no Linux
        Path("/proc/self/oom_score_adj").write_text(_FIRST_TO_GO)
    # Of data, not of address space: of that allocators reserve far more than they use.
    resource.setrlimit(resource.RLIMIT_DATA, (memory_bytes, memory_bytes))
    resource.setrlimit(resource.RLIMIT_CPU, (cpu_seconds, cpu_seconds + _HARD_LIMIT))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    os.environ["RAYON_NUM_THREADS"] = _THREADS  # of the engine
    code = b""
    try:
        facts, code = compile_module(wasmtime.Engine(make_config()), sys.stdin.buffer.read())
    except ModuleRefused as refused:
        facts = {"refused": [refused.reason.value, refused.message]}
    except MemoryError:
        sys.exit(OUT_OF_MEMORY)
    head = orjson.dumps(facts)
    for part in (len(head).to_bytes(LENGTH_BYTES, "big"), head, code):
        sys.stdout.buffer.write(part)
    sys.stdout.buffer.flush()


if __name__ == "__main__":
    main(int(sys.argv[1]), int(sys.argv[2]))
