"""Modules: parsed, rejected or rewritten, compiled, and cached as machine code in files.

In: a module's bytes, or its digest. Out: a :class:`Module`, from which any thread can create instances. Called by the
service from pool threads. Compiled code is a mapped file, so that only pages in use occupy memory.
Invariants: code is run only from a directory of this account, after its checksum matched; damaged code, or code of
another engine, is recompiled; unused modules leave memory, so that a thousand do not stay mapped.
"""

from __future__ import annotations

import hashlib
import threading
import time
from collections import OrderedDict
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final
from weakref import WeakValueDictionary

import orjson
import structlog
import wasmtime
import xxhash

from controller_host.guest.compiler import Compiler, CompilerFailed
from controller_host.guest.directories import private_directory, write_whole
from controller_host.guest.engine import Engine
from controller_host.guest.limits import CompileBounds
from controller_host.guest.native import Prepared
from controller_host.guest.refusals import ModuleRefused, RefusalReason

_log: Final = structlog.get_logger(__name__)

__all__ = ["CompilerFailed", "Module", "ModuleRefused", "Modules", "RefusalReason"]

_BOUNDS: Final = CompileBounds()


@dataclass(frozen=True, slots=True, weakref_slot=True)
class Module:
    """A compiled module. ``sha256``: of the original bytes; ``exports``: its exports of the ABI.

    ``abi``: the version of the ABI; None if only the running module can return it, which is checked at its start.
    """

    sha256: str
    abi: int | None
    exports: frozenset[str]
    globals: tuple[str, ...]
    memory_pages: int
    data_span: tuple[int, int]
    engine: Engine
    prepared: Prepared


