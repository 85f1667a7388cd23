"""Writes container images without a container engine: an archive in the OCI image layout, as a tar file.

In: files with their content, or a directory tree, and the command. Out: a file for `ctr images import` and `buildah
pull oci-archive:`. Pure except for file access. Called for the images of real nodes and of tests.
Invariant: the same files give the same archive, byte for byte: it contains no times or owners of this machine.
"""

from __future__ import annotations

import hashlib
import io
import json
import tarfile
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

_INDEX: Final = "application/vnd.oci.image.index.v1+json"
_MANIFEST: Final = "application/vnd.oci.image.manifest.v1+json"
_CONFIG: Final = "application/vnd.oci.image.config.v1+json"
_LAYER: Final = "application/vnd.oci.image.layer.v1.tar"


@dataclass(frozen=True)
class Image:
    """Image to write: full name with tag, entrypoint, platform, and its content in addition to the files."""

    name: str
    entrypoint: Sequence[str]
    architecture: str
    os: str = "linux"
    links: Mapping[str, str] = field(default_factory=dict)
    open_directories: Sequence[str] = ()
    """Empty directories that every user can write to."""


def write_image(target: Path, image: Image, files: Mapping[str, Path]) -> None:
    """Write an image of one layer with these files (path in the image → local file), all executable.

    Raises:
        OSError: a file cannot be read or the archive cannot be written.
    """

    def fill(layer: tarfile.TarFile) -> None:
        for directory in sorted({str(parent) for path in files for parent in Path(path).parents} - {"."}):
            layer.addfile(_entry(directory, tarfile.DIRTYPE, 0o755))
        for directory in image.open_directories:
            layer.addfile(_entry(directory, tarfile.DIRTYPE, 0o1777))
        for path, source in sorted(files.items()):
            content = source.read_bytes()
            entry = _entry(path, tarfile.REGTYPE, 0o755)
            entry.size = len(content)
            layer.addfile(entry, io.BytesIO(content))
        for path, destination in sorted(image.links.items()):
            entry = _entry(path, tarfile.SYMTYPE, 0o777)
            entry.linkname = destination
            layer.addfile(entry)

    _write(target, image, fill)


def write_tree(target: Path, image: Image, tree: Path) -> None:
    """Write an image of one layer with a directory tree; owners and modes are kept.

    Raises:
        OSError: as :func:`write_image`.
    """

    def plain(entry: tarfile.TarInfo) -> tarfile.TarInfo | None:
        entry.mtime = 0
        entry.uname = entry.gname = ""
        return None if entry.isdev() else entry

    _write(target, image, lambda layer: layer.add(tree, arcname=".", filter=plain))


def _entry(name: str, kind: bytes, mode: int) -> tarfile.TarInfo:
    entry = tarfile.TarInfo(name)
    entry.type, entry.mode = kind, mode
    return entry


def _write(target: Path, image: Image, fill: Callable[[tarfile.TarFile], None]) -> None:
    unpacked = target.with_name(f"{target.name}.layer")
    try:
        with tarfile.open(unpacked, "w") as layer:
            fill(layer)
        with unpacked.open("rb") as file:
            digest = hashlib.file_digest(file, "sha256").hexdigest()
        with tarfile.open(target, "w") as archive:
            _documents(archive, image, digest, unpacked.stat().st_size)
            entry = _entry(f"blobs/sha256/{digest}", tarfile.REGTYPE, 0o644)
            entry.size = unpacked.stat().st_size
            with unpacked.open("rb") as file:
                archive.addfile(entry, file)
    finally:
        unpacked.unlink(missing_ok=True)


def _documents(archive: tarfile.TarFile, image: Image, layer: str, size: int) -> None:
    """Write configuration, manifest and index of the image."""

    def blob(document: dict[str, Any], kind: str) -> dict[str, Any]:
        content = json.dumps(document, sort_keys=True).encode()
        digest = hashlib.sha256(content).hexdigest()
        put(f"blobs/sha256/{digest}", content)
        return {"mediaType": kind, "digest": f"sha256:{digest}", "size": len(content)}

    def put(name: str, content: bytes) -> None:
        entry = _entry(name, tarfile.REGTYPE, 0o644)
        entry.size = len(content)
        archive.addfile(entry, io.BytesIO(content))

    platform = {"architecture": image.architecture, "os": image.os}
    path = ["PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"]
    run = {"Entrypoint": list(image.entrypoint), "Env": path, "WorkingDir": "/"}
    config = blob({**platform, "config": run, "rootfs": {"type": "layers", "diff_ids": [f"sha256:{layer}"]}}, _CONFIG)
    layers = [{"mediaType": _LAYER, "digest": f"sha256:{layer}", "size": size}]
    manifest = blob({"schemaVersion": 2, "mediaType": _MANIFEST, "config": config, "layers": layers}, _MANIFEST)
    names = {"io.containerd.image.name": image.name, "org.opencontainers.image.ref.name": image.name}
    index = {"schemaVersion": 2, "mediaType": _INDEX, "manifests": [{**manifest, "annotations": names}]}
    put("index.json", json.dumps(index, sort_keys=True).encode())
    put("oci-layout", b'{"imageLayoutVersion": "1.0.0"}')
