"""Pushes the artifacts of a release, signs them, attests SBOMs and provenance, and verifies all of it.

In: artifacts, a key of cosign. Out: artifacts, signatures and attestations in the registry, or an error. Called by the
command. The logins are those of the Docker configuration (``docker login``). Invariants: each artifact is signed and
verified by its digest; the password of the key is passed on standard input; nothing is sent to a public log, which a
registry on a private network must not depend on.
"""

from __future__ import annotations

import base64
import json
import os
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from trellis_dev.localcluster import tools
from trellis_dev.localcluster.progress import Progress, stepping
from trellis_tools.release.artifacts import Artifact
from trellis_tools.release.errors import ReleaseError
from trellis_tools.release.plan import Release
from trellis_tools.release.programs import run

SBOM_TYPE: Final = "cyclonedx"
PROVENANCE_TYPE: Final = "slsaprovenance1"
_NO_LOG: Final = ("--use-signing-config=false", "--tlog-upload=false", "--yes")
_IGNORE_LOG: Final = "--insecure-ignore-tlog=true"


@dataclass(frozen=True)
class Key:
    """A private key of cosign. ``password``: a file with its password, None if it has none."""

    file: Path
    password: Path | None = None

    def read(self) -> bytes:
        """Return the password, without the line break at its end.

        Raises:
            ReleaseError: the file cannot be read.
        """
        if self.password is None:
            return b""
        try:
            return self.password.read_bytes().rstrip(b"\r\n")
        except OSError as error:
            raise ReleaseError(f"{self.password}, the password of the key, cannot be read: {error.strerror}") from None


@dataclass(frozen=True)
class Publisher:
    """Pushes, signs and verifies. ``public``: the file with what :meth:`read_public_key` returns."""

    release: Release
    key: Key
    public: Path
    progress: Progress = field(repr=False)

    def read_public_key(self) -> str:
        """Return the public key.

        Raises:
            ReleaseError: the key cannot be read, or the key or its password is wrong.
        """
        if not os.access(self.key.file, os.R_OK):
            raise ReleaseError(f"KEY={self.key.file} cannot be read; `cosign generate-key-pair` creates a key")
        return self._cosign("public-key", "--key", str(self.key.file))

    def push(self, artifact: Artifact) -> None:
        """Push an artifact under the tag of the version.

        Raises:
            ReleaseError: the registry refused it, or has another digest under this tag.
        """
        tag = self.release.tagged(artifact.name)
        with stepping(self.progress, f"push {tag}"):
            run([self._tool("crane"), "push", str(artifact.layout), tag])
            found = run([self._tool("crane"), "digest", tag]).strip()
            if found != artifact.digest:
                raise ReleaseError(f"{tag} has digest {found} after the push, expected {artifact.digest}")

    def sign(self, artifact: Artifact, provenance: Path) -> None:
        """Sign an artifact and all manifests in it; attest its provenance and the SBOMs of its platforms.

        Raises:
            ReleaseError: cosign failed.
        """
        reference = self.release.pinned(artifact.name, artifact.digest)
        with stepping(self.progress, f"sign {reference}"):
            key = ("--key", str(self.key.file))
            # Not --recursive: for each manifest, cosign would ask again for the password, which it reads once.
            for digest in (artifact.digest, *artifact.sboms):
                self._cosign("sign", *key, *_NO_LOG, self.release.pinned(artifact.name, digest))
            for subject, kind, predicate in self._attestations(artifact, provenance):
                self._cosign("attest", *key, *_NO_LOG, "--type", kind, "--predicate", str(predicate), subject)

    def verify(self, artifact: Artifact, provenance: Path) -> None:
        """Verify the signatures of an artifact in the registry, and that its attestations are those of this release.

        Raises:
            ReleaseError: a signature is missing or wrong, or an attestation differs.
        """
        reference = self.release.pinned(artifact.name, artifact.digest)
        with stepping(self.progress, f"verify {reference}"):
            for digest in (artifact.digest, *artifact.sboms):
                self._verified("verify", self.release.pinned(artifact.name, digest))
            for subject, kind, predicate in self._attestations(artifact, provenance):
                output = self._verified("verify-attestation", "--type", kind, subject)
                wanted = json.loads(predicate.read_text(encoding="utf-8"))
                if wanted not in predicates(output, subject.rpartition("@sha256:")[2]):
                    raise ReleaseError(f"{subject} has no attestation of type {kind} with the content of {predicate}")

    def sign_file(self, file: Path) -> Path:
        """Sign a file, verify the signature and return the bundle that contains it.

        Raises:
            ReleaseError: cosign failed.
        """
        bundle = file.with_name(f"{file.name}.sigstore.json")
        arguments = ("--bundle", str(bundle), str(file))
        self._cosign("sign-blob", "--key", str(self.key.file), *_NO_LOG, *arguments)
        self._verified("verify-blob", *arguments)
        return bundle

    def _attestations(self, artifact: Artifact, provenance: Path) -> Iterator[tuple[str, str, Path]]:
        """Yield reference, type and predicate of each attestation."""
        yield self.release.pinned(artifact.name, artifact.digest), PROVENANCE_TYPE, provenance
        for digest, sbom in artifact.sboms.items():
            yield self.release.pinned(artifact.name, digest), SBOM_TYPE, sbom

    def _verified(self, command: str, *arguments: str) -> str:
        return run([self._tool("cosign"), command, "--key", str(self.public), _IGNORE_LOG, *arguments])

    def _cosign(self, *arguments: str) -> str:
        # cosign reads the password from standard input if that is not a terminal.
        return run([self._tool("cosign"), *arguments], stdin=self.key.read())

    def _tool(self, name: str) -> str:
        return str(tools.ensure(name, self.progress))


def predicates(output: str, sha256: str) -> list[Mapping[str, Any]]:
    """Return the predicates in the output of ``cosign verify-attestation`` whose subject has this digest."""
    found = []
    for line in output.splitlines():
        statement = json.loads(base64.b64decode(json.loads(line)["payload"]))
        if any(subject["digest"].get("sha256") == sha256 for subject in statement["subject"]):
            found.append(statement["predicate"])
    return found
