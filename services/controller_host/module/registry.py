"""Fetches a module from a registry: an artifact (the module is a blob) or an image (it is a file in a layer).

In: a reference and credentials. Out: the module's bytes. Called by ``sources``. Invariants: what is fetched by digest
has that digest; a password goes to its registry and to that registry's token server only, over https.
Source: OCI distribution specification 1.1 (pull), and the token flow of the registries' authentication specification.
"""

from __future__ import annotations

import asyncio
import base64
import hashlib
import re
from collections.abc import Mapping
from typing import Any, Final
from urllib.parse import urlencode

import orjson

from controller_host.domain import references
from controller_host.domain.layers import module_in
from controller_host.domain.references import INDEXES, MANIFESTS, WASM_LAYERS, Blob, Reference
from controller_host.domain.source_errors import MOST_BYTES, SourceError, SourceReason, too_large
from controller_host.module.transfers import Transfer
from controller_host.module.web import Answer

_DOCUMENT_BYTES: Final = 4 * 2**20
_LAYERS: Final = 64
_ACCEPTED: Final = {"Accept": ", ".join((*INDEXES, *MANIFESTS))}
_CHALLENGE: Final = re.compile(r'(\w+)="([^"]*)"')


class Registry:
    """A conversation with one registry about one repository; ``credentials`` are ``user:password``."""

    def __init__(self, transfer: Transfer, reference: Reference, credentials: str | None) -> None:
        self._transfer = transfer
        self._reference = reference
        self._credentials = credentials
        self._authorization = ""

    async def confirm(self) -> None:
        """See to it that the registry lets these credentials have the manifest, without fetching anything.

        Raises:
            SourceError: it does not.
        """
        await self._get(f"manifests/{self._reference.wanted}", _ACCEPTED, method="HEAD")

    async def module(self) -> bytes:
        """Return the module.

        Raises:
            SourceError: it cannot be had.
        """
        manifest = await self._manifest()
        try:
            layers = references.layers_of(manifest)
        except ValueError as error:
            raise self._no_module(error) from None
        wasm = [layer for layer in layers if layer.media_type in WASM_LAYERS]
        if len(wasm) == 1:
            return await self._blob(wasm[0])
        if len(wasm) > 1 or len(layers) > _LAYERS:
            raise self._no_module(f"has {len(wasm) or len(layers)} layers: it has to be one module")
        if sum(layer.size for layer in layers) > MOST_BYTES:
            raise too_large(str(self._reference))
        await self._transfer.grow()  # whatever is packed in them
        blobs, left = [], MOST_BYTES
        for layer in layers:
            blobs.append(await self._blob(layer, left))
            left -= len(blobs[-1])
        try:
            return await asyncio.to_thread(module_in, blobs)
        except ValueError as error:
            raise self._no_module(error) from None

    async def _manifest(self) -> Mapping[str, Any]:
        content_type, found = await self._document(self._reference.wanted)
        if not references.is_index(content_type, found):
            return found
        try:
            digest = references.chosen_manifest(found)
        except ValueError as error:
            raise self._no_module(error) from None
        return (await self._document(digest))[1]

    async def _document(self, wanted: str) -> tuple[str, Mapping[str, Any]]:
        answer = await self._get(f"manifests/{wanted}", _ACCEPTED, _DOCUMENT_BYTES)
        if wanted.startswith("sha256:"):
            self._check(wanted, answer.body, "manifest")
        try:
            found = orjson.loads(answer.body)
        except orjson.JSONDecodeError:
            found = None
        if not isinstance(found, dict):
            raise SourceError(SourceReason.UNAVAILABLE, f"{self._reference}: the manifest is no JSON")
        return answer.headers.get("Content-Type", ""), found

    async def _blob(self, blob: Blob, most: int = MOST_BYTES) -> bytes:
        if blob.size > most:
            raise too_large(str(self._reference))
        body = (await self._get(f"blobs/{blob.digest}", {}, most)).body
        self._check(blob.digest, body, "blob")
        return body

    def _check(self, digest: str, body: bytes, what: str) -> None:
        found = f"sha256:{hashlib.sha256(body).hexdigest()}"
        if found != digest:
            message = f"{self._reference}: the {what} should have {digest} and has {found}"
            raise SourceError(SourceReason.CHECKSUM_MISMATCH, message)

    async def _get(
        self, path: str, headers: Mapping[str, str], most: int = MOST_BYTES, *, method: str = "GET"
    ) -> Answer:
        url = self._reference.url(path)
        answer = await self._transfer.ask(method, url, self._with_authorization(headers), most=most)
        if answer.status == 401 and not self._authorization:
            self._authorization = await self._authorize(answer.headers.get("WWW-Authenticate", ""))
            answer = await self._transfer.ask(method, url, self._with_authorization(headers), most=most)
        if answer.status == 200:
            return answer
        if answer.status in {401, 403}:
            raise self._refused(answer)
        if answer.status == 404:
            raise SourceError(SourceReason.NOT_FOUND, f"{self._reference}: the registry has no {path}")
        message = f"{self._reference}: the registry answers {answer.status} to a request for {path}"
        raise SourceError(SourceReason.UNAVAILABLE, message)

    def _with_authorization(self, headers: Mapping[str, str]) -> dict[str, str]:
        return {**headers, **({"Authorization": self._authorization} if self._authorization else {})}

    async def _authorize(self, challenge: str) -> str:
        """Return the header that the registry's challenge asks for, "" if there is nothing to say."""
        scheme, _, rest = challenge.partition(" ")
        login = f"Basic {base64.b64encode(self._credentials.encode()).decode()}" if self._credentials else ""
        if scheme.lower() == "basic":
            return login
        values = dict(_CHALLENGE.findall(rest))
        if scheme.lower() != "bearer" or "realm" not in values:
            return ""
        scope = values.get("scope") or f"repository:{self._reference.repository}:pull"
        query = urlencode({"service": values.get("service", ""), "scope": scope})
        url = f"{values['realm']}{'&' if '?' in values['realm'] else '?'}{query}"
        answer = await self._transfer.ask("GET", url, {"Authorization": login} if login else {}, most=_DOCUMENT_BYTES)
        if answer.status in {401, 403}:
            raise self._refused(answer)
        try:
            found = orjson.loads(answer.body)
            return f"Bearer {references.fit_for_header(found.get('token') or found['access_token'])}"
        except (ValueError, KeyError, AttributeError):
            message = f"{self._reference}: its token server answers {answer.status} and gives no token"
            raise SourceError(SourceReason.UNAVAILABLE, message) from None

    def _refused(self, answer: Answer) -> SourceError:
        given = "it refuses the credentials of pullSecret" if self._credentials else "it wants a pullSecret"
        return SourceError(SourceReason.FORBIDDEN, f"{self._reference}: {given} ({answer.status})")

    def _no_module(self, why: object) -> SourceError:
        return SourceError(SourceReason.NO_MODULE, f"{self._reference} {why}")
