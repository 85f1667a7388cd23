"""Fetches a shim from a registry: an artifact (its file is a blob) or an image (it is in a layer).

In: ``oci://registry/repository[:tag][@sha256:…]`` (``oci+http://``: without TLS). Out: the shim as a file.
Called by ``stage``.
Source: OCI distribution specification 1.1 (pull), image specification 1.1 (index, manifest, layers, whiteouts), and the
token flow of the registries' authentication specification.
Invariants: everything fetched by digest has that digest; a password goes to its registry and that registry's token
server only, and only over https unless http is allowed.
"""

from __future__ import annotations

import hashlib
import re
import urllib.parse
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path, PurePosixPath
from typing import Any, Final

from node_installer.domain.errors import InstallError
from node_installer.fetch import archive, manifests
from node_installer.fetch.web import Response, Web, basic
from trellis.installer_api.json_text import read_json
from trellis.installer_api.result import FailureReason

# No part of a repository is empty, "." or "..": it would be another repository's address.
_PART: Final = "[a-z0-9]+(?:(?:[.]|__?|-+)[a-z0-9]+)*"
_REFERENCE = re.compile(
    rf"oci(?P<plain>\+http)?://(?P<registry>[^/@]+)/(?P<repository>{_PART}(?:/{_PART})*)"
    r"(?::(?P<tag>[\w][\w.-]{0,127}))?(?:@(?P<digest>sha256:[0-9a-f]{64}))?"
)
_CHALLENGE = re.compile(r'(\w+)="([^"]*)"')
_DOCKER_HUB: Final = "docker.io"


@dataclass(frozen=True, slots=True)
class Reference:
    """A name in a registry, taken apart."""

    registry: str
    repository: str
    tag: str
    digest: str | None
    scheme: str = "https"

    @property
    def wanted(self) -> str:
        """What is asked for: the digest if there is one."""
        return self.digest or self.tag


def parse_reference(location: str) -> Reference:
    """Take ``oci://…`` apart.

    Raises:
        InstallError: ``InvalidSpec``.
    """
    found = _REFERENCE.fullmatch(location)
    if not found:
        message = f"{location} is no reference like oci://registry.example/team/shim:1.2@sha256:…"
        raise InstallError(FailureReason.INVALID_SPEC, message)
    return Reference(
        registry=found["registry"],
        repository=found["repository"],
        tag=found["tag"] or "latest",
        digest=found["digest"],
        scheme="http" if found["plain"] else "https",
    )


def credentials_for(registry: str, config: bytes | None) -> str | None:
    """Return ``user:password`` for a registry from a Docker configuration (a pull secret's ``.dockerconfigjson``).

    Raises:
        InstallError: ``DownloadFailed``: the configuration cannot be read.
    """
    if config is None:
        return None
    try:
        auths: Mapping[str, Any] = read_json(config).get("auths") or {}
        for name, entry in auths.items():
            if name.removeprefix("https://").removeprefix("http://").split("/")[0] not in _names(registry):
                continue
            if entry.get("auth"):
                import base64  # noqa: PLC0415 (only here)

                return base64.b64decode(entry["auth"]).decode()
            if entry.get("username"):
                return f"{entry['username']}:{entry.get('password', '')}"
    except (ValueError, AttributeError, TypeError) as error:
        message = "the registry credentials are no Docker configuration (config.json)"
        raise InstallError(FailureReason.DOWNLOAD_FAILED, message) from error
    return None


def _names(registry: str) -> tuple[str, ...]:
    return (registry, "index.docker.io", "registry-1.docker.io") if registry == _DOCKER_HUB else (registry,)


