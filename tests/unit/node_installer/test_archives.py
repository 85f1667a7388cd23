"""Archives made to fill the memory, the disk or the time, and unreadable ones."""

from __future__ import annotations

import gzip
import io
import subprocess
import sys
import tarfile
import textwrap
import zipfile
from pathlib import Path

import pytest

from node_installer.domain.errors import InstallError
from node_installer.fetch import archive
from node_installer.fetch.oci import _contents
from trellis.installer_api.result import FailureReason
from unit.node_installer.world import a_shim, a_wanted_shim, a_world, snapshot

NAME = "containerd-shim-spin"
EMPTY_BLOCKS = bytes(1024)


def refused(path: Path, content: bytes) -> str:
    """Return the message about a refused archive."""
    path.write_bytes(content)
    with pytest.raises(InstallError) as refusal:
        archive.extract_shim(path, path.with_name("out"), member=None, names=(NAME,))
    assert refusal.value.reason is FailureReason.UNSAFE_ARCHIVE
    return refusal.value.message


def a_zip(flags: int = 0, method: int = zipfile.ZIP_STORED) -> bytes:
    """A zip whose only member says this of itself."""
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w") as made:
        made.writestr(NAME, a_shim())
    raw = bytearray(buffer.getvalue())
    directory = raw.find(b"PK\x01\x02")
    raw[6] |= flags
    raw[directory + 8] |= flags
    raw[8] = raw[directory + 10] = method
    return bytes(raw)


def a_header(kind: bytes, size: int, name: str = "././@LongLink") -> bytes:
    info = tarfile.TarInfo(name)
    info.type, info.size = kind, size
    return info.tobuf(tarfile.GNU_FORMAT)


@pytest.mark.parametrize(
    ("content", "expected_text"),
    [
        (a_zip(flags=1), "encrypted"),
        (a_zip(method=97), "method 97"),
        (a_zip(method=zipfile.ZIP_LZMA), "deflate"),
    ],
    ids=["encrypted", "unknown method", "lzma"],
)
def test_a_zip_that_cannot_be_unpacked_is_refused_with_the_reason(
    content: bytes, expected_text: str, tmp_path: Path
) -> None:
    assert expected_text in refused(tmp_path / "zip", content)


def test_an_encrypted_zip_is_a_result_and_no_traceback(tmp_path: Path) -> None:
    world = a_world(tmp_path)
    wanted = a_wanted_shim(world.image, content=a_zip(flags=1))
    wanted["sources"][0].pop("binarySha256")
    before = snapshot(world.root)
    result = world.install(wanted)
    assert result.reason is FailureReason.UNSAFE_ARCHIVE
    assert "encrypted" in result.message
    assert snapshot(world.root) == before


@pytest.mark.parametrize("kind", [tarfile.GNUTYPE_LONGNAME, tarfile.GNUTYPE_LONGLINK, tarfile.XHDTYPE, tarfile.XGLTYPE])
def test_a_name_that_would_fill_the_memory_is_refused_by_its_header(kind: bytes, tmp_path: Path) -> None:
    content = a_header(kind, 300 << 20) + EMPTY_BLOCKS
    assert "307200 KiB" in refused(tmp_path / "tar", gzip.compress(content))


@pytest.mark.parametrize("version", ["old", "1.0"])
def test_a_sparse_file_whose_list_of_holes_has_no_end_is_refused(version: str, tmp_path: Path) -> None:
    if version == "old":
        content = a_header(tarfile.GNUTYPE_SPARSE, 0, NAME) + EMPTY_BLOCKS
    else:
        info = tarfile.TarInfo(NAME)
        info.size = 1024
        info.pax_headers = {"GNU.sparse.major": "1", "GNU.sparse.minor": "0", "GNU.sparse.name": NAME}
        content = info.tobuf(tarfile.PAX_FORMAT) + b"1000000\n" + b"1\n" * 508 + EMPTY_BLOCKS
    assert "sparse" in refused(tmp_path / "tar", content)


def test_skipped_entries_count_towards_the_limit(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(archive, "_MAX_UNPACKED_BYTES", 1 << 20)
    content = b"".join(a_header(tarfile.REGTYPE, 1 << 19, f"{number}") + bytes(1 << 19) for number in range(3))
    assert "more than" in refused(tmp_path / "tar", gzip.compress(content + EMPTY_BLOCKS))


def test_many_long_names_are_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(archive, "_MAX_NAMES", 1 << 10)
    content = b"".join(a_header(tarfile.REGTYPE, 0, f"{number}" + "x" * 90) for number in range(20))
    assert "names" in refused(tmp_path / "tar", content + EMPTY_BLOCKS)


def test_entries_that_were_read_are_not_kept_in_memory(tmp_path: Path) -> None:
    path = tmp_path / "tar"
    path.write_bytes(b"".join(a_header(tarfile.REGTYPE, 0, f"{number}") for number in range(50)) + EMPTY_BLOCKS)
    with archive.opened_tar(path) as tar:
        seen = [(item.name, len(tar.members)) for item in archive.members(tar)]  # type: ignore[attr-defined]
    assert [name for name, _ in seen] == [f"{number}" for number in range(50)]
    assert max(kept for _, kept in seen) <= 2


@pytest.mark.parametrize(
    "layer",
    [gzip.compress(b"no tar at all" * 99)[:-30], a_header(tarfile.GNUTYPE_LONGNAME, 300 << 20) + EMPTY_BLOCKS],
    ids=["cut", "large name"],
)
def test_a_layer_that_cannot_be_read_is_a_result_and_no_traceback(layer: bytes, tmp_path: Path) -> None:
    path = tmp_path / "layer"
    path.write_bytes(layer)
    with pytest.raises(InstallError) as refusal:
        _contents(path)
    assert refusal.value.reason is FailureReason.UNSAFE_ARCHIVE


def test_a_zip_with_a_list_of_members_that_would_fill_the_memory_is_refused(tmp_path: Path) -> None:
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w") as made:
        for number in range(100):
            made.writestr(f"{number}" + "x" * 60_000, b"")
    assert refused(tmp_path / "zip", buffer.getvalue())


def test_a_small_archive_of_a_large_name_takes_no_memory(tmp_path: Path) -> None:
    """As it would come: 300 KiB to fetch, 300 MiB to hold."""
    content = a_header(tarfile.GNUTYPE_LONGNAME, 200 << 20)
    path = tmp_path / "tar"
    with gzip.open(path, "wb", 1) as file:
        file.write(content)
        for _ in range(200):
            file.write(bytes(1 << 20))
    program = f"""
        from pathlib import Path
        from node_installer.fetch import archive
        from node_installer.domain.errors import InstallError
        try:
            archive.extract_shim(Path({str(path)!r}), Path({str(tmp_path / "out")!r}), member=None, names=("x",))
        except InstallError as error:
            print(error.reason)
        [peak] = [line for line in open("/proc/self/status") if line.startswith("VmHWM")]
        print(peak.split()[1])
    """
    answer = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(program)], capture_output=True, text=True, check=True, timeout=60
    )
    reason, kilobytes = answer.stdout.split()
    assert reason == FailureReason.UNSAFE_ARCHIVE
    assert int(kilobytes) < 100 << 10
