"""Parses image references, and the logins of a Docker configuration.

Pure. In: the text of a reference, a Docker configuration. Out: their parts. Called by the node installer and by
controller_host, which send the requests. Source: OCI distribution specification 1.1; ``.dockerconfigjson`` as the
kubelet reads it: by registry, or by a path below one; the longest match wins. Invariant: a repository has no empty,
"." or ".." part, because that would address another repository.
"""

from __future__ import annotations

import base64
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

from trellis.installer_api.json_text import read_json

_PART: Final = "[a-z0-9]+(?:(?:[.]|__?|-+)[a-z0-9]+)*"
_IN_REGISTRY: Final = (
    rf"/(?P<repository>{_PART}(?:/{_PART})*)(?::(?P<tag>\w[\w.-]{{0,127}}))?(?:@(?P<digest>sha256:[0-9a-f]{{64}}))?"
)
_IMAGE: Final = re.compile(r"(?P<registry>[a-zA-Z0-9.-]+(?::[0-9]+)?)" + _IN_REGISTRY)
_HOST: Final = re.compile(r"[a-zA-Z0-9](?:[a-zA-Z0-9.-]*[a-zA-Z0-9])?(?::[0-9]{1,5})?")
_LOCATION: Final = re.compile(r"oci(?P<plain>\+http)?://(?P<registry>[^/@]+)" + _IN_REGISTRY)
_DOCKER_HUB: Final = "registry-1.docker.io"
DOCKER_HUB_NAMES: Final = frozenset({"docker.io", "index.docker.io", _DOCKER_HUB})


@dataclass(frozen=True, slots=True)
class Reference:
    """A parsed image reference; ``digest`` None: the current manifest of the tag."""

    registry: str
    repository: str
    tag: str
    digest: str | None
    scheme: str = "https"

    def __str__(self) -> str:
        """Return the reference for users, with the tag if it was given or applies."""
        return f"{self.registry}/{self.repository}" + (f":{self.tag}" if self.tag else "")

    @property
    def wanted(self) -> str:
        """Digest of the manifest to request, or its tag if there is no digest."""
        return self.digest or self.tag

    def url(self, path: str) -> str:
        """Return the URL of a path in the repository."""
        host = _DOCKER_HUB if self.registry in DOCKER_HUB_NAMES else self.registry
        return f"{self.scheme}://{host}/v2/{self.repository}/{path}"


def parse_image(image: str) -> Reference:
    """Parse ``registry/repository[:tag][@digest]``.

    Raises:
        ValueError: the text is not a reference.
    """
    found = _IMAGE.fullmatch(image)
    if found is None:
        raise ValueError(f"{image} is not a reference like registry.example/team/controller:1.2@sha256:…")
    return _reference(found, "https")


def registry_host(host: str) -> str:
    """Return ``HOST[:PORT]`` as hosts are compared: in lower case, without the default port of http or https.

    Raises:
        ValueError: the text has another form, e.g. a scheme or a path.
    """
    if not _HOST.fullmatch(host):
        raise ValueError(f"{host!r} is not a registry like registry.example:5000")
    name, _, port = host.lower().partition(":")
    return name if port in {"", "80", "443"} else f"{name}:{port}"


def parse_location(location: str) -> Reference:
    """Parse ``oci://registry/repository[:tag][@digest]`` (``oci+http://``: without TLS).

    Raises:
        ValueError: the text is not such a location.
    """
    found = _LOCATION.fullmatch(location)
    if found is None:
        raise ValueError(f"{location} is not a reference like oci://registry.example/team/shim:1.2@sha256:…")
    return _reference(found, "http" if found["plain"] else "https")


def _reference(found: re.Match[str], scheme: str) -> Reference:
    tag = found["tag"] or ("" if found["digest"] else "latest")
    return Reference(found["registry"], found["repository"], tag, found["digest"], scheme)


def credentials_for(reference: Reference, config: bytes, *, by_path: bool = True) -> str | None:
    """Return ``user:password`` for a reference from a Docker configuration, None without a matching login.

    ``by_path`` False: the first login of the registry is used, even if it is for a path below it.

    Raises:
        ValueError: the text is not a Docker configuration.
    """
    try:
        auths: Mapping[str, Any] = read_json(config).get("auths") or {}
        fitting = [(name, entry) for name, entry in auths.items() if _is_for(name, reference, by_path)]
        for _, entry in sorted(fitting, key=lambda item: -len(item[0]) if by_path else 0):
            if entry.get("auth"):
                return base64.b64decode("".join(entry["auth"].split()), validate=True).decode()
            if entry.get("username"):
                # JSON can contain lone surrogates, which cannot be part of a header.
                return f"{entry['username']}:{entry.get('password', '')}".encode().decode()
    except (ValueError, AttributeError, TypeError):
        raise ValueError("it is not a Docker configuration") from None
    return None


def _is_for(name: str, reference: Reference, by_path: bool) -> bool:
    place = name.removeprefix("https://").removeprefix("http://").rstrip("/")
    host, _, path = place.partition("/")
    if host != reference.registry and not {host, reference.registry} <= DOCKER_HUB_NAMES:
        return False
    return not by_path or path in {"", "v1", "v2"} or f"{reference.repository}/".startswith(f"{path}/")
