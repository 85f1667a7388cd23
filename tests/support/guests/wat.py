"""Guests written by hand, as text: the smallest module of the ABI, and what a test adds to it."""

from __future__ import annotations

from dataclasses import dataclass, field

from wasmtime import wat2wasm

ANSWERS_NOTHING = "i64.const 0"


@dataclass
class RecordingHost:
    """Answers every request alike, and records the requests."""

    answer: bytes = b'{"object": null}'
    requests: list[bytes] = field(default_factory=list)
    lines: list[tuple[int, str]] = field(default_factory=list)

    def call(self, request: bytes) -> bytes:
        self.requests.append(request)
        return self.answer

    def log(self, level: int, text: str) -> None:
        self.lines.append((level, text))


def guest(
    reconcile: str = ANSWERS_NOTHING,
    *,
    imports: str = "",
    memory: str = '(memory (export "memory") 1)',
    alloc: str = "i32.const 1024",
    more: str = "",
) -> bytes:
    """Return a module whose functions have the bodies given; ``$p`` and ``$n`` are reconcile's parameters."""
    return bytes(
        wat2wasm(
            f"""(module {imports} {memory}
              (func $alloc (export "alloc") (param $len i32) (result i32) {alloc})
              (func $reconcile (export "reconcile") (param $p i32) (param $n i32) (result i64) {reconcile})
              {more})"""
        )
    )


def text(module_text: str) -> bytes:
    """Return the module of a text."""
    return bytes(wat2wasm(module_text))


def data(pointer: int, content: bytes) -> str:
    """Return a data segment."""
    escaped = "".join(f"\\{byte:02x}" for byte in content)
    return f'(data (i32.const {pointer}) "{escaped}")'


def json_at(pointer: int, json: str) -> tuple[str, str]:
    """Return a data segment that holds ``json``, and the instruction that returns it as a result."""
    return data(pointer, json.encode()), f"i64.const {pointer << 32 | len(json.encode())}"
