"""A guest's memory as the host reads and writes it.

In: pointers and lengths as the guest gave them. Called by ``imports``, ``wasi`` and ``instance``. Invariant: every
access is checked against the memory's size at that moment; what does not lie inside it is the guest's fault, by name.
"""

from __future__ import annotations

import ctypes
from typing import Final

from controller_host.guest import native
from controller_host.guest.faults import FaultKind, GuestFault


class Memory:
    """The linear memory of one instance."""

    __slots__ = ("_context", "_handle")

    def __init__(self, context: native.Context, handle: native.Handle) -> None:
        self._context: native.Context | None = context
        self._handle: Final = handle

    def extent(self) -> tuple[int, int]:
        """Return where it lies and how many bytes it has, now. Raise RuntimeError once its instance is gone."""
        if self._context is None:
            raise RuntimeError("the memory of an instance that is gone")
        return native.memory_extent(self._context, self._handle)

    def gone(self) -> None:
        """Let nobody look any more: its pages are given back."""
        self._context = None

    def size(self) -> int:
        """Return how many bytes it has."""
        return self.extent()[1]

    def grow(self, pages: int) -> None:
        """Grow by so many WASM pages; raise WasmtimeError if the limit forbids it."""
        native.memory_grow(self._context, self._handle, pages)

    def check(self, pointer: int, length: int) -> None:
        """Raise GuestFault unless ``length`` bytes at ``pointer`` lie inside."""
        self._address(pointer, length)

    def read(self, pointer: int, length: int) -> bytes:
        """Return a copy of ``length`` bytes at ``pointer``; raise GuestFault if they do not lie inside."""
        return ctypes.string_at(self._address(pointer, length), length)

    def write(self, pointer: int, data: bytes) -> None:
        """Copy ``data`` to ``pointer``; raise GuestFault if it would not lie inside."""
        ctypes.memmove(self._address(pointer, len(data)), data, len(data))

    def _address(self, pointer: int, length: int) -> int:
        base, size = self.extent()
        if pointer + length > size:
            raise GuestFault(
                FaultKind.BAD_POINTER,
                f"it named {length} bytes at {pointer:#x}, and its memory ends at {size:#x}",
            )
        return base + pointer
