"""What a registry's documents say: indexes, manifests, tokens.

Pure. In: the bytes of an answer. Out: parts of known shape. Called by ``oci``.
Source: OCI image specification 1.1 (index, manifest, descriptors). Invariant: whatever a registry answers,
``MalformedDocument`` is all that is raised.
"""

from __future__ import annotations

import re
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
_TITLE: Final = "org.opencontainers.image.title"
_DIGEST: Final = re.compile(r"sha256:[0-9a-f]{64}")
_SHOWN: Final = 100

Document = dict[str, Any]


class MalformedDocument(ValueError):  # noqa: N818 - says what the answer is
    """An answer of a registry that is not what its specification says; the text says how, for people."""


def read_document(body: bytes) -> Document:
    """Return the JSON object in an answer; raises MalformedDocument."""
    try:
        value = read_json(body)
    except ValueError as error:
        raise MalformedDocument("the manifest is no JSON") from error
    if not isinstance(value, dict):
        raise MalformedDocument("the manifest is no JSON object")
    return value


def is_index(document: Document, content_type: str) -> bool:
    """Say whether a document lists manifests."""
    kind = document.get("mediaType") or content_type.partition(";")[0]
    return kind in INDEXES or "manifests" in document


def rows(document: Document, key: str) -> list[Document]:
    """Return a list of objects; one that is missing or null is empty. Raises MalformedDocument."""
    found = document.get(key) or []
    if not isinstance(found, list) or not all(isinstance(one, dict) for one in found):
        raise MalformedDocument(f"{key} of the manifest is no list of objects")
    return found


def platform_of(row: Document) -> tuple[str, str]:
    """Return operating system and architecture, each "" if it does not say; raises MalformedDocument."""
    platform = _object(row, "platform")
    return str(platform.get("os") or ""), str(platform.get("architecture") or "")


def title_of(layer: Document) -> str:
    """Return the name of the file that a layer is, "" if it is none by itself; raises MalformedDocument."""
    return str(_object(layer, "annotations").get(_TITLE) or "")


def digest_of(row: Document) -> str:
    """Return the digest of what a row describes; raises MalformedDocument."""
    digest = str(row.get("digest", ""))
    if not _DIGEST.fullmatch(digest):
        raise MalformedDocument(f"a blob has the digest {digest[:_SHOWN]!r}, only sha256 is supported")
    return digest


def token_in(body: bytes) -> str:
    """Return the token in the answer of a token server; raises MalformedDocument."""
    document = read_document(body)
    token = document.get("token") or document.get("access_token")
    if not isinstance(token, str) or not (token.isascii() and token.isprintable()):
        raise MalformedDocument("there is no token in it")
    return token


def _object(row: Document, key: str) -> Document:
    found = row.get(key) or {}
    if not isinstance(found, dict):
        raise MalformedDocument(f"{key} in the manifest is no object")
    return found