@dataclass(slots=True)
class Registry:
    """A conversation with one registry about one repository."""

    web: Web
    reference: Reference
    credentials: str | None
    _authorization: str | None = field(default=None, init=False)

    def fetch(self, arch: str, work: Path, member: str | None, names: tuple[str, ...]) -> Path:
        """Return the shim for an architecture as a file in ``work``.

        Raises:
            InstallError: it cannot be had.
        """
        try:
            return self._fetch(arch, work, member, names)
        except manifests.MalformedDocument as error:
            raise InstallError(FailureReason.DOWNLOAD_FAILED, f"{self._shown}: {error}") from error

    def _fetch(self, arch: str, work: Path, member: str | None, names: tuple[str, ...]) -> Path:
        layers = manifests.rows(self._manifest(arch), "layers")
        titled = [layer for layer in layers if manifests.title_of(layer)]
        if titled:
            return self._from_artifact(titled, work, member, names)
        if len(layers) == 1 and not _is_tar(layers[0]):
            return self._blob(layers[0], work / "blob")
        return self._from_image(layers, work, member, names)

    def _manifest(self, arch: str) -> manifests.Document:
        content_type, document = self._document(self.reference.wanted)
        if not manifests.is_index(document, content_type):
            return document
        listed = manifests.rows(document, "manifests")
        for item in listed:
            if manifests.platform_of(item) == ("linux", arch):
                return self._document(manifests.digest_of(item))[1]
        offered = ", ".join("/".join(manifests.platform_of(item)) for item in listed)
        message = f"{self._shown} has nothing for linux/{arch}, only {offered or 'nothing at all'}"
        raise InstallError(FailureReason.NO_SOURCE, message)

    def _document(self, wanted: str) -> tuple[str, manifests.Document]:
        accepted = ", ".join((*manifests.INDEXES, *manifests.MANIFESTS))
        answer = self._get(f"manifests/{wanted}", {"Accept": accepted})
        if answer.status != 200:
            message = f"{self._shown}: the registry answers {answer.status} to a request for {wanted}"
            raise InstallError(FailureReason.DOWNLOAD_FAILED, message)
        if wanted.startswith("sha256:") and hashlib.sha256(answer.body).hexdigest() != wanted.partition(":")[2]:
            message = f"{self._shown}: the manifest does not have the digest {wanted}"
            raise InstallError(FailureReason.CHECKSUM_MISMATCH, message)
        return answer.headers.get("content-type", ""), manifests.read_document(answer.body)

    def _from_artifact(
        self, layers: list[manifests.Document], work: Path, member: str | None, names: tuple[str, ...]
    ) -> Path:
        titles = {manifests.title_of(layer): layer for layer in layers}
        if len(titles) == 1:
            blob = self._blob(next(iter(titles.values())), work / "blob")
        else:
            blob = self._blob(titles[archive.choose(list(titles), member, names)], work / "blob")
        if not archive.is_archive(blob):
            return blob
        archive.extract_shim(blob, work / "shim", member=member, names=names)
        return work / "shim"

    def _from_image(
        self, layers: list[manifests.Document], work: Path, member: str | None, names: tuple[str, ...]
    ) -> Path:
        """Take the shim out of the topmost layer that has it, as a container would see it."""
        hidden: set[str] = set()
        seen: list[str] = []
        for number, layer in enumerate(reversed(layers)):
            blob = self._blob(layer, work / f"layer-{number}")
            files, whiteouts = _contents(blob)
            visible = [file for file in files if not _is_hidden(file, hidden)]
            seen += visible
            try:
                chosen = archive.choose(visible, member, names)
            except InstallError:
                hidden |= whiteouts
                blob.unlink()
                continue
            archive.extract_shim(blob, work / "shim", member=chosen, names=names)
            return work / "shim"
        archive.choose(seen, member, names)
        raise InstallError(FailureReason.SHIM_NOT_IN_ARCHIVE, f"{self._shown}: the shim is in no layer by itself")

    def _blob(self, layer: manifests.Document, target: Path) -> Path:
        digest = manifests.digest_of(layer)
        headers = {"Authorization": self._authorization} if self._authorization else {}
        found = self.web.download(self._url(f"blobs/{digest}"), target, headers=headers)
        if found != digest.partition(":")[2]:
            message = f"{self._shown}: a blob should have {digest} and has sha256:{found}"
            raise InstallError(FailureReason.CHECKSUM_MISMATCH, message)
        return target

    def _get(self, path: str, headers: Mapping[str, str]) -> Response:
        answer = self.web.get(self._url(path), self._authorized(headers))
        if answer.status == 401 and self._authorization is None:
            self._authorization = self._authorize(answer.headers.get("www-authenticate", ""))
            answer = self.web.get(self._url(path), self._authorized(headers))
        if answer.status in (401, 403):
            given = (
                "the credentials are refused" if self.credentials else "it wants credentials, and none are given for it"
            )
            raise InstallError(FailureReason.DOWNLOAD_FAILED, f"{self._shown}: {given} ({answer.status})")
        return answer

    def _authorized(self, headers: Mapping[str, str]) -> dict[str, str]:
        return {**headers, **({"Authorization": self._authorization} if self._authorization else {})}

    def _authorize(self, challenge: str) -> str | None:
        scheme, _, rest = challenge.partition(" ")
        login = basic(self.credentials) if self.credentials else None
        if scheme.lower() == "basic":
            return login
        values = dict(_CHALLENGE.findall(rest))
        if scheme.lower() != "bearer" or "realm" not in values:
            return None
        scope = values.get("scope", f"repository:{self.reference.repository}:pull")
        query = urllib.parse.urlencode({"service": values.get("service", ""), "scope": scope})
        joint = "&" if "?" in values["realm"] else "?"
        answer = self.web.get(f"{values['realm']}{joint}{query}", {"Authorization": login} if login else {})
        try:
            return f"Bearer {manifests.token_in(answer.body)}"
        except manifests.MalformedDocument as error:
            message = f"{self._shown}: the token server answers {answer.status} and gives no token"
            raise InstallError(FailureReason.DOWNLOAD_FAILED, message) from error

    def _url(self, path: str) -> str:
        host = "registry-1.docker.io" if self.reference.registry == _DOCKER_HUB else self.reference.registry
        return f"{self.reference.scheme}://{host}/v2/{self.reference.repository}/{path}"

    @property
    def _shown(self) -> str:
        return f"{self.reference.registry}/{self.reference.repository}"


def _contents(blob: Path) -> tuple[list[str], set[str]]:
    """Return a layer's files, and what it hides of the layers below."""
    files: list[str] = []
    hidden: set[str] = set()
    with archive.readable(), archive.opened_tar(blob) as tar:
        for item in archive.members(tar):
            path = PurePosixPath(item.name)
            if path.name == ".wh..wh..opq":
                hidden.add(str(path.parent))
            elif path.name.startswith(".wh."):
                hidden.add(str(path.with_name(path.name.removeprefix(".wh."))))
            elif item.isfile():
                files.append(item.name)
    return files, hidden


def _is_hidden(file: str, hidden: set[str]) -> bool:
    path = PurePosixPath(file)
    return any(str(part) in hidden for part in (path, *path.parents))


def _is_tar(layer: manifests.Document) -> bool:
    return "tar" in str(layer.get("mediaType", ""))
