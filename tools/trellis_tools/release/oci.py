"""The documents of OCI images, indexes and artifacts.

Pure. In: descriptors of blobs, configuration. Out: documents as bytes with their descriptors. Called by ``images`` and
``artifacts``. Invariant: equal values give equal bytes. Source: OCI image specification 1.1; the media types of
charts are those of Helm.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

INDEX: Final = "application/vnd.oci.image.index.v1+json"
MANIFEST: Final = "application/vnd.oci.image.manifest.v1+json"
CONFIG: Final = "application/vnd.oci.image.config.v1+json"
LAYER: Final = "application/vnd.oci.image.layer.v1.tar+gzip"
EMPTY: Final = "application/vnd.oci.empty.v1+json"
CHART_CONFIG: Final = "application/vnd.cncf.helm.config.v1+json"
CHART_LAYER: Final = "application/vnd.cncf.helm.chart.content.v1.tar+gzip"
PACKAGES: Final = "application/vnd.trellis.python-packages.v1"
"""Artifact type of the wheels and source distributions."""
_TITLE: Final = "org.opencontainers.image.title"


@dataclass(frozen=True, slots=True)
class Descriptor:
    """A blob: media type, digest (``sha256:…``) and size in bytes."""

    media_type: str
    digest: str
    size: int

    def document(self, **more: Any) -> dict[str, Any]:  # noqa: ANN401 - fields of the specification
        """Return the descriptor as in a manifest."""
        return {"mediaType": self.media_type, "digest": self.digest, "size": self.size, **more}


@dataclass(frozen=True, slots=True)
class Document:
    """A document and its descriptor."""

    content: bytes
    descriptor: Descriptor


@dataclass(frozen=True, slots=True)
class Layer:
    """A layer: its compressed blob, and the digest of the archive in it (``sha256:…``)."""

    blob: Descriptor
    diff_id: str
    comment: str


def document(content: Mapping[str, Any], media_type: str) -> Document:
    """Return a document as bytes."""
    text = json.dumps(content, sort_keys=True, separators=(",", ":")).encode()
    return Document(text, Descriptor(media_type, f"sha256:{hashlib.sha256(text).hexdigest()}", len(text)))


def image_config(architecture: str, created: str, config: Mapping[str, Any], layers: Sequence[Layer]) -> Document:
    """Return the configuration of an image for Linux. ``created``: RFC 3339; ``config``: how a container runs."""
    return document(
        {
            "architecture": architecture,
            "os": "linux",
            "created": created,
            "config": config,
            "rootfs": {"type": "layers", "diff_ids": [layer.diff_id for layer in layers]},
            "history": [{"created": created, "created_by": layer.comment} for layer in layers],
        },
        CONFIG,
    )


def image_manifest(config: Document, layers: Sequence[Layer], annotations: Mapping[str, str]) -> Document:
    """Return the manifest of an image for one platform."""
    return document(
        {
            "schemaVersion": 2,
            "mediaType": MANIFEST,
            "config": config.descriptor.document(),
            "layers": [layer.blob.document() for layer in layers],
            "annotations": annotations,
        },
        MANIFEST,
    )


def image_index(manifests: Mapping[str, Descriptor], annotations: Mapping[str, str]) -> Document:
    """Return the index of an image; ``manifests``: by architecture."""
    rows = [
        manifest.document(platform={"architecture": architecture, "os": "linux"})
        for architecture, manifest in sorted(manifests.items())
    ]
    return document({"schemaVersion": 2, "mediaType": INDEX, "manifests": rows, "annotations": annotations}, INDEX)


def chart_manifest(config: Document, archive: Descriptor, annotations: Mapping[str, str]) -> Document:
    """Return the manifest of a chart, as Helm pushes it; ``config``: the chart's metadata."""
    return document(
        {
            "schemaVersion": 2,
            "mediaType": MANIFEST,
            "config": config.descriptor.document(),
            "layers": [archive.document()],
            "annotations": annotations,
        },
        MANIFEST,
    )


def files_manifest(files: Mapping[str, Descriptor], annotations: Mapping[str, str]) -> tuple[Document, Document]:
    """Return the empty configuration and the manifest of an artifact of files; ``files``: by file name."""
    config = document({}, EMPTY)
    manifest = document(
        {
            "schemaVersion": 2,
            "mediaType": MANIFEST,
            "artifactType": PACKAGES,
            "config": config.descriptor.document(),
            "layers": [blob.document(annotations={_TITLE: name}) for name, blob in sorted(files.items())],
            "annotations": annotations,
        },
        MANIFEST,
    )
    return config, manifest
