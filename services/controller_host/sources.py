"""The bytes of a controller's module, from wherever its spec says, and what was promised of them checked.

In: ``spec.module``, the controller's namespace, the user that it acts as. Out: bytes. Called by ``preparing``.
Invariants: objects are read as that user; what is not pinned by a checksum or a digest is not run, but for a ConfigMap,
which its own cluster keeps; a checksum that is said is compared, whatever the source; few modules at a time are in
memory. Nothing of a Secret is in a message.
"""

from __future__ import annotations

import asyncio
import base64
import binascii
import hashlib
import posixpath
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

from controller_host.files import read_below
from controller_host.references import credentials_for, parse_reference
from controller_host.registry import Registry
from controller_host.rights import acting_words
from controller_host.source_errors import SourceError, SourceReason
from controller_host.web import Web
from trellis.crds.wasm_controllers import ConfigMapModule, Module, OciModule
from trellis.kube.client import Kube
from trellis.kube.errors import Forbidden, NotFound
from trellis.kube.resources import CONFIGMAPS, SECRETS, Manifest, Resource

AT_ONCE: Final = 2
"""Modules that are fetched at a time: each may have 64 MiB, and an image of it twice that besides."""
VOLUMES: Final = "volumes"
"""Directory of volumes below that of modules, as ``<namespace>/<claim>``; no ``path`` may lead there."""
_DOCKER_CONFIG: Final = ".dockerconfigjson"


class Sources:
    """Fetches modules. ``directory``: where ``path`` and ``pvc`` are below; None: there are none."""

    def __init__(self, acting_as: Callable[[str], Kube], web: Web, directory: Path | None) -> None:
        self._acting_as = acting_as
        self._web = web
        self._directory = directory
        self._at_once = asyncio.Semaphore(AT_ONCE)

    async def fetch(self, namespace: str, module: Module, user: str) -> bytes:
        """Return a module's bytes.

        Raises:
            SourceError: it cannot be had, or is not what was promised.
            KubeError: the API server does not answer.
        """
        _check_pinned(module)
        async with self._at_once:
            wasm = await self._bytes(namespace, module, user)
            found = await asyncio.to_thread(_sha256, wasm)
        if module.sha256 is not None and found != module.sha256:
            message = f"the module of {_named(module)} should have sha256 {module.sha256} and has {found}"
            raise SourceError(SourceReason.CHECKSUM_MISMATCH, message)
        return wasm

    async def _bytes(self, namespace: str, module: Module, user: str) -> bytes:
        if module.oci is not None:
            return await self._from_registry(namespace, module.oci, user)
        if module.config_map is not None:
            return await self._from_config_map(namespace, module.config_map, user)
        if module.url is not None:
            return await self._from_url(module.url)
        if module.pvc is not None:
            return await self._from_file(f"{VOLUMES}/{namespace}/{module.pvc.claim_name}", module.pvc.path)
        if module.path is None:
            raise SourceError(SourceReason.NOT_FOUND, "spec.module says no source")
        if posixpath.normpath(module.path).partition("/")[0] == VOLUMES:
            message = f"the module {module.path} is on somebody's volume: say it as pvc, of its own namespace"
            raise SourceError(SourceReason.NOT_ALLOWED, message)
        return await self._from_file("", module.path)

    async def _from_registry(self, namespace: str, oci: OciModule, user: str) -> bytes:
        try:
            reference = parse_reference(oci.image)
        except ValueError as error:
            raise SourceError(SourceReason.NOT_FOUND, str(error)) from None
        credentials = None
        if oci.pull_secret is not None:
            secret = await self._object(SECRETS, namespace, oci.pull_secret.name, user)
            config = _decoded(secret.get("data"), _DOCKER_CONFIG)
            name = f"the pullSecret {oci.pull_secret.name} in namespace {namespace}"
            if config is None:
                raise SourceError(SourceReason.FORBIDDEN, f"{name} has no {_DOCKER_CONFIG}")
            try:
                credentials = credentials_for(reference, config)
            except ValueError as error:
                raise SourceError(SourceReason.FORBIDDEN, f"{name}: {error}") from None
            if credentials is None:
                raise SourceError(SourceReason.FORBIDDEN, f"{name} has nothing for {reference.registry}")
        return await Registry(self._web, reference, credentials).module()

    async def _from_config_map(self, namespace: str, source: ConfigMapModule, user: str) -> bytes:
        config_map = await self._object(CONFIGMAPS, namespace, source.name, user)
        found = _decoded(config_map.get("binaryData"), source.key)
        if found is not None:
            return found
        where = f"ConfigMap {source.name} in namespace {namespace}"
        if source.key in (config_map.get("data") or {}):
            message = f"{where} has {source.key} as text, in data: it has to be in binaryData"
        else:
            message = f"{where} has no {source.key} in its binaryData"
        raise SourceError(SourceReason.NOT_FOUND, message)

    async def _from_url(self, url: str) -> bytes:
        answer = await self._web.get(url)
        if answer.status == 200:
            return answer.body
        shown = url.partition("?")[0]
        reasons = {404: SourceReason.NOT_FOUND, 401: SourceReason.FORBIDDEN, 403: SourceReason.FORBIDDEN}
        reason = reasons.get(answer.status, SourceReason.UNAVAILABLE)
        raise SourceError(reason, f"{shown}: the server answers {answer.status}")

    async def _from_file(self, below: str, path: str) -> bytes:
        if self._directory is None:
            message = "this platform has no directory of modules (TRELLIS_CONTROLLER_MODULES_DIR): use another source"
            raise SourceError(SourceReason.NOT_ALLOWED, message)
        root = self._directory / below
        if not await asyncio.to_thread(root.is_dir):
            what = f"volume {below.removeprefix(f'{VOLUMES}/')}" if below else "directory of modules"
            raise SourceError(SourceReason.NOT_FOUND, f"the {what} is not mounted by this platform")
        return await asyncio.to_thread(read_below, root, path)

    async def _object(self, resource: Resource, namespace: str, name: str, user: str) -> Manifest:
        where = f"{resource.kind} {name} in namespace {namespace}"
        try:
            return await self._acting_as(user).get(resource, name, namespace)
        except NotFound:
            raise SourceError(SourceReason.NOT_FOUND, f"{where} does not exist") from None
        except Forbidden as error:
            raise SourceError(SourceReason.FORBIDDEN, f"cannot get {where}: {acting_words(error, user)}") from None


def _check_pinned(module: Module) -> None:
    """Refuse what may change under way; admission does, too, but not of what was stored before it did."""
    if module.sha256 is not None or module.config_map is not None:
        return
    if module.oci is None or "@sha256:" not in module.oci.image:
        message = f"what {_named(module)} has may change: say its digest, or spec.module.sha256"
        raise SourceError(SourceReason.NOT_PINNED, message)


def _named(module: Module) -> str:
    if module.oci is not None:
        return module.oci.image
    if module.config_map is not None:
        return f"ConfigMap {module.config_map.name}"
    if module.pvc is not None:
        return f"volume {module.pvc.claim_name}, {module.pvc.path},"
    return (module.url or module.path or "spec.module").partition("?")[0]


def _decoded(data: Any, key: str) -> bytes | None:  # noqa: ANN401 - JSON
    value = (data or {}).get(key)
    if value is None:
        return None
    try:
        return base64.b64decode(value, validate=True)
    except (binascii.Error, TypeError, ValueError):
        return None


def _sha256(wasm: bytes) -> str:
    return hashlib.sha256(wasm).hexdigest()
