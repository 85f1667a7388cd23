"""A host of the controllers' ABI for tests: one instance in this process, and a Kubernetes of dicts.

In: a module, a configuration, an API. Out: the results of calls, as docs/controller-abi.md has them. Called by the
behaviour suite of the SDKs. Invariant: it trusts guests; what it allows the service allows, too, not the reverse.
"""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Any, Protocol

import wasmtime

Json = dict[str, Any]


class Api(Protocol):
    """Answers the requests of ``call``."""

    def call(self, request: Json) -> Json: ...


@dataclass
class Clock:
    """What a guest is told; tests set it."""

    now: int = 1_800_000_000_000_000_000
    monotonic: int = 1_000_000_000


@cache
def _engine() -> wasmtime.Engine:
    return wasmtime.Engine()


@cache
def _compiled(module: Path) -> wasmtime.Module:
    return wasmtime.Module.from_file(_engine(), str(module))


@dataclass
class GuestHost:
    """One instance of a module. ``requeued`` and ``logged`` are what it has asked for and said."""

    module: Path
    api: Api
    clock: Clock = field(default_factory=Clock)
    logged: list[tuple[int, str]] = field(default_factory=list)
    requeued: list[int] = field(default_factory=list)

    def __post_init__(self) -> None:
        self._store = wasmtime.Store(_engine())
        wasi = wasmtime.WasiConfig()
        wasi.inherit_stderr()
        self._store.set_wasi(wasi)
        linker = wasmtime.Linker(_engine())
        linker.define_wasi()
        self._define(linker)
        self._exports = linker.instantiate(self._store, _compiled(self.module)).exports(self._store)
        self._answer = b"{}"
        self._run("_initialize")

    def reconcile(self, key: Mapping[str, Any], obj: Json | None, **more: Any) -> Json:
        return self.call("reconcile", {"key": dict(key), "object": obj, "attempt": 0, **more})

    def init(self, config: Json | None = None, **more: Any) -> Json:
        start = {"controller": {"namespace": "team-a", "name": "example"}, "config": config or {}}
        return self.call("init", {**start, "configMaps": {}, "secrets": {}, **more})

    def migrate(self, state: Json, config: Json | None = None) -> Json:
        start = {"controller": {"namespace": "team-a", "name": "example"}, "config": config or {}}
        return self.call("migrate", {**start, "configMaps": {}, "secrets": {}, "from": {"sha256": "0", "state": state}})

    def save(self) -> Json:
        return self._result(self._run("save"))

    def call(self, export: str, request: Json | bytes) -> Json:
        """Call an export with a request, as the host does: ``alloc``, write, call, read."""
        text = request if isinstance(request, bytes) else json.dumps(request, ensure_ascii=False).encode()
        at = self._run("alloc", len(text)) & 0xFFFFFFFF
        assert at, "the guest has no room for a request"
        self._memory.write(self._store, text, at)
        return self._result(self._run(export, at, len(text)))

    @property
    def memory_bytes(self) -> int:
        return self._memory.data_len(self._store)

    @property
    def _memory(self) -> wasmtime.Memory:
        memory = self._exports["memory"]
        assert isinstance(memory, wasmtime.Memory)
        return memory

    def _run(self, export: str, *arguments: int) -> int:
        function = self._exports.get(export)
        if function is None:
            return 0
        assert isinstance(function, wasmtime.Func)
        return function(self._store, *arguments)

    def _result(self, packed: int) -> Json:
        at, length = (packed >> 32) & 0xFFFFFFFF, packed & 0xFFFFFFFF
        if packed == 0:
            return {}
        result = json.loads(self._read(at, length))
        assert isinstance(result, dict)
        return result

    def _read(self, at: int, length: int) -> bytes:
        at, length = at & 0xFFFFFFFF, length & 0xFFFFFFFF
        assert at + length <= self._memory.data_len(self._store), "outside the guest's memory"
        return bytes(self._memory.read(self._store, at, at + length))

    def _define(self, linker: wasmtime.Linker) -> None:
        i32, i64 = wasmtime.ValType.i32(), wasmtime.ValType.i64()

        def call(at: int, length: int) -> int:
            request = json.loads(self._read(at, length))
            self._answer = json.dumps(self.api.call(request), ensure_ascii=False).encode()
            return len(self._answer)

        def take(at: int) -> None:
            self._memory.write(self._store, self._answer, at & 0xFFFFFFFF)

        def log(level: int, at: int, length: int) -> None:
            self.logged.append((level, self._read(at, length).decode()))

        def random(at: int, length: int) -> None:
            self._memory.write(self._store, os.urandom(length), at & 0xFFFFFFFF)

        for name, function, parameters, results in (
            ("call", call, [i32, i32], [i32]),
            ("take", take, [i32], []),
            ("log", log, [i32, i32, i32], []),
            ("now", lambda: self.clock.now, [], [i64]),
            ("monotonic", lambda: self.clock.monotonic, [], [i64]),
            ("random", random, [i32, i32], []),
            ("requeue", self.requeued.append, [i64], []),
        ):
            linker.define_func("trellis", name, wasmtime.FuncType(parameters, results), function)
