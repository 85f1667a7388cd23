"""Access of the host to a guest's memory.

In: pointers and lengths from the guest. Called by ``imports``, ``wasi`` and ``instance``. Invariant: every access is
checked against the current size of the memory; an access outside it raises GuestFault.
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
        """Return the current address and size in bytes. Raise RuntimeError if the instance is closed."""
        if self._context is None:
            raise RuntimeError("the instance of this memory is gone")
        return native.memory_extent(self._context, self._handle)

    def invalidate(self) -> None:
        """Disable access, because the pages are released."""
        self._context = None

    def size(self) -> int:
        """Return the size in bytes."""
        return self.extent()[1]

    def grow(self, pages: int) -> None:
        """Grow by a number of WASM pages; raise WasmtimeError if the limit is exceeded."""
        native.memory_grow(self._context, self._handle, pages)

    def check(self, pointer: int, length: int) -> None:
        """Raise GuestFault unless ``length`` bytes at ``pointer`` are inside the memory."""
        self._address(pointer, length)

    def read(self, pointer: int, length: int) -> bytes:
        """Return a copy of ``length`` bytes at ``pointer``; raise GuestFault if they are outside the memory."""
        return ctypes.string_at(self._address(pointer, length), length)

    def write(self, pointer: int, data: bytes) -> None:
        """Copy ``data`` to ``pointer``; raise GuestFault if the range is outside the memory."""
        ctypes.memmove(self._address(pointer, len(data)), data, len(data))

    def _address(self, pointer: int, length: int) -> int:
        base, size = self.extent()
        if pointer + length > size:
            raise GuestFault(
                FaultKind.BAD_POINTER,
                f"it passed {length} bytes at {pointer:#x}, outside its memory, which ends at {size:#x}",
            )
        return base + pointer
