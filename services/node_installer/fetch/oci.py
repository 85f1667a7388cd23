"""Downloads a shim from a registry: from an artifact (a blob is the file) or an image (a layer contains it).

In: ``oci://registry/repository[:tag][@sha256:…]`` (``oci+http://``: without TLS). Out: the shim as a file.
Called by ``stage``.
Source: OCI distribution specification 1.1 (pull), image specification 1.1 (index, manifest, layers, whiteouts), and the
token flow of the registries' authentication specification.
Invariants: content that is fetched by digest has that digest; a password is sent to its registry and the token server
that this registry names only, and only over https unless http is allowed.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path, PurePosixPath

from node_installer.domain.errors import InstallError
from node_installer.fetch import archive
from node_installer.fetch.web import Response, Web
from trellis.installer_api.result import FailureReason
from trellis.oci import manifests
from trellis.oci.challenge import Authorization
from trellis.oci.references import Reference, credentials_for, parse_location


def parse_reference(location: str) -> Reference:
    """Return the parsed reference of ``oci://…``.

    Raises:
        InstallError: ``InvalidSpec``.
    """
    try:
        return parse_location(location)
    except ValueError as error:
        raise InstallError(FailureReason.INVALID_SPEC, str(error)) from error


def login_for(reference: Reference, config: bytes | None) -> str | None:
    """Return ``user:password`` for a reference from a Docker configuration (a pull secret's ``.dockerconfigjson``).

    Raises:
        InstallError: ``DownloadFailed``: the configuration cannot be read.
    """
    try:
        return None if config is None else credentials_for(reference, config, by_path=False)
    except ValueError as error:
        message = "the registry credentials are not a Docker configuration (config.json)"
        raise InstallError(FailureReason.DOWNLOAD_FAILED, message) from error


@dataclass(slots=True)
class Registry:
    """A client of one registry for one repository."""

    web: Web
    reference: Reference
    credentials: str | None
    _authorization: Authorization = field(init=False)

    def __post_init__(self) -> None:
        self._authorization = Authorization(self.reference.repository, self.credentials)

    def fetch(self, arch: str, work: Path, member: str | None, names: tuple[str, ...]) -> Path:
        """Return the shim for an architecture as a file in ``work``.

        Raises:
            InstallError: it is not available.
        """
        try:
            return self._fetch(arch, work, member, names)
        except manifests.MalformedDocument as error:
            raise InstallError(FailureReason.DOWNLOAD_FAILED, f"{self._shown}: the manifest {error}") from error

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
                return self._document(manifests.blob_of(item).digest)[1]
        offered = ", ".join("/".join(manifests.platform_of(item)) for item in listed)
        message = f"{self._shown} has no manifest for linux/{arch}, only {offered or 'an empty index'}"
        raise InstallError(FailureReason.NO_SOURCE, message)

    def _document(self, wanted: str) -> tuple[str, manifests.Document]:
        answer = self._get(f"manifests/{wanted}", manifests.ACCEPTED)
        if answer.status != 200:
            message = f"{self._shown}: the registry answers {answer.status} to a request for {wanted}"
            raise InstallError(FailureReason.DOWNLOAD_FAILED, message)
        if wanted.startswith("sha256:") and manifests.digest_of(answer.body) != wanted:
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
        """Extract the shim from the topmost layer that has it, as in a container."""
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
        raise InstallError(FailureReason.SHIM_NOT_IN_ARCHIVE, f"{self._shown}: no layer contains the shim as a file")

    def _blob(self, layer: manifests.Document, target: Path) -> Path:
        digest = manifests.blob_of(layer).digest
        url = self.reference.url(f"blobs/{digest}")
        found = self.web.download(url, target, headers=self._authorization.headers())
        if found != digest.partition(":")[2]:
            message = f"{self._shown}: a blob should have {digest} and has sha256:{found}"
            raise InstallError(FailureReason.CHECKSUM_MISMATCH, message)
        return target

    def _get(self, path: str, headers: Mapping[str, str]) -> Response:
        url = self.reference.url(path)
        answer = self.web.get(url, {**headers, **self._authorization.headers()})
        if answer.status == 401 and answer.moved and self.credentials:
            message = f"{self._shown}: it redirects to another host, which gets no login and requires one (401)"
            raise InstallError(FailureReason.DOWNLOAD_FAILED, message)
        if answer.status == 401 and not self._authorization.headers():
            self._authorize(answer.headers.get("www-authenticate", ""))
            answer = self.web.get(url, {**headers, **self._authorization.headers()})
        if answer.status in (401, 403):
            given = "the credentials are refused" if self.credentials else "it requires credentials, but none are set"
            raise InstallError(FailureReason.DOWNLOAD_FAILED, f"{self._shown}: {given} ({answer.status})")
        return answer

    def _authorize(self, challenge: str) -> None:
        request = self._authorization.challenged(challenge)
        if request is None:
            return
        answer = self.web.get(request.url, request.headers)
        try:
            self._authorization.granted(answer.body)
        except manifests.MalformedDocument as error:
            message = f"{self._shown}: the token server answers {answer.status} and gives no token"
            raise InstallError(FailureReason.DOWNLOAD_FAILED, message) from error

    @property
    def _shown(self) -> str:
        return f"{self.reference.registry}/{self.reference.repository}"


def _contents(blob: Path) -> tuple[list[str], set[str]]:
    """Return a layer's files, and the paths that it hides in the layers below."""
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
    return "tar" in manifests.media_type_of(layer)
