"""Archives from strangers: shims for nodes, and layers of images with controllers."""

from __future__ import annotations

import bz2
import contextlib
import functools
import gzip
import io
import lzma
import random
import sys
import tarfile
import tempfile
import zipfile
from pathlib import Path, PurePosixPath
from typing import Any
from unittest import mock

from fuzz.target import Target, tried
from node_installer.domain.errors import InstallError
from node_installer.fetch import archive, elf
from support.suite.mutations import spoilt
from trellis.installer_api.result import FailureReason
from trellis.registries.domain import layers

if sys.version_info >= (3, 14):
    from compression import zstd
else:
    from backports import zstd

_SMALL = {
    "MAX_SHIM_BYTES": 1 << 16, "_MAX_UNPACKED_BYTES": 1 << 18, "_MAX_MEMBERS": 40, "_MAX_NAMES": 4000,
}  # fmt: skip
_NAMES = (
    "containerd-shim-spin-v2", "bin/containerd-shim-spin-v2", "./containerd-shim-spin-v2", "containerd-shim-other-v1",
    "README.md", "../evil", "/etc/passwd", "a/../../b", "x" * 90, "y/" * 90 + "z", "é", "dir/", "a\\b",
    "containerd-shim-",    "bin/../containerd-shim-spin-v2", "n" * 5000,
)  # fmt: skip
_PREFERRED = ("containerd-shim-spin-v2", "containerd-shim-spin-v1")
_FRAGMENTS = (
    b"\0" * 512, b"ustar", b"\xff" * 8, b"7777777", b"PK\x03\x04", b"PK\x01\x02", b"PK\x05\x06", b"\x1f\x8b", b"\x80",
    b"L", b"x", b"K", b"S", b"\0", b"99999999999 path=a\n", b"-1 x=y\n", b"GNU.sparse.major=1\n",
)  # fmt: skip
_REASONS = {FailureReason.UNSAFE_ARCHIVE, FailureReason.SHIM_NOT_IN_ARCHIVE}
_BOMB = 3 << 20


@functools.cache
def room(user: str) -> Path:
    """A directory of this process for one target, that goes with it."""
    holder = tempfile.TemporaryDirectory(prefix=f"fuzz-{user}-")
    _kept.append(holder)
    return Path(holder.name)


_kept: list[tempfile.TemporaryDirectory[str]] = []
Members = list[tuple[str, str, bytes]]


def _members(rng: random.Random) -> Members:
    found = []
    for _ in range(rng.choice([0, 1, 1, 1, 2, 3, 60])):
        kind = rng.choice(["file", "file", "file", "file", "link", "hard", "fifo", "dir", "pax", "sparse"])
        content = rng.choice([b"", b"\x7fELF" + rng.randbytes(30), b"x" * 70_000, rng.randbytes(2000)])
        found.append((rng.choice(_NAMES[: rng.choice([1, 2, 5, len(_NAMES)])]), kind, content))
    return found


def _tar(rng: random.Random, members: Members) -> bytes:
    buffer = io.BytesIO()
    form = rng.choice([tarfile.PAX_FORMAT, tarfile.GNU_FORMAT, tarfile.USTAR_FORMAT])
    types = {"link": tarfile.SYMTYPE, "hard": tarfile.LNKTYPE, "fifo": tarfile.FIFOTYPE, "dir": tarfile.DIRTYPE}
    with tarfile.open(fileobj=buffer, mode="w", format=form) as tar:
        for name, kind, content in members:
            item = tarfile.TarInfo(name)
            item.type = types.get(kind, tarfile.REGTYPE)
            if kind in ("link", "hard"):
                item.linkname = rng.choice(["/etc/shadow", "../x", "containerd-shim-spin-v2"])
            if kind in ("file", "pax", "sparse"):
                item.size = len(content)
            if kind == "pax":
                item.pax_headers = {"comment": "c" * rng.choice([1, 200_000])}
            if kind == "sparse":
                item.pax_headers = {"GNU.sparse.major": "1", "GNU.sparse.minor": "0", "GNU.sparse.realsize": "9" * 12}
            with contextlib.suppress(ValueError):  # a name too long for the form
                tar.addfile(item, io.BytesIO(content) if item.size else None)
    return buffer.getvalue()


