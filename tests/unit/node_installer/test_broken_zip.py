"""A zip whose list of members leads before its beginning is an archive that cannot be read, not a broken disk."""

from __future__ import annotations

import io
import struct
import zipfile
from pathlib import Path

import pytest

from node_installer.domain.errors import InstallError
from node_installer.fetch import archive
from trellis.installer_api.result import FailureReason


def test_a_member_before_the_beginning_is_refused(tmp_path: Path) -> None:
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w") as made:
        made.writestr("containerd-shim-spin-v2", b"\x7fELF")
    raw = bytearray(buffer.getvalue())
    end = raw.index(b"PK\x05\x06")
    (begin,) = struct.unpack_from("<I", raw, end + 16)
    struct.pack_into("<I", raw, end + 16, begin + 100)  # where the list begins, counted from the archive's beginning
    path = tmp_path / "shim.zip"
    path.write_bytes(raw)
    with pytest.raises(InstallError) as refused:
        archive.extract_shim(path, tmp_path / "shim", member=None, names=())
    assert refused.value.reason is FailureReason.UNSAFE_ARCHIVE
