"""Fetches a module from a registry: an artifact (the module is a blob) or an image (it is a file in a layer).

In: a reference and credentials. Out: the module's bytes. Called by controller_host and by ``trellis explain``.
Invariants: content that is fetched by digest matches the digest; a password is sent only to its registry and
the token server that this registry names, over https, except for hosts that the user named as insecure; a challenge of
another host, to which the registry redirects, receives none.
Source: OCI distribution specification 1.1 (pull), and the token flow of the registries' authentication specification.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from dataclasses import replace
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
from trellis.registries.domain.errors import (
    MOST_BYTES,
    SourceError,
    SourceReason,
    TlsProblem,
    TransportError,
    too_large,
)
from trellis.registries.domain.layers import module_in
from trellis.registries.domain.wasm_images import WASM_LAYERS, chosen_manifest
from trellis.registries.transfers import Transfer
from trellis.registries.web import Answer, host_of

_DOCUMENT_BYTES: Final = 4 * 2**20
_LAYERS: Final = 64


class Registry:
    """A client for one repository of a registry; ``credentials`` are ``user:password``.

    ``insecure``: hosts, as ``registry_host`` returns them, that may be asked over plain http if https fails. The HTTP
    client needs the same hosts.
    """

    def __init__(
        self,
        transfer: Transfer,
        reference: Reference,
        credentials: str | None,
        insecure: frozenset[str] = frozenset(),
    ) -> None:
        self._transfer = transfer
        self._reference = reference
        self._credentials = credentials
        self._insecure = insecure
        self._answered = False
        self._authorization = Authorization(reference.repository, credentials)

    @property
    def plain(self) -> bool:
        """The registry answered over plain http, because it did not answer https."""
        return self._answered and self._reference.scheme == "http"

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
        answer = await self._send(method, path, headers, most)
        if answer.status == 401 and not self._authorization.headers():
            if answer.moved and self._credentials:
                message = f"{self._reference}: it redirects to another host, which gets no login and requires one (401)"
                raise SourceError(SourceReason.UNAVAILABLE, message)
            await self._authorize(answer.headers.get("WWW-Authenticate", ""))
            answer = await self._send(method, path, headers, most)
        if answer.status == 200:
            return answer
        if answer.status in {401, 403}:
            raise self._refused(answer)
        if answer.status == 404:
            raise SourceError(SourceReason.NOT_FOUND, f"{self._reference}: the registry has no {path}")
        message = f"{self._reference}: the registry returned {answer.status} for {path}"
        raise SourceError(SourceReason.UNAVAILABLE, message)

    async def _send(self, method: str, path: str, headers: Mapping[str, str], most: int) -> Answer:
        sent = {**headers, **self._authorization.headers()}
        try:
            answer = await self._transfer.ask(method, self._reference.url(path), sent, most=most)
        except TransportError as error:
            if not self._can_be_plain(error):
                raise
            self._reference = replace(self._reference, scheme="http")
            answer = await self._transfer.ask(method, self._reference.url(path), sent, most=most)
        self._answered = True
        return answer

    def _can_be_plain(self, error: TransportError) -> bool:
        """Return whether plain http is permitted after https failed; a bad certificate is a registry with TLS."""
        host = host_of(self._reference.url(""))
        first = not self._answered and self._reference.scheme == "https" and error.host == host
        return first and host in self._insecure and error.tls in {None, TlsProblem.PLAIN_HTTP}

    async def _authorize(self, challenge: str) -> None:
        request = self._authorization.challenged(challenge)
        if request is None:
            return
        if request.headers and self._reference.scheme == "http":
            self._check_token_server(request.url)
        answer = await self._transfer.ask("GET", request.url, request.headers, most=_DOCUMENT_BYTES)
        if answer.status in {401, 403}:
            raise self._refused(answer)
        try:
            self._authorization.granted(answer.body)
        except MalformedDocument:
            message = f"{self._reference}: its token server returned {answer.status} without a token"
            raise SourceError(SourceReason.UNAVAILABLE, message) from None

    def _check_token_server(self, url: str) -> None:
        """Reject a token server on another host: over plain http, anyone on the network can name one."""
        host = host_of(url)
        if host.partition(":")[0] == self._reference.registry.lower().partition(":")[0] or host in self._insecure:
            return
        message = f"{self._reference}: over plain http, it names the token server {host}, which gets no login"
        raise TransportError(SourceReason.UNAVAILABLE, message, host, TlsProblem.PLAIN_HTTP)

    def _refused(self, answer: Answer) -> SourceError:
        given = "it rejects the credentials of pullSecret" if self._credentials else "it requires a pullSecret"
        return SourceError(SourceReason.FORBIDDEN, f"{self._reference}: {given} ({answer.status})")

    def _no_module(self, reason: object) -> SourceError:
        return SourceError(SourceReason.NO_MODULE, f"{self._reference} {reason}")
