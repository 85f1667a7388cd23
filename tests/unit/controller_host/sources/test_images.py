"""Modules from images: as a blob, or as the one module among the files of layers."""

from __future__ import annotations

import gzip
import io
import tarfile
from pathlib import Path

import pytest

from support.guests.module_sources import SHA, WASM, world
from support.suite.naming import lacking
from trellis.registries.domain import errors, layers
from trellis.registries.domain.errors import SourceReason
from unit.node_installer.servers import Registry

LAYER = "application/vnd.oci.image.layer.v1.tar+gzip"


def tar(**content: bytes) -> bytes:
    packed = io.BytesIO()
    with tarfile.open(fileobj=packed, mode="w") as archive:
        for name, body in content.items():
            item = tarfile.TarInfo(name.replace("__", "/").replace("_dot_", "."))
            item.size = len(body)
            archive.addfile(item, io.BytesIO(body))
    return packed.getvalue()


def sparse(size: int) -> bytes:
    """Return an archive with a file that begins as a module and goes on with nothing, for very long."""
    item = tarfile.TarInfo("module.wasm")
    item.size = 512
    item.pax_headers = {"GNU.sparse.major": "0", "GNU.sparse.minor": "1", "GNU.sparse.size": str(size)}
    item.pax_headers |= {"GNU.sparse.numblocks": "1", "GNU.sparse.map": "0,512"}
    archived = io.BytesIO()
    with tarfile.open(fileobj=archived, mode="w", format=tarfile.PAX_FORMAT) as archive:
        archive.addfile(item, io.BytesIO(WASM.ljust(512, b"\0")))
    return archived.getvalue()


def packed(**content: bytes) -> bytes:
    return gzip.compress(tar(**content))


async def test_a_module_is_a_blob_of_any_of_its_types(tls: Path, tmp_path: Path) -> None:
    registry = Registry()
    async with world(tls, tmp_path, registry.respond) as here:
        for kind in ("application/wasm", "application/vnd.wasm.content.layer.v1+wasm"):
            digest = registry.manifest("1", registry.blob(b"{}", "application/json"), registry.blob(WASM, kind))
            assert await here.fetch(oci={"image": here.image(digest, ":1")}) == WASM
        plain = registry.manifest("2", registry.blob(WASM, "application/octet-stream", "x.wasm"))
        assert await here.fetch(oci={"image": here.image(plain)}) == WASM
        assert await here.fetch(oci={"image": f"{here.server.host}/team/shim:2"}, sha256=SHA) == WASM
        wrong = await here.refusal(oci={"image": here.image(plain)}, sha256="0" * 64)
        assert wrong.reason is SourceReason.CHECKSUM_MISMATCH


async def test_a_module_is_the_only_one_among_the_files_of_an_image(tls: Path, tmp_path: Path) -> None:
    registry = Registry()
    async with world(tls, tmp_path, registry.respond) as here:
        below = registry.blob(packed(app__old_dot_wasm=WASM + b"\0", etc__passwd=b"root"), LAYER)
        above = registry.blob(packed(**{"app__.wh.old_dot_wasm": b"", "module_dot_wasm": WASM}), LAYER)
        image = registry.manifest("1", below, above)
        index = registry.index("2", {"wasm": image, "amd64": registry.manifest(None, registry.blob(b"x", LAYER))})
        for digest in (image, index):
            assert await here.fetch(oci={"image": here.image(digest)}) == WASM
        instead = registry.blob(packed(app__old_dot_wasm=b"#!/bin/sh", module_dot_wasm=WASM), LAYER)
        assert await here.fetch(oci={"image": here.image(registry.manifest("4", below, instead))}) == WASM
        alone = registry.manifest("3", registry.blob(tar(module=WASM), "application/vnd.oci.image.layer.v1.tar"))
        assert await here.fetch(oci={"image": here.image(alone)}) == WASM


async def test_an_image_without_one_module_is_named_with_what_it_has(
    tls: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    registry = Registry()
    async with world(tls, tmp_path, registry.respond) as here:
        two = registry.manifest("1", registry.blob(packed(a_dot_wasm=WASM, b_dot_wasm=WASM), LAYER))
        none = registry.manifest("2", registry.blob(packed(sh=b"#!/bin/sh"), LAYER))
        empty = registry.manifest("3")
        junk = registry.manifest("4", registry.blob(b"\x1f\x8bjunk", LAYER), registry.blob(b"junk", LAYER))
        zstd = registry.manifest("5", registry.blob(b"\x28\xb5\x2f\xfdjunk", LAYER))
        platforms = registry.index("6", {"amd64": two, "arm64": none})
        expected = {
            two: "several modules (/a.wasm, /b.wasm)",
            none: "no module",
            empty: "no module",
            junk: "cannot be unpacked",
            zstd: "packed with zstd",
            platforms: "linux/amd64, linux/arm64: one of them has to be for wasm",
        }
        for digest, expected_text in expected.items():
            refused = await here.refusal(oci={"image": here.image(digest)})
            assert (refused.reason, expected_text in refused.message) == (SourceReason.NO_MODULE, True), refused.message
        many = registry.manifest("8", registry.blob(packed(**{f"m{number}": WASM for number in range(65)}), LAYER))
        assert lacking((await here.refusal(oci={"image": here.image(many)})).message, "64") == []
        holes = registry.manifest("9", registry.blob(gzip.compress(sparse(2**40)), LAYER))
        assert (await here.refusal(oci={"image": here.image(holes)})).reason is SourceReason.NO_MODULE
        monkeypatch.setattr(layers, "MOST_BYTES", 5000)
        bomb = registry.manifest("7", registry.blob(packed(a=b"\0" * 100_000), LAYER))
        refused = await here.refusal(oci={"image": here.image(bomb)})
        assert (refused.reason, lacking(refused.message, "MiB")) == (SourceReason.NO_MODULE, [])


async def test_content_of_a_registry_that_does_not_match_its_digest_is_refused(tls: Path, tmp_path: Path) -> None:
    registry = Registry()
    async with world(tls, tmp_path, registry.respond) as here:
        digest = registry.manifest("1", registry.blob(WASM, "application/wasm"))
        kind, body = registry.documents[digest]
        registry.documents[digest] = (kind, body + b" ")
        manifest = await here.refusal(oci={"image": here.image(digest)})
        registry.documents[digest] = (kind, body)
        registry.blobs[f"sha256:{SHA}"] = WASM + b"\0"
        blob = await here.refusal(oci={"image": here.image(digest)})
        for refused, what in ((manifest, "manifest"), (blob, "blob")):
            assert refused.reason is SourceReason.CHECKSUM_MISMATCH
            assert lacking(refused.message, what) == []
        missing = await here.refusal(oci={"image": here.image(f"sha256:{'0' * 64}")})
        assert missing.reason is SourceReason.NOT_FOUND


async def test_a_blob_that_claims_to_be_too_large_is_not_requested(tls: Path, tmp_path: Path) -> None:
    registry = Registry()
    async with world(tls, tmp_path, registry.respond) as here:
        claimed = registry.blob(WASM, "application/wasm") | {"size": errors.MOST_BYTES + 1}
        refused = await here.refusal(oci={"image": here.image(registry.manifest("1", claimed))})
        assert refused.reason is SourceReason.TOO_LARGE
        assert not [request for request in here.server.requests if "blobs" in request.path]
