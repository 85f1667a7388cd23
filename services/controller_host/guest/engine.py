"""The one engine of the process: its settings, its host functions, its ticks.

Made by ``modules``; used by every instance. Invariant: ``key`` changes with anything that makes compiled code or a
snapshot of one engine wrong for another: version, settings, processor, page size, how modules are rewritten.
A guest's access outside of its memory is a signal that the engine handles: ``faulthandler`` must not be enabled later
than an engine is made, or it would end the process for it.
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
"""How deep a guest may call. A thread that runs guests needs this and 512 KiB for the host's functions besides."""

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
"""Proposals whose state a snapshot would not have, or whose instructions the walk does not know."""


class Engine:
    """What all modules and instances share. Never closed: it lives as long as the process."""

    def __init__(self) -> None:
        self.native: Final = wasmtime.Engine(make_config())
        self.linker: Final = wasmtime.Linker(self.native)
        imports.define_all(self.linker)
        self.ticker: Final = Ticker(self.native.increment_epoch)
        self.key: Final = _key()


def make_config() -> wasmtime.Config:
    """Return the settings of an engine, which whoever compiles for it has to have too."""
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