class Modules:
    """The modules of one engine; ``most_in_memory`` limits the modules in memory that no instance uses."""

    def __init__(self, cache_dir: Path, most_in_memory: int = 64, bounds: CompileBounds = _BOUNDS) -> None:
        self.engine: Final = Engine()
        self._compiler: Final = Compiler(self.engine.native, bounds)
        self._directory: Final = private_directory(cache_dir)
        self._most: Final = most_in_memory
        self._lock: Final = threading.Lock()
        self._compiling: Final = threading.Lock()  # held while files are written or removed
        self._under_way: Final[dict[str, threading.Event]] = {}
        self._recent: Final[OrderedDict[str, Module]] = OrderedDict()
        self._used: Final[WeakValueDictionary[str, Module]] = WeakValueDictionary()
        self._requested_at: Final[dict[str, float]] = {}
        self._intact: Final[dict[str, tuple[int, int, int]]] = {}

    def load(self, wasm: bytes) -> Module:
        """Return the module of these bytes; compile them the first time (seconds, for megabytes).

        Raises:
            ModuleRefused: The module is rejected, with reason and message.
            CompilerFailed: The compiler could not run; the caller can retry.
        """
        sha256 = hashlib.sha256(wasm).hexdigest()
        while (found := self.cached(sha256)) is None:
            with self._lock:
                under_way = self._under_way.get(sha256)
                if under_way is None:
                    done = self._under_way[sha256] = threading.Event()
            if under_way is not None:
                under_way.wait()
                continue
            try:
                return self.cached(sha256) or self._compiled(sha256, wasm)
            finally:
                with self._lock:
                    del self._under_way[sha256]
                done.set()
        return found

    def cached(self, sha256: str) -> Module | None:
        """Return a module that was compiled before, also by an earlier process; None if it is not cached."""
        with self._lock:
            self._requested_at[sha256] = time.monotonic()
            found = self._used.get(sha256)
            if found is not None:
                return self._keep(found)
        loaded = self._from_disk(sha256)
        if loaded is None:
            return None
        with self._lock:
            return self._keep(loaded)

    def sweep(self, keep: Iterable[str], *, young_seconds: float) -> None:
        """Remove from disk all compiled modules except the digests to ``keep``, and all modules of other engines.

        Modules in use stay, and modules that were requested in the last ``young_seconds`` and may start next.
        """
        with self._compiling:
            kept = set(keep) | self._in_use(set(keep), time.monotonic() - young_seconds)
            for path in self._directory.iterdir():
                sha256 = path.name.partition(".")[0]
                names = {self._path(sha256, kind).name for kind in ("cwasm", "json")}
                with self._lock:  # a request before this point keeps the module, a later one does not find it
                    if path.name not in names or (sha256 not in kept and sha256 not in self._requested_at):
                        path.unlink(missing_ok=True)

    def _in_use(self, keep: set[str], since: float) -> set[str]:
        """Drop unused modules that are not in ``keep`` from memory; return the digests in use or recently requested."""
        with self._lock:
            for sha256 in [item for item, at in self._requested_at.items() if at < since]:
                del self._requested_at[sha256]
            for sha256 in [item for item in self._recent if item not in keep and item not in self._requested_at]:
                del self._recent[sha256]
            return set(self._used) | set(self._requested_at)

    def in_memory(self) -> int:
        """Return the number of modules in memory."""
        return len(self._used)

    def _path(self, sha256: str, kind: str) -> Path:
        return self._directory / f"{sha256}.{self.engine.key}.{kind}"

    def _keep(self, module: Module) -> Module:
        # If another thread loaded the same files first, use its module.
        kept = self._used.setdefault(module.sha256, module)
        self._recent[module.sha256] = kept
        self._recent.move_to_end(module.sha256)
        while len(self._recent) > self._most:
            self._recent.popitem(last=False)
        return kept

    def _compiled(self, sha256: str, wasm: bytes) -> Module:
        events, code = self._compiler.compile(wasm)
        with self._compiling:
            self._store(sha256, code, events)
            # Load from disk, so that the code is a mapped file; from memory if the file cannot be written or run.
            module = self._from_disk(sha256)
        if module is None:
            module = self._module(sha256, events, wasmtime.Module.deserialize(self.engine.native, code))
        with self._lock:
            return self._keep(module)

    def close(self) -> None:
        """Stop all compilations."""
        self._compiler.close()

    def _store(self, sha256: str, code: bytes, described: dict[str, Any]) -> None:
        checked = {**described, "checksum": xxhash.xxh3_128_hexdigest(code)}
        try:
            write_whole(self._path(sha256, "cwasm"), code)
            write_whole(self._path(sha256, "json"), orjson.dumps(checked))
        except OSError as error:
            _log.warning("compiled module not stored", sha256=sha256, error=str(error))

    def _from_disk(self, sha256: str) -> Module | None:
        path = self._path(sha256, "cwasm")
        try:
            events: dict[str, Any] = orjson.loads(self._path(sha256, "json").read_bytes())
            self._check(sha256, path, events["checksum"])
            code = wasmtime.Module.deserialize_file(self.engine.native, str(path))
            return self._module(sha256, events, code)
        except (OSError, ValueError, KeyError, TypeError, wasmtime.WasmtimeError):
            return None  # missing, damaged, or of another engine: recompiled

    def _check(self, sha256: str, path: Path, checksum: str) -> None:
        """Raise ValueError if the code does not match its checksum. Reads the file once per process."""
        found = path.stat()
        seen = (found.st_ino, found.st_size, found.st_mtime_ns)
        if self._intact.get(sha256) != seen:
            if xxhash.xxh3_128_hexdigest(path.read_bytes()) != checksum:
                raise ValueError(path)
            self._intact[sha256] = seen

    def _module(self, sha256: str, described: dict[str, Any], code: wasmtime.Module) -> Module:
        return Module(
            sha256=sha256,
            abi=described["abi"],
            exports=frozenset(described["exports"]),
            globals=tuple(described["globals"]),
            memory_pages=described["memoryPages"],
            data_span=(int(described["dataSpan"][0]), int(described["dataSpan"][1])),
            engine=self.engine,
            prepared=Prepared(self.engine.linker, code),
        )
