"""The engine of the process: its settings, host functions and ticks.

Created by ``modules``; used by every instance. Invariant: ``key`` changes with everything that makes compiled code or
a snapshot incompatible: version, settings, CPU, page size, revision of the rewriting of modules.
A guest's access outside its memory raises a signal that the engine handles: enable ``faulthandler`` before an engine
is created, or it ends the process at such a signal.
"""

from __future__ import annotations

import hashlib
import importlib.metadata
import mmap
import platform
from pathlib import Path
from typing import Final

import wasmtime

from controller_host.guest import imports, rewriting
from controller_host.guest.ticker import Ticker

WASM_STACK_BYTES: Final = 512 << 10
"""Stack of a guest. A thread that runs guests requires this and 512 KiB for host functions."""

_OFF: Final = (
    "wasm_threads",
    "wasm_memory64",
    "wasm_multi_memory",
    "wasm_gc",
    "wasm_function_references",
    "wasm_exceptions",
    "wasm_stack_switching",
    "wasm_custom_page_sizes",
    "wasm_component_model",
    "wasm_wide_arithmetic",
    "shared_memory",
)
"""Disabled proposals: a snapshot does not cover their state, or ``instructions`` does not support them."""


class Engine:
    """The engine that all modules and instances share; it is never closed."""

    def __init__(self) -> None:
        self.native: Final = wasmtime.Engine(make_config())
        self.linker: Final = wasmtime.Linker(self.native)
        imports.define_all(self.linker)
        self.ticker: Final = Ticker(self.native.increment_epoch)
        self.key: Final = _key()


def make_config() -> wasmtime.Config:
    """Return the settings of an engine; a compiler for the engine has to use the same."""
    config = wasmtime.Config()
    config.epoch_interruption = True
    config.max_wasm_stack = WASM_STACK_BYTES
    for proposal in _OFF:
        setattr(config, proposal, False)
    return config


def _key() -> str:
    parts = (
        importlib.metadata.version("wasmtime"),
        platform.machine(),
        _processor_features(),
        str(mmap.PAGESIZE),
        str(WASM_STACK_BYTES),
        ",".join(_OFF),
        str(rewriting.REVISION),
    )
    return hashlib.sha256("\n".join(parts).encode()).hexdigest()[:16]


def _processor_features() -> str:
    for line in Path("/proc/cpuinfo").read_text().splitlines():
        if line.startswith(("flags", "Features")):
            return " ".join(sorted(line.partition(":")[2].split()))
    return ""
