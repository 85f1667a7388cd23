"""Names in registries, who they are asked as, and what their manifests say.

Pure. In: the text of a reference, a Docker configuration, manifests. Out: their parts. Called by ``registry``.
Source: OCI distribution and image specifications 1.1; ``.dockerconfigjson`` as the kubelet reads it: by registry, or by
a path below one, of which the longest counts.
"""

from __future__ import annotations

import base64
import binascii
import re
from collections.abc import Mapping
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
WASM_LAYERS: Final = frozenset(
    {
        "application/wasm",
        "application/vnd.wasm.content.layer.v1+wasm",
        "application/vnd.module.wasm.content.layer.v1+wasm",
    }
)
WASM_MAGIC: Final = b"\0asm"
# No part of a repository is empty, "." or "..": it would be another repository's address.
_PART: Final = "[a-z0-9]+(?:(?:[.]|__?|-+)[a-z0-9]+)*"
_REFERENCE: Final = re.compile(
    rf"(?P<registry>[a-zA-Z0-9.-]+(?::[0-9]+)?)/(?P<repository>{_PART}(?:/{_PART})*)"
    r"(?::(?P<tag>\w[\w.-]{0,127}))?(?:@(?P<digest>sha256:[0-9a-f]{64}))?"
)
_DIGEST: Final = re.compile(r"sha256:[0-9a-f]{64}")
_DOCKER_HUB: Final = "docker.io"
_DOCKER_HUB_NAMES: Final = frozenset({_DOCKER_HUB, "index.docker.io", "registry-1.docker.io"})


@dataclass(frozen=True, slots=True)
class Reference:
    """A name in a registry, taken apart; ``digest`` None: whatever the tag names now."""

    registry: str
    repository: str
    tag: str
    digest: str | None

    def __str__(self) -> str:
        """Return it for people: with the tag, if it was said or counts."""
        return f"{self.registry}/{self.repository}" + (f":{self.tag}" if self.tag else "")

    @property
    def wanted(self) -> str:
        """What is asked for: the digest if there is one."""
        return self.digest or self.tag

    def url(self, path: str) -> str:
        """Return the address of something in the repository."""
        host = "registry-1.docker.io" if self.registry in _DOCKER_HUB_NAMES else self.registry
        return f"https://{host}/v2/{self.repository}/{path}"


def parse_reference(image: str) -> Reference:
    """Take a reference apart.

    Raises:
        ValueError: it is none.
    """
    found = _REFERENCE.fullmatch(image)
    if found is None:
        raise ValueError(f"{image} is no reference like registry.example/team/controller:1.2@sha256:…")
    tag = found["tag"] or ("" if found["digest"] else "latest")
    return Reference(found["registry"], found["repository"], tag, found["digest"])


def credentials_for(reference: Reference, config: bytes) -> str | None:
    """Return ``user:password`` for a reference from a Docker configuration, None if it has none for it.

    Raises:
        ValueError: it is no such configuration.
    """
    try:
        auths: Mapping[str, Any] = read_json(config).get("auths") or {}
        fitting = [(name, entry) for name, entry in auths.items() if _is_for(name, reference)]
        for _, entry in sorted(fitting, key=lambda one: -len(one[0])):
            if entry.get("auth"):
                return base64.b64decode(entry["auth"], validate=True).decode()
            if entry.get("username"):
                return f"{entry['username']}:{entry.get('password', '')}"
    except (ValueError, AttributeError, TypeError, binascii.Error):
        raise ValueError("its .dockerconfigjson is no Docker configuration") from None
    return None


def _is_for(name: str, reference: Reference) -> bool:
    place = name.removeprefix("https://").removeprefix("http://").rstrip("/")
    host, _, path = place.partition("/")
    if path in {"v1", "v2"}:
        path = ""
    same = host == reference.registry or {host, reference.registry} <= _DOCKER_HUB_NAMES
    return same and (not path or f"{reference.repository}/".startswith(f"{path}/"))


@dataclass(frozen=True, slots=True)
class Blob:
    """What a manifest refers to."""

    media_type: str
    digest: str
    size: int


def blob_of(found: Any) -> Blob:  # noqa: ANN401 - JSON
    """Return a descriptor.

    Raises:
        ValueError: it is none, or has a digest that is no sha256.
    """
    digest = str(found.get("digest") if isinstance(found, dict) else "")
    if not _DIGEST.fullmatch(digest):
        raise ValueError(f"has a blob with the digest {digest[:100]!r}: only sha256 is supported")
    size = found.get("size")
    return Blob(str(found.get("mediaType") or ""), digest, size if isinstance(size, int) else 0)


def layers_of(document: Mapping[str, Any]) -> list[Blob]:
    """Return the layers of a manifest.

    Raises:
        ValueError: they are no list, or one of them is no descriptor.
    """
    found = document.get("layers") or []
    if not isinstance(found, list):
        raise ValueError("has layers that are no list")  # noqa: TRY004 - said of the image
    return [blob_of(one) for one in found]


def fit_for_header(token: object) -> str:
    """Return a token.

    Raises:
        ValueError: it is no text that a header can have.
    """
    if not isinstance(token, str) or not (token.isascii() and token.isprintable()):
        raise ValueError("there is no token that a header can have")
    return token


def is_index(content_type: str, document: Mapping[str, Any]) -> bool:
    """Say whether a document lists manifests."""
    kind = document.get("mediaType") or content_type.partition(";")[0].strip()
    return kind in INDEXES or ("manifests" in document and "layers" not in document)


def chosen_manifest(document: Mapping[str, Any]) -> str:
    """Return the digest of the one manifest of an index that is for WebAssembly, or that is the only one.

    Raises:
        ValueError: there is none, or it is not clear which.
    """
    rows = document.get("manifests")
    listed = [one for one in rows if not _is_attestation(one)] if isinstance(rows, list) else []
    wasm = [one for one in listed if _platform(one)[1].startswith("wasm") or _platform(one)[0].startswith("wasi")]
    fitting = wasm or listed
    if len(fitting) != 1:
        offered = ", ".join("/".join(_platform(one)) for one in listed) or "nothing"
        raise ValueError(f"has {offered}: one of them has to be for wasm")
    return blob_of(fitting[0]).digest


def _platform(one: Any) -> tuple[str, str]:  # noqa: ANN401 - JSON
    platform = _object(one, "platform")
    return str(platform.get("os") or "?"), str(platform.get("architecture") or "?")


def _is_attestation(one: Any) -> bool:  # noqa: ANN401 - JSON
    return "vnd.docker.reference.type" in _object(one, "annotations")


def _object(one: Any, key: str) -> Mapping[str, Any]:  # noqa: ANN401 - JSON
    found = one.get(key) if isinstance(one, dict) else None
    return found if isinstance(found, dict) else {}
