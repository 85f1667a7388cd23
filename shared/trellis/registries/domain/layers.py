"""Finds the module in the layers of an image, in the file system that a container would have.

Pure, and slow: called by ``registry`` in a thread. In: layers as received, the lowest first. Out: the module's bytes.
Invariant: at most ``MOST_BYTES`` of one unpacked layer, and of modules, are in memory, for any input.
Source: OCI image specification 1.1, "Image Layer Filesystem Changeset": whiteouts hide files of lower layers.
"""

from __future__ import annotations

import io
import tarfile
import zlib
from collections.abc import Sequence
from pathlib import PurePosixPath
from typing import Final

from trellis.registries.domain.errors import MOST_BYTES

WASM_MAGIC: Final = b"\0asm"
_GZIP: Final = b"\x1f\x8b"
_ZSTD: Final = b"\x28\xb5\x2f\xfd"
_WINDOW: Final = 31
"""Window bits of zlib for a gzip header."""
_MODULES: Final = 64
_OPAQUE: Final = ".wh..wh..opq"
_WHITEOUT: Final = ".wh."


def module_in(layers: Sequence[bytes]) -> bytes:
    """Return the only module among the files of an image; a single layer may be the module itself.

    Raises:
        ValueError: there is no module, or several, or a layer cannot be unpacked; the message continues "the image".
    """
    if len(layers) == 1 and layers[0].startswith(WASM_MAGIC):
        return layers[0]
    modules: dict[str, bytes] = {}
    for layer in layers:
        _add(modules, layer)
    if len(modules) != 1:
        named = ", ".join(sorted(modules)[:5])
        raise ValueError(f"has {f'several modules ({named})' if modules else 'no module'}: it has to have exactly one")
    return next(iter(modules.values()))


def _add(modules: dict[str, bytes], layer: bytes) -> None:
    """Add the modules of a layer and apply its whiteouts, which do not hide files of the same layer."""
    added: dict[str, bytes] = {}
    try:
        with tarfile.open(fileobj=io.BytesIO(_unpacked(layer)), mode="r:") as tar:
            for item in tar:
                path = PurePosixPath("/", item.name)
                if path.name == _OPAQUE:
                    _hide(modules, path.parent, itself=False)
                elif path.name.startswith(_WHITEOUT):
                    _hide(modules, path.with_name(path.name.removeprefix(_WHITEOUT)), itself=True)
                elif content := _module(tar, item):
                    added[str(path)] = content
                else:
                    modules.pop(str(path), None)
                if len(modules) + len(added) > _MODULES:
                    raise ValueError(f"has more than {_MODULES} modules: it has to have exactly one")
    except (tarfile.TarError, zlib.error, EOFError, RecursionError) as error:  # RecursionError: endless nested headers
        raise ValueError(f"has a layer that cannot be unpacked ({type(error).__name__})") from None
    modules.update(added)
    if sum(map(len, modules.values())) > MOST_BYTES:
        raise ValueError(f"has modules of more than {MOST_BYTES >> 20} MiB")


def _module(tar: tarfile.TarFile, item: tarfile.TarInfo) -> bytes:
    # A sparse file can be larger than the memory and occupy no space in the archive.
    file = tar.extractfile(item) if item.isreg() and not item.issparse() else None
    if file is None or file.read(len(WASM_MAGIC)) != WASM_MAGIC:
        return b""
    return WASM_MAGIC + file.read()


def _hide(modules: dict[str, bytes], path: PurePosixPath, *, itself: bool) -> None:
    for name in list(modules):
        if path in PurePosixPath(name).parents or (itself and name == str(path)):
            del modules[name]


def _unpacked(layer: bytes) -> bytes:
    if layer.startswith(_ZSTD):
        raise ValueError("has a layer that is packed with zstd: pack it with gzip, or push the module itself")
    if not layer.startswith(_GZIP):
        return layer
    unpacking = zlib.decompressobj(_WINDOW)
    content = unpacking.decompress(layer, MOST_BYTES + 1)
    if len(content) > MOST_BYTES or unpacking.unconsumed_tail:
        raise ValueError(f"has a layer that unpacks to more than {MOST_BYTES >> 20} MiB")
    return content
