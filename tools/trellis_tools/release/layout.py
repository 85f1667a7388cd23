"""Writes layers and OCI image layouts.

In: entries (paths in an image with their content), blobs and documents. Out: compressed layers, and directories that
registry clients push. Called by ``base``, ``images`` and ``artifacts``. Invariant: the same entries and time give the
same bytes: an archive has no owners, no times and no order of this machine.
"""

from __future__ import annotations

import gzip
import hashlib
import io
import tarfile
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import IO, Any, Final

from trellis_tools.release.oci import INDEX, LAYER, Descriptor, Document, Layer, document

_LEVEL: Final = 6
_EXECUTABLE: Final = 0o100
_SHARED: Final = 0o1777


@dataclass(frozen=True, slots=True)
class Entry:
    """A path of an image: a file (``source`` or ``content``), a symbolic link (``link``), or else a directory."""

    mode: int = 0o755
    source: Path | None = None
    content: bytes | None = None
    link: str | None = None

    @property
    def is_directory(self) -> bool:
        """True if it is a directory."""
        return self.source is None and self.content is None and self.link is None


SHARED_DIRECTORY: Final = Entry(_SHARED)
"""A directory that every user can write to."""


def entries_of(folder: Path) -> Iterator[tuple[str, Entry]]:
    """Yield the paths below a folder, relative to it. Of the permissions only that of the owner to execute is kept.

    Raises:
        OSError: a file cannot be read.
    """
    for path in sorted(folder.rglob("*")):
        name = path.relative_to(folder).as_posix()
        if path.is_symlink():
            yield name, Entry(0o777, link=str(path.readlink()))
        elif path.is_dir():
            yield name, Entry()
        else:
            yield name, Entry(0o755 if path.stat().st_mode & _EXECUTABLE else 0o644, source=path)


def with_parents(entries: Mapping[str, Entry]) -> dict[str, Entry]:
    """Return entries with the directories that lead to them, in the order of an archive."""
    parents = {str(parent) for name in entries for parent in PurePosixPath(name).parents} - {"."}
    return dict(sorted({**{parent: Entry() for parent in parents}, **entries}.items()))


def write_archive(target: io.RawIOBase | gzip.GzipFile, entries: Mapping[str, Entry], epoch: int) -> None:
    """Write an archive of entries in their order. ``epoch``: the time of all entries, in seconds since 1970.

    Raises:
        OSError: a file cannot be read.
    """
    with tarfile.open(fileobj=target, mode="w", format=tarfile.GNU_FORMAT, encoding="utf-8") as archive:
        for name, entry in entries.items():
            head = tarfile.TarInfo(name)
            head.mode, head.mtime = entry.mode, epoch
            if entry.link is not None:
                head.type, head.linkname = tarfile.SYMTYPE, entry.link
                archive.addfile(head)
            elif entry.is_directory:
                head.type = tarfile.DIRTYPE
                archive.addfile(head)
            else:
                content = entry.content if entry.source is None else entry.source.read_bytes()
                assert content is not None
                head.size = len(content)
                archive.addfile(head, io.BytesIO(content))


def compressed(target: IO[bytes]) -> gzip.GzipFile:
    """Return a file that compresses into ``target``, without a name and a time."""
    return gzip.GzipFile(filename="", mode="wb", fileobj=target, mtime=0, compresslevel=_LEVEL)


class Layout:
    """An OCI image layout in an empty directory."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self._blobs = root / "blobs" / "sha256"
        self._blobs.mkdir(parents=True)

    def blob(self, descriptor: Descriptor) -> Path:
        """Return the path of a blob."""
        return self._blobs / descriptor.digest.removeprefix("sha256:")

    def add(self, made: Document) -> Descriptor:
        """Write a document; return its descriptor."""
        self.blob(made.descriptor).write_bytes(made.content)
        return made.descriptor

    def add_file(self, source: Path, media_type: str) -> Descriptor:
        """Link or copy a file as a blob; return its descriptor."""
        with source.open("rb") as file:
            digest = hashlib.file_digest(file, "sha256").hexdigest()
        descriptor = Descriptor(media_type, f"sha256:{digest}", source.stat().st_size)
        if not self.blob(descriptor).exists():
            self.blob(descriptor).hardlink_to(source)
        return descriptor

    def close(self, top: Descriptor) -> None:
        """Write the index of the layout, with the one manifest or index that a tag names."""
        index = document({"schemaVersion": 2, "manifests": [top.document()]}, INDEX)
        (self.root / "index.json").write_bytes(index.content)
        (self.root / "oci-layout").write_bytes(document({"imageLayoutVersion": "1.0.0"}, "").content)


def write_layer(target: Path, entries: Mapping[str, Entry], epoch: int, comment: str) -> Layer:
    """Write a layer of entries, with the directories that lead to them.

    Raises:
        OSError: a file cannot be read, or the disk is full.
    """
    with target.open("wb") as file, compressed(file) as stream:
        hashing = _Hashing(stream)
        write_archive(hashing, with_parents(entries), epoch)
    with target.open("rb") as written:
        digest = hashlib.file_digest(written, "sha256").hexdigest()
    blob = Descriptor(LAYER, f"sha256:{digest}", target.stat().st_size)
    return Layer(blob, f"sha256:{hashing.digest.hexdigest()}", comment)


class _Hashing(io.RawIOBase):
    """Passes data on and computes its digest."""

    def __init__(self, target: gzip.GzipFile) -> None:
        super().__init__()
        self.digest = hashlib.sha256()
        self._target = target
        self._size = 0

    def write(self, data: Any, /) -> int:  # noqa: ANN401 - any buffer
        self.digest.update(data)
        self._size += len(data)
        return self._target.write(data)

    def tell(self) -> int:
        return self._size

    def writable(self) -> bool:
        return True
