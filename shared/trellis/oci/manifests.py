"""Parses the documents of registries: indexes and manifests.

Pure. In: the bytes of an answer. Out: typed parts. Called by the node installer and by controller_host. Source: OCI
image specification 1.1 (index, manifest, descriptors). Invariant: any invalid answer raises ``MalformedDocument`` only,
and texts are valid Unicode.
"""

from __future__ import annotations

import hashlib
import re
from dataclasses import dataclass
from typing import Any, Final

from trellis.installer_api.json_text import read_json

INDEXES: Final = (
    "application/vnd.oci.image.index.v1+json",
    "application/vnd.docker.distribution.manifest.list.v2+json",
)
MANIFESTS: Final = (
    "application/vnd.oci.image.manifest.v1+json",
    "application/vnd.docker.distribution.manifest.v2+json",
)
ACCEPTED: Final = {"Accept": ", ".join((*INDEXES, *MANIFESTS))}
"""Headers of a request for a manifest."""
_TITLE: Final = "org.opencontainers.image.title"
_ATTESTED: Final = "vnd.docker.reference.type"
_DIGEST: Final = re.compile(r"sha256:[0-9a-f]{64}")
_SHOWN: Final = 100

Document = dict[str, Any]


class MalformedDocument(ValueError):  # noqa: N818 - describes the answer
    """An answer of a registry that violates its specification; the message continues "the manifest"."""


@dataclass(frozen=True, slots=True)
class Blob:
    """A blob of a manifest; ``size`` 0: not given."""

    media_type: str
    digest: str
    size: int


def read_document(body: bytes) -> Document:
    """Return the JSON object in an answer; raises MalformedDocument."""
    try:
        value = read_json(body)
    except ValueError as error:
        raise MalformedDocument("is not JSON") from error
    if not isinstance(value, dict):
        raise MalformedDocument("is not a JSON object")
    return value


def is_index(document: Document, content_type: str) -> bool:
    """Return whether a document lists manifests."""
    kind = document.get("mediaType") or content_type.partition(";")[0].strip()
    return kind in INDEXES or ("manifests" in document and "layers" not in document)


def rows(document: Document, key: str) -> list[Document]:
    """Return a list of objects, empty if it is missing or null; raises MalformedDocument."""
    found = document.get(key) or []
    if not isinstance(found, list) or not all(isinstance(item, dict) for item in found):
        raise MalformedDocument(f"has {key} that is not a list of objects")
    return found


def platform_of(row: Document) -> tuple[str, str]:
    """Return operating system and architecture, each "" if it is not given; raises MalformedDocument."""
    platform = _object(row, "platform")
    return _text(platform.get("os")), _text(platform.get("architecture"))


def title_of(layer: Document) -> str:
    """Return the file name of a layer that is a single file, otherwise ""; raises MalformedDocument."""
    return _text(_object(layer, "annotations").get(_TITLE))


def is_attestation(row: Document) -> bool:
    """Return whether a row of an index is an attestation of another row; raises MalformedDocument."""
    return _ATTESTED in _object(row, "annotations")


def media_type_of(row: Document) -> str:
    """Return the media type of a row, "" if it is not given."""
    return _text(row.get("mediaType"))


def blob_of(row: Document) -> Blob:
    """Return the blob of a row; raises MalformedDocument."""
    digest, size = str(row.get("digest", "")), row.get("size")
    if not _DIGEST.fullmatch(digest):
        raise MalformedDocument(f"has a blob with the digest {digest[:_SHOWN]!r}: only sha256 is supported")
    return Blob(media_type_of(row), digest, size if isinstance(size, int) else 0)


def digest_of(body: bytes) -> str:
    """Return the digest of bytes in the form of references and manifests."""
    return f"sha256:{hashlib.sha256(body).hexdigest()}"


def _text(value: object) -> str:
    # JSON can contain lone surrogates, which cannot be encoded.
    return str(value or "").encode(errors="replace").decode()


def _object(row: Document, key: str) -> Document:
    found = row.get(key) or {}
    if not isinstance(found, dict):
        raise MalformedDocument(f"has {key} that is not an object")
    return found
