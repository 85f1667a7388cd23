"""Fetches the bytes of a controller's module from the source in its spec, and verifies them.

In: ``spec.module``, the controller's namespace, the user that it acts as. Out: bytes. Called by ``preparing``, outside
a controller's turn. Invariants: objects are read as that user; a module without a checksum or digest is not run,
except from a ConfigMap, which is part of the cluster; a given checksum is compared for every source; few modules at a
time are in memory, and a namespace has at most its share of the fetches of each type of source. Messages do not contain
content of Secrets.
"""

from __future__ import annotations

import asyncio
import base64
import binascii
import hashlib
import posixpath
from collections.abc import AsyncIterator, Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from controller_host.module.files import read_below
from controller_host.permissions import impersonation_message
from controller_host.timings import SourceTimings
from trellis.crds.wasm_controllers import ConfigMapModule, Module, OciModule
from trellis.kube.client import Kube
from trellis.kube.errors import Forbidden, NotFound
from trellis.kube.resources import CONFIGMAPS, SECRETS, Manifest, Resource
from trellis.oci.references import credentials_for, parse_image
from trellis.registries.domain.errors import SourceError, SourceReason
from trellis.registries.registry import Registry
from trellis.registries.transfers import Transfer, Transfers
from trellis.registries.web import Client, Web
from trellis.runtime.fair_share import FairShare

_OBJECTS: Final = (16, 4)
"""ConfigMaps that are read concurrently, at most 1 MiB each: in total, and per namespace."""
_FILES: Final = (2, 1)
"""Files that are read concurrently, at most 64 MiB each: in total, and per namespace."""
VOLUMES: Final = "volumes"
"""Directory of volumes below the directory of modules, as ``<namespace>/<claim>``; not allowed in ``path``."""
_DOCKER_CONFIG: Final = ".dockerconfigjson"
CLIENT: Final = Client("trellis-controller-host", "TRELLIS_CONTROLLER_SOURCE_NETWORKS")


@dataclass(frozen=True, slots=True)
class ModuleRequest:
    """A requested module, its namespace, and the user that reads its objects."""

    namespace: str
    module: Module
    user: str


class Sources:
    """Sources of modules. ``directory``: parent of ``path`` and ``pvc``; None: these sources are disabled."""

    def __init__(
        self,
        acting_as: Callable[[str], Kube],
        web: Web,
        directory: Path | None,
        timings: SourceTimings = SourceTimings(),  # noqa: B008 - frozen
    ) -> None:
        self._timings: Final = timings
        self._acting_as = acting_as
        self._web = web
        self._directory = directory
        self._transfers = Transfers(web, timings)
        self._objects = FairShare(*_OBJECTS)
        self._files = FairShare(*_FILES)
        self._threads = ThreadPoolExecutor(_FILES[0], thread_name_prefix="volume")

    @asynccontextmanager
    async def turn(self, request: ModuleRequest) -> AsyncIterator[Fetch]:
        """Wait for the turn of the module's namespace, and yield the fetch of the module.

        The caller has to release the module's memory before the block ends.
        """
        module = request.module
        if module.oci is not None or module.url is not None:
            async with self._transfers.begin(request.namespace) as transfer:
                yield Fetch(self, request, transfer)
        else:
            shares = self._files if module.config_map is None else self._objects
            async with shares.hold(request.namespace):
                yield Fetch(self, request, None)

    async def close(self) -> None:
        """Close all connections."""
        self._threads.shutdown(wait=False, cancel_futures=True)
        await self._web.close()

    async def bytes_of(self, request: ModuleRequest, transfer: Transfer | None) -> bytes:
        """Return a module's bytes without verification; raises SourceError, KubeError."""
        module, namespace = request.module, request.namespace
        if module.config_map is not None:
            return await self._from_config_map(namespace, module.config_map, request.user)
        if transfer is not None:
            async with transfer.in_time(_named(module)):
                if module.oci is not None:
                    return await (await self.registry(request, module.oci, transfer)).module()
                assert module.url is not None  # otherwise there is no transfer
                return await _from_url(transfer, module.url)
        if module.pvc is not None:
            return await self._from_file(f"{VOLUMES}/{namespace}/{module.pvc.claim_name}", module.pvc.path)
        if module.path is None:
            raise SourceError(SourceReason.NOT_FOUND, "spec.module has no source: set one of its fields")
        if posixpath.normpath(module.path).partition("/")[0] == VOLUMES:
            message = f"the module {module.path} is on a volume: use spec.module.pvc, in the namespace of the volume"
            raise SourceError(SourceReason.NOT_ALLOWED, message)
        return await self._from_file("", module.path)

    async def registry(self, request: ModuleRequest, oci: OciModule, transfer: Transfer) -> Registry:
        """Return the client for the registry of an image; raises SourceError, KubeError."""
        try:
            reference = parse_image(oci.image)
        except ValueError as error:
            raise SourceError(SourceReason.NOT_FOUND, str(error)) from None
        credentials = None
        if oci.pull_secret is not None:
            secret = await self._object(SECRETS, request.namespace, oci.pull_secret.name, request.user)
            config = _decoded(secret.get("data"), _DOCKER_CONFIG)
            name = f"the pullSecret {oci.pull_secret.name} in namespace {request.namespace}"
            if config is None:
                raise SourceError(SourceReason.FORBIDDEN, f"{name} has no {_DOCKER_CONFIG}")
            try:
                credentials = credentials_for(reference, config)
            except ValueError:
                message = f"{name}: its {_DOCKER_CONFIG} is not a Docker configuration"
                raise SourceError(SourceReason.FORBIDDEN, message) from None
            if credentials is None:
                raise SourceError(SourceReason.FORBIDDEN, f"{name} has no credentials for {reference.registry}")
        return Registry(transfer, reference, credentials)

    async def _from_config_map(self, namespace: str, source: ConfigMapModule, user: str) -> bytes:
        config_map = await self._object(CONFIGMAPS, namespace, source.name, user)
        found = _decoded(config_map.get("binaryData"), source.key)
        if found is not None:
            return found
        where = f"ConfigMap {source.name} in namespace {namespace}"
        if source.key in (config_map.get("data") or {}):
            message = f"{where} has {source.key} in data: move it to binaryData"
        else:
            message = f"{where} has no key {source.key} in binaryData"
        raise SourceError(SourceReason.NOT_FOUND, message)

    async def _from_file(self, below: str, path: str) -> bytes:
        if self._directory is None:
            message = "this platform has no directory of modules (TRELLIS_CONTROLLER_MODULES_DIR): use another source"
            raise SourceError(SourceReason.NOT_ALLOWED, message)
        what = f"volume {below.removeprefix(f'{VOLUMES}/')}" if below else "directory of modules"
        loop, seconds = asyncio.get_running_loop(), self._timings.file
        try:
            async with asyncio.timeout(seconds):
                return await loop.run_in_executor(self._threads, _read, self._directory / below, path, what)
        except TimeoutError:
            message = f"cannot read the module {path}: the {what} did not answer within {seconds:g} s"
            raise SourceError(SourceReason.UNAVAILABLE, message) from None

    async def _object(self, resource: Resource, namespace: str, name: str, user: str) -> Manifest:
        where = f"{resource.kind} {name} in namespace {namespace}"
        try:
            return await self._acting_as(user).get(resource, name, namespace)
        except NotFound:
            raise SourceError(SourceReason.NOT_FOUND, f"{where} does not exist") from None
        except Forbidden as error:
            raise SourceError(
                SourceReason.FORBIDDEN, f"cannot get {where}: {impersonation_message(error, user)}"
            ) from None


