"""Modules: read, refused or rewritten, compiled, and kept on disk as machine code.

In: a module's bytes, or its digest. Out: a :class:`Module`, from which instances are made in any thread. Called by the
service from pool threads. Compiled code is a file that is mapped, so that memory holds what runs of it.
Invariants: code is run only from a directory of this account, whole as its checksum says; what is damaged, or of
another engine, is compiled again; modules that nobody uses leave memory, so that a thousand do not stay mapped.
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
    """A compiled module. ``sha256``: of the bytes as they were built; ``exports``: those of the ABI that it has.

    ``abi``: the version it is made for; None if only the module itself can tell, which is asked as it starts.
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
    """The modules of one engine; ``most_in_memory`` bounds those that are kept although no instance uses them."""

    def __init__(self, cache_dir: Path, most_in_memory: int = 64, bounds: CompileBounds = _BOUNDS) -> None:
        self.engine: Final = Engine()
        self._compiler: Final = Compiler(self.engine.native, bounds)
        self._directory: Final = private_directory(cache_dir)
        self._most: Final = most_in_memory
        self._lock: Final = threading.Lock()
        self._compiling: Final = threading.Lock()  # whose files are on their way
        self._under_way: Final[dict[str, threading.Event]] = {}
        self._recent: Final[OrderedDict[str, Module]] = OrderedDict()
        self._used: Final[WeakValueDictionary[str, Module]] = WeakValueDictionary()
        self._asked: Final[dict[str, float]] = {}
        self._intact: Final[dict[str, tuple[int, int, int]]] = {}

    def load(self, wasm: bytes) -> Module:
        """Return the module of these bytes; compiles them the first time: seconds, for megabytes.

        Raises:
            ModuleRefused: It is not run here; the reason and message say why.
            CompilerFailed: It could not be compiled now.
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
        """Return a module that was compiled before, by this process or a former one; None if it has to be loaded."""
        with self._lock:
            self._asked[sha256] = time.monotonic()
            found = self._used.get(sha256)
            if found is not None:
                return self._keep(found)
        loaded = self._from_disk(sha256)
        if loaded is None:
            return None
        with self._lock:
            return self._keep(loaded)

    def sweep(self, keep: Iterable[str], *, young_seconds: float) -> None:
        """Remove from disk all compiled modules but those of the digests to ``keep``, and those of other engines.

        What runs stays, and what was asked for in the last ``young_seconds``: somebody may be about to run it.
        """
        with self._compiling:
            kept = set(keep) | self._in_use(set(keep), time.monotonic() - young_seconds)
            for path in self._directory.iterdir():
                sha256 = path.name.partition(".")[0]
                names = {self._path(sha256, kind).name for kind in ("cwasm", "json")}
                with self._lock:  # who asks for it before this has it kept, who asks afterwards finds nothing
                    if path.name not in names or (sha256 not in kept and sha256 not in self._asked):
                        path.unlink(missing_ok=True)

    def _in_use(self, keep: set[str], since: float) -> set[str]:
        """Let go of what is in memory and not to be kept; return what has another writer who holds it, or is young."""
        with self._lock:
            for sha256 in [one for one, at in self._asked.items() if at < since]:
                del self._asked[sha256]
            for sha256 in [one for one in self._recent if one not in keep and one not in self._asked]:
                del self._recent[sha256]
            return set(self._used) | set(self._asked)

    def in_memory(self) -> int:
        """Return how many modules are in memory."""
        return len(self._used)

    def _path(self, sha256: str, kind: str) -> Path:
        return self._directory / f"{sha256}.{self.engine.key}.{kind}"

    def _keep(self, module: Module) -> Module:
        # Who read the same files at the same time may have come first: its module is everybody's.
        kept = self._used.setdefault(module.sha256, module)
        self._recent[module.sha256] = kept
        self._recent.move_to_end(module.sha256)
        while len(self._recent) > self._most:
            self._recent.popitem(last=False)
        return kept

    def _compiled(self, sha256: str, wasm: bytes) -> Module:
        facts, code = self._compiler.compile(wasm)
        with self._compiling:
            self._store(sha256, code, facts)
            # From disk, so that the code is a mapped file; as it is where such a file cannot be had, or not be run.
            module = self._from_disk(sha256)
        if module is None:
            module = self._module(sha256, facts, wasmtime.Module.deserialize(self.engine.native, code))
        with self._lock:
            return self._keep(module)

    def close(self) -> None:
        """Compile nothing any more."""
        self._compiler.close()

    def _store(self, sha256: str, code: bytes, facts: dict[str, Any]) -> None:
        checked = {**facts, "checksum": xxhash.xxh3_128_hexdigest(code)}
        try:
            write_whole(self._path(sha256, "cwasm"), code)
            write_whole(self._path(sha256, "json"), orjson.dumps(checked))
        except OSError as error:
            _log.warning("compiled module not stored", sha256=sha256, error=str(error))

    def _from_disk(self, sha256: str) -> Module | None:
        path = self._path(sha256, "cwasm")
        try:
            facts: dict[str, Any] = orjson.loads(self._path(sha256, "json").read_bytes())
            self._check(sha256, path, facts["checksum"])
            code = wasmtime.Module.deserialize_file(self.engine.native, str(path))
            return self._module(sha256, facts, code)
        except (OSError, ValueError, KeyError, TypeError, wasmtime.WasmtimeError):
            return None  # not there, damaged, or of another engine: compiled again

    def _check(self, sha256: str, path: Path, checksum: str) -> None:
        """Raise ValueError if the code is not what was written. Once a process and file: it reads all of it."""
        found = path.stat()
        seen = (found.st_ino, found.st_size, found.st_mtime_ns)
        if self._intact.get(sha256) != seen:
            if xxhash.xxh3_128_hexdigest(path.read_bytes()) != checksum:
                raise ValueError(path)
            self._intact[sha256] = seen

    def _module(self, sha256: str, facts: dict[str, Any], code: wasmtime.Module) -> Module:
        return Module(
            sha256=sha256,
            abi=facts["abi"],
            exports=frozenset(facts["exports"]),
            globals=tuple(facts["globals"]),
            memory_pages=facts["memoryPages"],
            data_span=(int(facts["dataSpan"][0]), int(facts["dataSpan"][1])),
            engine=self.engine,
            prepared=Prepared(self.engine.linker, code),
        )