def _zip(rng: random.Random, members: Members) -> bytes:
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w", allowZip64=True) as made:
        for name, kind, content in members:
            item = zipfile.ZipInfo(name[:1000])
            item.compress_type = rng.choice(
                [zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED, zipfile.ZIP_BZIP2, zipfile.ZIP_LZMA]
            )
            mode = {"link": 0o120777, "dir": 0o040755, "fifo": 0o010644}.get(kind, rng.choice([0, 0o100755]))
            item.external_attr = mode << 16
            with warnings_ignored():
                made.writestr(item, content)
    return buffer.getvalue()


@contextlib.contextmanager
def warnings_ignored() -> Any:
    """A name that stands twice is what is wanted."""
    import warnings  # noqa: PLC0415

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        yield


_PACKERS: dict[str, Any] = {
    "tar": lambda raw: raw,
    "gz": lambda raw: gzip.compress(raw, 1, mtime=0),
    "bz2": lambda raw: bz2.compress(raw, 1),
    "xz": lambda raw: lzma.compress(raw, preset=0),
    "zst": zstd.compress,
}


def _archive(rng: random.Random) -> tuple[Members | None, bytes, str | None]:
    members = _members(rng)
    member = rng.choice([None, None, "bin/containerd-shim-spin-v2", "README.md", "../evil", "/x"])
    kind = rng.choice(["zip", *_PACKERS])
    if rng.random() < 0.01:
        members = [("containerd-shim-spin-v2", "file", bytes(_BOMB))] * 2
    raw = _zip(rng, members) if kind == "zip" else _tar(rng, members)
    if kind != "zip" and rng.random() < 0.3:
        raw, members = spoilt(rng, raw, _FRAGMENTS), None
    raw = raw if kind == "zip" else _PACKERS[kind](raw)
    if rng.random() < 0.2:
        raw, members = spoilt(rng, raw, _FRAGMENTS), None
    return members, raw, member


def _judge_archive(case: tuple[Members | None, bytes, str | None]) -> str:
    members, raw, member = case
    source, target = room("archives") / "archive", room("archives") / "shim"
    source.write_bytes(raw)
    target.unlink(missing_ok=True)
    if not archive.is_archive(source):
        # Names that are too long for the form of a tar are not in it, nor then is anything.
        assert all(len(name) > 100 for name, _, _ in members or ()), "an archive that is not known as one"
        return "no archive"
    with mock.patch.multiple(archive, **_SMALL):
        how, found = tried(lambda: archive.extract_shim(source, target, member=member, names=_PREFERRED), InstallError)
    assert {path.name for path in room("archives").iterdir()} <= {"archive", "shim"}
    if how != "accepted":
        assert found.reason in _REASONS, found
        str(found).encode(errors="surrogateescape")
        return str(found.reason)
    content = target.read_bytes()
    assert not target.is_symlink()
    assert len(content) <= _SMALL["MAX_SHIM_BYTES"]
    parts = PurePosixPath(found).parts
    assert ".." not in parts
    assert not found.startswith("/")
    if member is not None:
        assert PurePosixPath(found) == PurePosixPath(member.lstrip("/"))
    if members is not None:
        held = [data for name, kind, data in members if name.rstrip("/") == found and kind not in ("link", "fifo")]
        assert content in held
    tried(lambda: elf.check_architecture(content[: elf.HEADER_BYTES], "amd64", "x"), InstallError)
    return how


