"""Finds the module in the layers of an image, as a container would see its files.

Pure, and slow: called by ``registry`` in a thread. In: layers, the lowest first, as they came. Out: the module's bytes.
Invariant: whatever layers claim, no more than ``MOST_BYTES`` of one unpacked, and of modules, is ever in memory.
Source: OCI image specification 1.1, "Image Layer Filesystem Changeset": whiteouts hide what is below.
"""

from __future__ import annotations

import io
import tarfile
import zlib
from collections.abc import Sequence
from pathlib import PurePosixPath
from typing import Final

from controller_host.domain.source_errors import MOST_BYTES

WASM_MAGIC: Final = b"\0asm"
_GZIP: Final = b"\x1f\x8b"
_ZSTD: Final = b"\x28\xb5\x2f\xfd"
_WINDOW: Final = 31
"""zlib's, for a gzip header."""
_MODULES: Final = 64
_OPAQUE: Final = ".wh..wh..opq"
_WHITEOUT: Final = ".wh."


def module_in(layers: Sequence[bytes]) -> bytes:
    """Return the only module among the files of an image; a single layer may be the module itself.

    Raises:
        ValueError: there is none, or several, or a layer cannot be unpacked; the message says it of "the image".
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
    """Lay a layer over the modules that are there; its own whiteouts hide nothing of its own."""
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
    except (tarfile.TarError, zlib.error, EOFError, RecursionError) as error:  # headers about headers, without end
        raise ValueError(f"has a layer that cannot be unpacked ({type(error).__name__})") from None
    modules.update(added)
    if sum(map(len, modules.values())) > MOST_BYTES:
        raise ValueError(f"has modules of more than {MOST_BYTES >> 20} MiB")


def _module(tar: tarfile.TarFile, item: tarfile.TarInfo) -> bytes:
    # A sparse file may be larger than all memory, and take nothing in the archive.
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
