"""Reads the imports and exports of a WebAssembly component.

Pure. In: the bytes of a component. Out: the interfaces that it imports and exports. Called with blobs whose digest
is verified. Invariants: nothing raises; bytes of another form are ``None``, so that a missing export is never
concluded from them. Source: the binary format of the component model (Binary.md): layer 1; import section 10, export
section 11.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from trellis.v2.interfaces import Interface, named_interface

_MAGIC: Final = b"\x00asm"
_LAYER: Final = b"\x01\x00"
_IMPORTS: Final = 10
_EXPORTS: Final = 11
_ITEMS_MOST: Final = 2000
_BITS: Final = 64
_CORE: Final = 0
_VALUE: Final = 2
_TYPE: Final = 3
_LAST_KIND: Final = 5
"""Kinds of items: core module, function, value, type, component, instance."""
_NAME_FORMS: Final = frozenset({0, 1})


@dataclass(frozen=True, slots=True)
class ComponentTypes:
    """Interfaces that a component imports and exports; functions and other items are omitted."""

    imports: frozenset[Interface] = frozenset()
    exports: frozenset[Interface] = frozenset()


class _FormError(ValueError):
    """The bytes do not have the expected form."""


class _Bytes:
    """Bytes that are read from the start to the end."""

    def __init__(self, data: bytes) -> None:
        self._data = data
        self._at = 0

    @property
    def left(self) -> bool:
        return self._at < len(self._data)

    def byte(self) -> int:
        if not self.left:
            raise _FormError
        self._at += 1
        return self._data[self._at - 1]

    def number(self) -> int:
        """Read a LEB128 number; a signed one is read as if it were unsigned."""
        value = shift = 0
        while shift < _BITS:
            byte = self.byte()
            value |= (byte & 0x7F) << shift
            if not byte & 0x80:
                return value
            shift += 7
        raise _FormError

    def take(self, size: int) -> bytes:
        found = self._data[self._at : self._at + size]
        if len(found) != size:
            raise _FormError
        self._at += size
        return found


def read_component(wasm: bytes) -> ComponentTypes | None:
    """Return the interfaces of a component, None if the bytes are not a complete component of a known form."""
    if wasm[:4] != _MAGIC or wasm[6:8] != _LAYER:
        return None
    imports: set[Interface] = set()
    exports: set[Interface] = set()
    data = _Bytes(wasm[8:])
    try:
        while data.left:
            section, body = data.byte(), _Bytes(data.take(data.number()))
            if section == _IMPORTS:
                imports |= _imports(body)
            elif section == _EXPORTS:
                exports |= _exports(body)
    except _FormError:
        return None
    return ComponentTypes(frozenset(imports), frozenset(exports))


def _imports(body: _Bytes) -> set[Interface]:
    found = set()
    for _ in range(_count(body)):
        found.add(_name(body))
        _type(body)
    return found - {None}  # type: ignore[return-value]  # without the names of other items


def _exports(body: _Bytes) -> set[Interface]:
    found = set()
    for _ in range(_count(body)):
        found.add(_name(body))
        if body.byte() == _CORE:
            body.byte()
        body.number()
        if body.byte():
            _type(body)
    return found - {None}  # type: ignore[return-value]  # as above


def _count(body: _Bytes) -> int:
    count = body.number()
    if count > _ITEMS_MOST:
        raise _FormError
    return count


def _name(body: _Bytes) -> Interface | None:
    if body.byte() not in _NAME_FORMS:
        raise _FormError
    return named_interface(body.take(body.number()).decode(errors="replace"))


def _type(body: _Bytes) -> None:
    """Skip the type of an item: its kind, bounds of a value or a type, an index."""
    kind = body.byte()
    if kind > _LAST_KIND:
        raise _FormError
    if kind == _CORE:
        body.byte()
    elif kind in {_VALUE, _TYPE} and body.byte() and kind == _TYPE:
        return
    body.number()