ARCHIVE = Target(
    "shim-archives",
    "archives of shims: tar (plain, gzip, zstd, xz, bzip2) and zip",
    "the exact content of a regular member, within its directory and its limit; else one of two reasons",
    _archive,
    _judge_archive,
    frozenset({"accepted", "UnsafeArchive", "ShimNotInArchive", "no archive"}),
    share=10,
    mebibytes=48,
)

_WASM = b"\0asm\1\0\0\0"
_LAYER_NAMES = (
    "a.wasm",
    "dir/b.wasm",
    ".wh.a.wasm",
    "dir/.wh..wh..opq",
    ".wh.dir",
    "README",
    "dir/a.wasm",
    "../c.wasm",
)
Layer = list[tuple[str, bytes]]


def _layers(rng: random.Random) -> tuple[list[Layer] | None, list[bytes]]:
    expected: list[Layer] | None = []
    raw = []
    for _ in range(rng.choice([1, 1, 2, 3])):
        names = rng.sample(_LAYER_NAMES, rng.randrange(4))
        layer = [(name, rng.choice([_WASM + rng.randbytes(4), _WASM, b"text"])) for name in names]
        made = _tar(rng, [(name, "file", content) for name, content in layer])
        if rng.random() < 0.2:
            made, expected = spoilt(rng, made, _FRAGMENTS), None
        if rng.random() < 0.02:
            made, expected = _chain(rng), None
        made = _PACKERS[rng.choice(["tar", "gz", "gz"])](made)
        if rng.random() < 0.15:
            made, expected = spoilt(rng, made, _FRAGMENTS), None
        raw.append(made)
        if expected is not None:
            expected.append(layer)
    if rng.random() < 0.05:
        expected, raw = None, [_WASM + rng.randbytes(9)]
    return expected, raw


def _chain(rng: random.Random) -> bytes:
    """Headers about headers about headers, which Python's reader follows by calling itself."""
    item = tarfile.TarInfo("x" * 200)
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w", format=rng.choice([tarfile.PAX_FORMAT, tarfile.GNU_FORMAT])) as tar:
        tar.addfile(item)
    whole = buffer.getvalue()
    return whole[:1024] * rng.choice([10, 2000]) + whole


def _laid(expected: list[Layer]) -> dict[str, bytes]:
    """Return the files of modules as a container would see them, unpacked by hand."""
    seen: dict[str, bytes] = {}
    for layer in expected:
        added: dict[str, bytes] = {}
        for name, content in layer:
            path = PurePosixPath("/", name)
            if path.name == ".wh..wh..opq":
                seen = {item: data for item, data in seen.items() if path.parent not in PurePosixPath(item).parents}
            elif path.name.startswith(".wh."):
                deleted = path.with_name(path.name.removeprefix(".wh."))
                seen = {
                    item: data
                    for item, data in seen.items()
                    if PurePosixPath(item) != deleted and deleted not in PurePosixPath(item).parents
                }
            else:
                seen.pop(str(path), None)
                added.pop(str(path), None)
                if content.startswith(_WASM[:4]):
                    added[str(path)] = content
        seen |= added
    return seen


def _judge_layers(case: tuple[list[Layer] | None, list[bytes]]) -> str:
    expected, raw = case
    outcome, found = tried(lambda: layers.module_in(raw), ValueError)
    if outcome == "accepted":
        assert found.startswith(_WASM[:4])
    else:
        assert str(found).startswith("has "), found
    if expected is not None and not (len(raw) == 1 and raw[0].startswith(_WASM[:4])):
        wanted = _laid(expected)
        assert (outcome == "accepted") == (len(wanted) == 1), wanted
        assert outcome != "accepted" or [found] == list(wanted.values())
    return outcome


LAYERS = Target(
    "image-layers",
    "layers of images with a controller module",
    "the module that a container would see, by a second implementation; else an error with the content of the image",
    _layers,
    _judge_layers,
    frozenset({"accepted", "ValueError"}),
    share=8,
)

TARGETS = (ARCHIVE, LAYERS)
