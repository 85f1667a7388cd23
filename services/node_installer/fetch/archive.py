"""Extracts one shim from a download: tar (gzip, zstd, xz or plain), zip, or the program itself.

In: a file. Out: the shim as a file of its own. Called by ``stage`` and ``oci``.
Invariants: nothing is ever unpacked to the archive's own paths, so none can leave the target; an archive that tries is
rejected as a whole; only a regular file is extracted, and never more than the limit.
"""

from __future__ import annotations

import errno
import io
import struct
import sys
import tarfile
import zipfile
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path, PurePosixPath
from typing import IO, Any, BinaryIO, Final

from node_installer.domain.errors import InstallError
from node_installer.fetch import archive_limits
from trellis.installer_api.result import FailureReason

MAX_SHIM_BYTES: Final = 1 << 30
"""Shims are 10 to 150 MB; a small archive can unpack to much more."""
_WINDOW_LOG: Final = 26
"""64 MiB, so that the installer stays within the 128 MiB of its Job; `zstd --ultra -22` may require twice that."""
_MAX_MEMBERS: Final = 100_000
_MAX_UNPACKED_BYTES: Final = 4 << 30
"""Total of all members: skipped ones are unpacked, too."""
_MAX_NAMES: Final = 8 << 20
"""Characters in all names together: they are kept in memory to choose one."""
_BLOCK: Final = 1 << 20
_ZIP_COMPRESSIONS: Final = (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED, zipfile.ZIP_BZIP2)
_ZSTD: Final = b"\x28\xb5\x2f\xfd"
_TARS: Final = {b"\x1f\x8b": "gz", b"\xfd7zXZ\x00": "xz", b"BZh": "bz2"}
_PREFIX: Final = "containerd-shim-"
_SIGNATURES: Final = frozenset({".bundle", ".pem", ".sig"})


_UNREADABLE: Final = (
    *(tarfile.TarError, zipfile.BadZipFile, zlib.error, struct.error, EOFError, OSError, ValueError),
    RuntimeError,  # zipfile's, of an encrypted member; NotImplementedError is one too
)


def is_archive(path: Path) -> bool:
    """Return whether a file is a supported archive, by its first bytes."""
    return _kind(path) is not None


def extract_shim(path: Path, target: Path, *, member: str | None, names: tuple[str, ...]) -> str:
    """Write the shim in an archive to ``target`` and return its path in the archive.

    Args:
        path: the archive.
        target: the path for the shim; an existing file is replaced.
        member: its path in the archive; without one it is the only ``containerd-shim-*``, or the one of ``names``.
        names: base names to prefer, best first.

    Raises:
        InstallError: ``UnsafeArchive`` or ``ShimNotInArchive``.
    """
    with readable():
        if _kind(path) == "zip":
            return _extract_zip(path, target, member, names)
        return _extract_tar(path, target, member, names)


@contextmanager
def readable() -> Iterator[None]:
    """Reject an archive that a reader cannot read.

    Raises:
        InstallError: ``UnsafeArchive``.
    """
    try:
        yield
    except _UNREADABLE as error:
        # EINVAL comes from an invalid offset in the archive; it is not an error of the disk.
        if isinstance(error, OSError) and error.errno not in (None, errno.EINVAL):
            raise
        message = f"the archive cannot be read: {error or type(error).__name__}"
        raise InstallError(FailureReason.UNSAFE_ARCHIVE, message) from error


def members(tar: tarfile.TarFile) -> Iterator[tarfile.TarInfo]:
    """Yield the members of an opened tar as long as they stay within the limits of an archive.

    Raises:
        InstallError: ``UnsafeArchive``.
    """
    unpacked = named = 0
    for count, item in enumerate(tar):
        _check_count(count)
        check_path(item.name)
        unpacked, named = unpacked + item.size, named + len(item.name)
        if unpacked > _MAX_UNPACKED_BYTES:
            message = f"the archive unpacks to more than {_MAX_UNPACKED_BYTES >> 20} MiB"
            raise InstallError(FailureReason.UNSAFE_ARCHIVE, message)
        if named > _MAX_NAMES:
            message = f"the names in the archive have more than {_MAX_NAMES >> 20} million characters"
            raise InstallError(FailureReason.UNSAFE_ARCHIVE, message)
        yield item
        tar.members.clear()  # type: ignore[attr-defined]  # it keeps every header it has read


def choose(files: list[str], member: str | None, names: tuple[str, ...]) -> str:
    """Return the file of an archive that is the shim.

    Raises:
        InstallError: ``ShimNotInArchive``, with the files of the archive.
    """
    if member is not None:
        wanted = PurePosixPath(member.lstrip("/"))
        for file in files:
            if PurePosixPath(file.lstrip("/")) == wanted:
                return file
    else:
        shims = [file for file in files if PurePosixPath(file).name.startswith(_PREFIX)]
        # Archives of runwasi have signatures and certificates beside the shim.
        shims = [file for file in shims if PurePosixPath(file).suffix not in _SIGNATURES] or shims
        for name in names:
            for file in shims:
                if PurePosixPath(file).name == name:
                    return file
        if len(shims) == 1:
            return shims[0]
        files = shims or files
    shown = ", ".join(sorted(files)[:10]) or "no file at all"
    looked = repr(member) if member else f"one {_PREFIX}*"
    message = f"the archive does not have {looked}, it has {shown}: set the member of the source"
    raise InstallError(FailureReason.SHIM_NOT_IN_ARCHIVE, message)