@dataclass(frozen=True, slots=True)
class Fetch:
    """A fetch of a module in its turn."""

    sources: Sources
    request: ModuleRequest
    transfer: Transfer | None

    async def confirm(self) -> bool:
        """Check that a source permits the user to read the module; return False if only a fetch can check that.

        The content of an address or of the platform's directory does not depend on the user.

        Raises:
            SourceError: the source refuses it.
            KubeError: the API server does not answer.
        """
        module, transfer = self.request.module, self.transfer
        if module.oci is not None and transfer is not None:
            async with transfer.in_time(_named(module)):
                await (await self.sources.registry(self.request, module.oci, transfer)).confirm()
            return True
        return module.url is not None or module.path is not None

    async def module(self) -> bytes:
        """Return the module's bytes.

        Raises:
            SourceError: the module cannot be fetched, or its checksum does not match.
            KubeError: the API server does not answer.
        """
        module = self.request.module
        _check_pinned(module)
        wasm = await self.sources.bytes_of(self.request, self.transfer)
        found = await asyncio.to_thread(_sha256, wasm)
        if module.sha256 is not None and found != module.sha256:
            message = f"the module of {_named(module)} has sha256 {found}, expected {module.sha256}"
            raise SourceError(SourceReason.CHECKSUM_MISMATCH, message)
        return wasm


async def _from_url(transfer: Transfer, url: str) -> bytes:
    answer = await transfer.ask("GET", url)
    if answer.status == 200:
        return answer.body
    shown = url.partition("?")[0]
    reasons = {404: SourceReason.NOT_FOUND, 401: SourceReason.FORBIDDEN, 403: SourceReason.FORBIDDEN}
    reason = reasons.get(answer.status, SourceReason.UNAVAILABLE)
    raise SourceError(reason, f"{shown}: the server returned {answer.status}")


def _read(root: Path, path: str, what: str) -> bytes:
    if not root.is_dir():
        raise SourceError(SourceReason.NOT_FOUND, f"the {what} is not mounted by this platform")
    return read_below(root, path)


def _check_pinned(module: Module) -> None:
    """Reject a source whose content can change; admission does too, but not for objects that were stored before."""
    if module.sha256 is not None or module.config_map is not None:
        return
    if module.oci is None or "@sha256:" not in module.oci.image:
        message = f"the content of {_named(module)} can change: set its digest, or spec.module.sha256"
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
