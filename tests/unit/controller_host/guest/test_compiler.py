"""Limits of a module before it runs: counts are bounded as it is read, and compiling is a process that can be ended."""

from __future__ import annotations

import subprocess
import threading
import time
from collections.abc import Callable

import pytest

from controller_host.guest.compiler import SMALL_BYTES, Compiler, CompilerFailed
from controller_host.guest.limits import CompileBounds
from controller_host.guest.modules import Modules
from controller_host.guest.reading import u32
from controller_host.guest.refusals import ModuleRefused, RefusalReason
from controller_host.guest.rewriting import rewrite
from support.guests import wat
from support.guests.crafted_wasm import ABOVE, MAGIC, above, nested, section

LARGE = wat.guest(more=wat.data(2048, bytes(range(256)) * 32))
"""So large that a process compiles it."""


@pytest.fixture
def compiler(modules: Modules) -> Callable[..., Compiler]:
    def make(memory_bytes: int = 2 << 30, cpu_seconds: int = 60) -> Compiler:
        return Compiler(modules.engine.native, CompileBounds(memory_bytes, cpu_seconds))

    return make


@pytest.mark.parametrize("what", ABOVE)
def test_a_module_has_no_more_than_so_many(what: str) -> None:
    with pytest.raises(ModuleRefused, match=rf"[0-9]+ {what}\b.*\b[0-9]+") as refused:
        rewrite(above(what))
    assert refused.value.reason is RefusalReason.TOO_LARGE


@pytest.mark.parametrize("number", [1, 2, 3, 4, 5, 6, 7, 9, 10, 11])
def test_a_count_larger_than_the_remaining_bytes_is_not_parsed(number: int) -> None:
    with pytest.raises(ModuleRefused) as refused:
        rewrite(MAGIC + section(number, u32(10)))
    assert refused.value.reason is RefusalReason.NOT_WASM


def test_a_process_compiles_what_is_not_small(compiler: Callable[..., Compiler], modules: Modules) -> None:
    assert len(LARGE) > SMALL_BYTES >= len(wat.guest())
    events, code = compiler().compile(LARGE)
    assert events["exports"] == ["alloc", "reconcile"]
    assert code == compiler().compile(LARGE)[1]
    assert modules.load(LARGE).exports == {"alloc", "reconcile"}


def test_a_module_refused_by_the_compiler_process_has_the_same_reason(compiler: Callable[..., Compiler]) -> None:
    wasm = LARGE.replace(b"reconcile", b"reconcilf")
    with pytest.raises(ModuleRefused, match=r"\breconcile\b") as refused:
        compiler().compile(wasm)
    assert refused.value.reason is RefusalReason.MISSING_EXPORT


@pytest.mark.parametrize(
    ("depth", "bounds"),
    [(60_000, CompileBounds(cpu_seconds=1)), (20_000, CompileBounds(memory_bytes=300 << 20))],
    ids=["processor time", "memory"],
)
def test_a_module_that_takes_too_much_is_ended_and_not_tried_again(
    depth: int, bounds: CompileBounds, compiler: Callable[..., Compiler], monkeypatch: pytest.MonkeyPatch
) -> None:
    ours = compiler(bounds.memory_bytes, bounds.cpu_seconds)
    with pytest.raises(ModuleRefused) as refused:
        ours.compile(nested(depth))
    assert refused.value.reason is RefusalReason.COMPILER_LIMIT_EXCEEDED
    monkeypatch.setattr(subprocess, "Popen", None)
    with pytest.raises(ModuleRefused) as refused:
        ours.compile(nested(depth))
    assert refused.value.reason is RefusalReason.COMPILER_LIMIT_EXCEEDED


def test_one_that_compiles_is_ended_with_the_host(compiler: Callable[..., Compiler]) -> None:
    ours, failures = compiler(), []

    def compile_it() -> None:
        with pytest.raises(CompilerFailed) as failed:
            ours.compile(nested(60_000))
        failures.append(str(failed.value))

    thread = threading.Thread(target=compile_it)
    thread.start()
    deadline = time.monotonic() + 30
    while not ours.under_way and time.monotonic() < deadline:
        time.sleep(0.01)
    ours.close()
    thread.join(30)
    assert len(failures) == 1
    with pytest.raises(CompilerFailed):
        ours.compile(LARGE)


def test_a_compiler_that_cannot_run_is_no_fault_of_the_module(
    compiler: Callable[..., Compiler], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("sys.executable", "/nowhere/python")
    with pytest.raises(CompilerFailed, match="No such file or directory"):
        compiler().compile(LARGE)
    monkeypatch.setattr("sys.executable", "/bin/false")
    with pytest.raises(CompilerFailed, match=r"\b1$"):
        compiler().compile(LARGE)
