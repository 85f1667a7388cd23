"""Downloads each shim that a node needs into a directory of the container, and checks it before the node is changed.

In: a requested shim. Out: a file with the required checksum, for this architecture. Called by ``operations``.
Invariant: a result is complete and checked; a source without a checksum is rejected, unless that is allowed.
"""

from __future__ import annotations

import contextlib
import hashlib
from dataclasses import dataclass
from pathlib import Path

from node_installer.domain.errors import InstallError
from node_installer.domain.plan import Staged
from node_installer.fetch import archive, elf, oci
from node_installer.fetch.web import Web
from trellis.installer_api.result import FailureReason
from trellis.installer_api.spec import Source, WantedShim


@dataclass(frozen=True, slots=True)
class Stage:
    """Download of shims.

    ``docker_config``: registry credentials of sources that name none. ``pull_secrets``: a directory with those that
    sources name. ``image_root``: root of the installer image.
    """

    work: Path
    web: Web
    require_checksum: bool = True
    docker_config: bytes | None = None
    pull_secrets: Path | None = None
    image_root: Path = Path("/")

    def fetch(self, wanted: WantedShim, arch: str) -> Staged:
        """Return a requested shim, downloaded and checked.

        Raises:
            InstallError: it is not available, or a check failed.
        """
        source = source_of(wanted, arch, require_checksum=self.require_checksum)
        folder = self.work / wanted.handler
        folder.mkdir(parents=True, exist_ok=True)
        names = (f"containerd-shim-{wanted.name}", f"containerd-shim-{wanted.handler}")
        shim = self._get(source, folder, names, arch)
        with shim.open("rb") as file:
            elf.check_architecture(file.read(elf.HEADER_BYTES), arch, f"the shim of {wanted.handler!r}")
            file.seek(0)
            digest = hashlib.file_digest(file, "sha256").hexdigest()
        if source.binary_sha256 and source.binary_sha256 != digest:
            raise _mismatch(f"the shim in {source.location}", source.binary_sha256, digest)
        return Staged(digest, shim.stat().st_size, shim)

    def _get(self, source: Source, folder: Path, names: tuple[str, ...], arch: str) -> Path:
        if source.location.startswith("oci"):
            reference = oci.parse_reference(source.location)
            credentials = oci.login_for(reference, self._docker_config(source))
            shim = oci.Registry(self.web, reference, credentials).fetch(arch, folder, source.member, names)
            if source.sha256 and (found := _sha256(shim)) != source.sha256:
                raise _mismatch(source.location, source.sha256, found)
            return shim
        fetched = self._from_image(source) if source.location.startswith("/") else self._download(source, folder)
        if not archive.is_archive(fetched):
            return fetched
        archive.extract_shim(fetched, folder / "shim", member=source.member, names=names)
        return folder / "shim"

    def _docker_config(self, source: Source) -> bytes | None:
        """Return the registry credentials for a source: if it names any, only these."""
        if source.pull_secret is None:
            return self.docker_config
        if self.pull_secrets is not None:
            path = self.pull_secrets / source.pull_secret / "config.json"
            with contextlib.suppress(OSError):
                return path.read_bytes()
        message = (
            f"the pull secret {source.pull_secret!r} does not exist: create it in the namespace of the installer Jobs, "
            "of type kubernetes.io/dockerconfigjson"
        )
        raise InstallError(FailureReason.DOWNLOAD_FAILED, message)

    def _download(self, source: Source, folder: Path) -> Path:
        target = folder / "download"
        digest = self.web.download(source.location, target)
        if source.sha256 and source.sha256 != digest:
            target.unlink()
            raise _mismatch(source.location, source.sha256, digest)
        return target

    def _from_image(self, source: Source) -> Path:
        path = self.image_root / source.location.lstrip("/")
        if not path.is_file():
            message = f"{source.location} is not in the installer's image"
            raise InstallError(FailureReason.NO_SOURCE, message)
        if source.sha256 and (digest := _sha256(path)) != source.sha256:
            raise _mismatch(source.location, source.sha256, digest)
        return path


def source_of(wanted: WantedShim, arch: str, *, require_checksum: bool) -> Source:
    """Return the source of a requested shim for an architecture.

    Raises:
        InstallError: ``NoSourceForPlatform`` or ``ChecksumMissing``.
    """
    source = wanted.source_for(arch)
    if source is None:
        offered = ", ".join(sorted({item.arch or "any" for item in wanted.sources})) or "no source at all"
        message = f"shim {wanted.name!r} has no source for linux/{arch} ({offered})"
        raise InstallError(FailureReason.NO_SOURCE, message)
    if require_checksum and not source.is_pinned:
        message = (
            f"shim {wanted.name!r}: {source.location} has neither a sha256 nor a digest, so a change would not be "
            "detected: add one, or allow missing checksums (requireChecksum: false)"
        )
        raise InstallError(FailureReason.CHECKSUM_MISSING, message)
    return source


def _sha256(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def _mismatch(what: str, wanted: str, found: str) -> InstallError:
    message = f"{what} should have the SHA-256 {wanted} and has {found}: it is another file, or was changed"
    return InstallError(FailureReason.CHECKSUM_MISMATCH, message)