def check_path(name: str) -> None:
    """Reject a member that would leave the directory it is unpacked into.

    Raises:
        InstallError: ``UnsafeArchive``.
    """
    parts = PurePosixPath(name).parts
    if ".." in parts or name.startswith("/") or "\0" in name or "\\" in name:
        raise InstallError(FailureReason.UNSAFE_ARCHIVE, f"the archive has a member that leaves it: {name!r}")


@contextmanager
def opened_tar(path: Path) -> Iterator[tarfile.TarFile]:
    """Open a tar of any supported compression."""
    with (
        path.open("rb") as raw,
        _decompressed(raw, _kind(path)) as stream,
        # As a stream: going back in a compressed file would unpack it twice.
        tarfile.open(fileobj=stream, mode="r|", tarinfo=archive_limits.Header) as tar,
    ):
        yield tar


def copy_limited(origin: IO[bytes], target: Path) -> None:
    """Copy to a new file, up to the limit of a shim.

    Raises:
        InstallError: ``UnsafeArchive``.
    """
    written = 0
    with target.open("wb") as file:
        while block := origin.read(_BLOCK):
            written += len(block)
            if written > MAX_SHIM_BYTES:
                message = f"the shim unpacks to more than {MAX_SHIM_BYTES >> 20} MiB"
                raise InstallError(FailureReason.UNSAFE_ARCHIVE, message)
            file.write(block)


def _extract_tar(path: Path, target: Path, member: str | None, names: tuple[str, ...]) -> str:
    files: list[str] = []
    special: dict[str, str] = {}
    with opened_tar(path) as tar:
        for item in members(tar):
            if item.isfile() and not item.islnk():
                files.append(item.name)
            elif not item.isdir():
                special[item.name] = item.linkname or "a device"
    chosen = _chosen(files, special, member, names)
    with opened_tar(path) as tar:
        for item in members(tar):
            content = tar.extractfile(item) if item.name == chosen and item.isfile() else None
            if content is not None:
                copy_limited(content, target)
                return chosen
    raise InstallError(FailureReason.SHIM_NOT_IN_ARCHIVE, f"{chosen} is no longer in the archive")


def _extract_zip(path: Path, target: Path, member: str | None, names: tuple[str, ...]) -> str:
    with archive_limits.opened_zip(path) as file, zipfile.ZipFile(file) as archive:
        files: list[str] = []
        special: dict[str, str] = {}
        for count, item in enumerate(archive.infolist()):
            _check_count(count)
            check_path(item.filename)
            # The Unix mode is in the upper half; 0o100000 is a regular file, 0 no mode at all.
            if (item.external_attr >> 16) & 0o170000 not in (0, 0o100000, 0o040000):
                special[item.filename] = "a link or a device"
            elif not item.is_dir():
                files.append(item.filename)
                _check_compression(item)
        chosen = _chosen(files, special, member, names)
        with archive.open(chosen) as content:
            copy_limited(content, target)
        return chosen


def _chosen(files: list[str], special: dict[str, str], member: str | None, names: tuple[str, ...]) -> str:
    wanted = PurePosixPath(member.lstrip("/")) if member else None
    for name, what in special.items():
        path = PurePosixPath(name)
        if path == wanted or (wanted is None and (path.name in names or path.name.startswith(_PREFIX))):
            message = f"{name} in the archive is not a regular file but leads to {what}"
            raise InstallError(FailureReason.UNSAFE_ARCHIVE, message)
    return choose(files, member, names)


def _check_compression(item: zipfile.ZipInfo) -> None:
    """Reject members that cannot be unpacked, or have no memory limit: zipfile has none for LZMA."""
    if item.flag_bits & 1:
        raise InstallError(FailureReason.UNSAFE_ARCHIVE, f"{item.filename} in the archive is encrypted")
    if item.compress_type not in _ZIP_COMPRESSIONS:
        message = (
            f"{item.filename} in the archive is packed by method {item.compress_type}, which is not supported: "
            "use deflate"
        )
        raise InstallError(FailureReason.UNSAFE_ARCHIVE, message)


def _check_count(count: int) -> None:
    if count > _MAX_MEMBERS:
        raise InstallError(FailureReason.UNSAFE_ARCHIVE, f"the archive has more than {_MAX_MEMBERS} members")


def _kind(path: Path) -> str | None:
    with path.open("rb") as file:
        head = file.read(512)
    if head.startswith(b"PK\x03\x04"):
        return "zip"
    if head.startswith(_ZSTD):
        return "zst"
    for magic, kind in _TARS.items():
        if head.startswith(magic):
            return kind
    return "tar" if head[257:262] == b"ustar" else None


@contextmanager
def _decompressed(raw: BinaryIO, kind: str | None) -> Iterator[Any]:
    # Imported by kind: most runs do not need these modules.
    if kind == "gz":
        import gzip  # noqa: PLC0415

        with gzip.open(raw) as stream:
            yield stream
    elif kind == "zst":
        if sys.version_info >= (3, 14):
            from compression import zstd  # noqa: PLC0415
        else:
            from backports import zstd  # noqa: PLC0415

        try:
            with zstd.open(raw, options={zstd.DecompressionParameter.window_log_max: _WINDOW_LOG}) as compressed:
                yield compressed
        except zstd.ZstdError as error:
            text = str(error)
            if "too much memory" in text:
                text = f"unpacking it needs more than {1 << _WINDOW_LOG - 20} MiB of memory: pack it with `zstd -19`"
            raise ValueError(text) from error
    elif kind == "xz":
        from node_installer.fetch import xz  # noqa: PLC0415

        with io.BufferedReader(xz.Reader(raw), _BLOCK) as packed:
            yield packed
    elif kind == "bz2":
        import bz2  # noqa: PLC0415

        with bz2.open(raw) as packed_too:
            yield packed_too
    else:
        yield raw
