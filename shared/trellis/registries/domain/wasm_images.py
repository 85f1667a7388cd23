"""Selection of the WebAssembly module from an image index or manifest.

Pure. In: documents of a registry. Out: digests and layers. Called by ``registry``.
Source: the media types of WebAssembly artifacts (CNCF TAG Runtime, and earlier those of Solo and Krustlet).
"""

from __future__ import annotations

from typing import Final

from trellis.oci.manifests import Document, blob_of, is_attestation, platform_of, rows

WASM_LAYERS: Final = frozenset(
    {
        "application/wasm",
        "application/vnd.wasm.content.layer.v1+wasm",
        "application/vnd.module.wasm.content.layer.v1+wasm",
    }
)


def chosen_manifest(index: Document) -> str:
    """Return the digest of the only manifest of an index for WebAssembly, or of its only manifest.

    Raises:
        ValueError: there is no such manifest, or several; the message continues "the image".
    """
    listed = [(row, *platform_of(row)) for row in rows(index, "manifests") if not is_attestation(row)]
    wasm = [item for item in listed if item[2].startswith("wasm") or item[1].startswith("wasi")]
    fitting = wasm or listed
    if len(fitting) != 1:
        offered = ", ".join(f"{system or '?'}/{arch or '?'}" for _, system, arch in listed) or "nothing"
        raise ValueError(f"has {offered}: one of them has to be for wasm")
    return blob_of(fitting[0][0]).digest
