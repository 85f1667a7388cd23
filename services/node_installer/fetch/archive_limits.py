"""Limits for the headers of an archive, checked before its content is read: Python's readers keep some in memory.

In: headers. Out: the same, or an error. Called by ``archive``.
Source: the installer's Job allows 128 MiB; without limits, a tar.gz of 1.3 MiB with one long name used 923 MiB.
"""

from __future__ import annotations

import io
import tarfile
from pathlib import Path
from typing import Final, Self

from node_installer.domain.errors import InstallError
from trellis.installer_api.result import FailureReason

_MAX_LIST_BYTES: Final = 4 << 20
_MAX_NAME_BYTES: Final = 64 << 10
"""Limit of a header with a long name or other attributes; Linux has paths of 4 KiB and attributes of 64 KiB."""
_READ_INTO_MEMORY: Final = (
    *(tarfile.GNUTYPE_LONGNAME, tarfile.GNUTYPE_LONGLINK),
    *(tarfile.XHDTYPE, tarfile.XGLTYPE, tarfile.SOLARIS_XHDTYPE),
)


class Header(tarfile.TarInfo):
    """A member whose header is checked before the content that it announces is read."""

    @classmethod
    def frombuf(cls, buf: bytes | bytearray, encoding: str, errors: str) -> Self:
        """Read a header.

        Raises:
            InstallError: ``UnsafeArchive``.
        """
        header = super().frombuf(buf, encoding, errors)
        if header.type == tarfile.GNUTYPE_SPARSE:
            raise _sparse(header.name)
        if header.type in _READ_INTO_MEMORY and header.size > _MAX_NAME_BYTES:
            message = f"the archive has a name or attributes of {header.size >> 10} KiB"
            raise InstallError(FailureReason.UNSAFE_ARCHIVE, message)
        return header

    # tarfile's parser for version 1.0 of the format, whose list of holes has no limit.
    def _proc_gnusparse_10(self, header: tarfile.TarInfo, attributes: object, tar: tarfile.TarFile) -> None:
        del attributes, tar
        raise _sparse(header.name)


class _Bounded(io.BufferedReader):
    """A zip file with a limit for its list of members: zipfile needs ten times the memory of the list."""

    def read(self, size: int | None = -1, /) -> bytes:
        if size is not None and size > _MAX_LIST_BYTES:
            message = f"the archive's list of members has {size >> 20} MiB"
            raise InstallError(FailureReason.UNSAFE_ARCHIVE, message)
        return super().read(size)


def opened_zip(path: Path) -> io.BufferedReader:
    """Open a zip file for ``zipfile``, with a limit for its list of members."""
    return _Bounded(io.FileIO(path))


def _sparse(name: str) -> InstallError:
    message = f"{name} is a sparse file in the archive: pack it without --sparse"
    return InstallError(FailureReason.UNSAFE_ARCHIVE, message)
