"""Fetches a module from a registry: an artifact (the module is a blob) or an image (it is a file in a layer).

In: a reference and credentials. Out: the module's bytes. Called by controller_host and by ``trellis explain``.
Invariants: content that is fetched by digest matches the digest; a password is sent only to its registry and that
registry's token server, over https.
Source: OCI distribution specification 1.1 (pull), and the token flow of the registries' authentication specification.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from typing import Final

from trellis.oci.challenge import Authorization
from trellis.oci.manifests import (
    ACCEPTED,
    Blob,
    Document,
    MalformedDocument,
    blob_of,
    digest_of,
    is_index,
    read_document,
    rows,
)
from trellis.oci.references import Reference
from trellis.registries.domain.errors import MOST_BYTES, SourceError, SourceReason, too_large
from trellis.registries.domain.layers import module_in
from trellis.registries.domain.wasm_images import WASM_LAYERS, chosen_manifest
from trellis.registries.transfers import Transfer
from trellis.registries.web import Answer

_DOCUMENT_BYTES: Final = 4 * 2**20
_LAYERS: Final = 64


class Registry:
    """A client for one repository of a registry; ``credentials`` are ``user:password``."""

    def __init__(self, transfer: Transfer, reference: Reference, credentials: str | None) -> None:
        self._transfer = transfer
        self._reference = reference
        self._credentials = credentials
        self._authorization = Authorization(reference.repository, credentials)

    async def confirm(self) -> None:
        """Check that the registry permits these credentials to read the manifest, without fetching it.

        Raises:
            SourceError: the registry refuses it.
        """
        await self._get(f"manifests/{self._reference.wanted}", ACCEPTED, method="HEAD")

    async def module(self) -> bytes:
        """Return the module.

        Raises:
            SourceError: the module cannot be fetched.
        """
        manifest = await self._manifest()
        try:
            layers = [blob_of(row) for row in rows(manifest, "layers")]
        except ValueError as error:
            raise self._no_module(error) from None
        wasm = [layer for layer in layers if layer.media_type in WASM_LAYERS]
        if len(wasm) == 1:
            return await self._blob(wasm[0])
        if len(wasm) > 1 or len(layers) > _LAYERS:
            raise self._no_module(f"has {len(wasm) or len(layers)} layers: it has to be one module")
        if sum(layer.size for layer in layers) > MOST_BYTES:
            raise too_large(str(self._reference))
        await self._transfer.grow()  # unpacking can require much memory
        blobs, left = [], MOST_BYTES
        for layer in layers:
            blobs.append(await self._blob(layer, left))
            left -= len(blobs[-1])
        try:
            return await asyncio.to_thread(module_in, blobs)
        except ValueError as error:
            raise self._no_module(error) from None

    async def _manifest(self) -> Document:
        content_type, found = await self._document(self._reference.wanted)
        if not is_index(found, content_type):
            return found
        try:
            digest = chosen_manifest(found)
        except ValueError as error:
            raise self._no_module(error) from None
        return (await self._document(digest))[1]

    async def _document(self, wanted: str) -> tuple[str, Document]:
        answer = await self._get(f"manifests/{wanted}", ACCEPTED, _DOCUMENT_BYTES)
        if wanted.startswith("sha256:"):
            self._check(wanted, answer.body, "manifest")
        try:
            found = read_document(answer.body)
        except MalformedDocument as error:
            raise SourceError(SourceReason.UNAVAILABLE, f"{self._reference}: the manifest {error}") from None
        return answer.headers.get("Content-Type", ""), found

    async def _blob(self, blob: Blob, most: int = MOST_BYTES) -> bytes:
        if blob.size > most:
            raise too_large(str(self._reference))
        body = (await self._get(f"blobs/{blob.digest}", {}, most)).body
        self._check(blob.digest, body, "blob")
        return body

    def _check(self, digest: str, body: bytes, what: str) -> None:
        found = digest_of(body)
        if found != digest:
            message = f"{self._reference}: the {what} has digest {found}, expected {digest}"
            raise SourceError(SourceReason.CHECKSUM_MISMATCH, message)

    async def _get(
        self, path: str, headers: Mapping[str, str], most: int = MOST_BYTES, *, method: str = "GET"
    ) -> Answer:
        url, authorization = self._reference.url(path), self._authorization
        answer = await self._transfer.ask(method, url, {**headers, **authorization.headers()}, most=most)
        if answer.status == 401 and not authorization.headers():
            await self._authorize(answer.headers.get("WWW-Authenticate", ""))
            answer = await self._transfer.ask(method, url, {**headers, **authorization.headers()}, most=most)
        if answer.status == 200:
            return answer
        if answer.status in {401, 403}:
            raise self._refused(answer)
        if answer.status == 404:
            raise SourceError(SourceReason.NOT_FOUND, f"{self._reference}: the registry has no {path}")
        message = f"{self._reference}: the registry returned {answer.status} for {path}"
        raise SourceError(SourceReason.UNAVAILABLE, message)

    async def _authorize(self, challenge: str) -> None:
        request = self._authorization.challenged(challenge)
        if request is None:
            return
        answer = await self._transfer.ask("GET", request.url, request.headers, most=_DOCUMENT_BYTES)
        if answer.status in {401, 403}:
            raise self._refused(answer)
        try:
            self._authorization.granted(answer.body)
        except MalformedDocument:
            message = f"{self._reference}: its token server returned {answer.status} without a token"
            raise SourceError(SourceReason.UNAVAILABLE, message) from None

    def _refused(self, answer: Answer) -> SourceError:
        given = "it rejects the credentials of pullSecret" if self._credentials else "it requires a pullSecret"
        return SourceError(SourceReason.FORBIDDEN, f"{self._reference}: {given} ({answer.status})")

    def _no_module(self, reason: object) -> SourceError:
        return SourceError(SourceReason.NO_MODULE, f"{self._reference} {reason}")
