"""What a controller is to run: its module, checked and compiled, and what it is told when it starts.

In: a spec, and what that refers to, read as the controller's account. Out: ``Prepared``, or why not, in the reasons of
a condition. Called by ``hosting``. Invariants: what a checksum or digest pins is fetched once, not at each restart; no
value of a Secret is in a message.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from concurrent.futures import Executor
from dataclasses import dataclass
from typing import Any, Protocol

from controller_host.guest.limits import Limits
from controller_host.guest.modules import ModuleRefused
from controller_host.guests import Guests, Prepared
from controller_host.progress import KnownModule, Progress
from controller_host.results import init_request
from controller_host.rights import acting_words
from controller_host.source_errors import SourceError
from controller_host.views import ControllerView, Wanted, digest
from trellis.crds.wasm_controllers import Module as ModuleSource
from trellis.kube.client import Kube
from trellis.kube.errors import Forbidden, NotFound
from trellis.kube.resources import CONFIGMAPS, SECRETS, Resource


class NotAccepted(Exception):  # noqa: N818 - says what is the matter
    """What is wanted cannot be run. ``reason``: of the condition ``Accepted``; ``message``: what to do."""

    def __init__(self, reason: str, message: str) -> None:
        self.reason = reason
        self.message = message
        super().__init__(f"{reason}: {message}")


class Sources(Protocol):
    """Gets the bytes of modules."""

    async def fetch(self, namespace: str, module: ModuleSource, user: str) -> bytes:
        """Return the module; raises SourceError."""


@dataclass(frozen=True, slots=True)
class Preparing:
    """Prepares controllers. ``pool``: threads that may take their time."""

    acting_as: Callable[[str], Kube]
    sources: Sources
    guests: Guests
    progress: Progress
    pool: Executor

    async def prepare(
        self, view: ControllerView, wanted: Wanted, user: str, *, anew: bool
    ) -> tuple[Prepared, KnownModule]:
        """Return what is to run, and what is known of its module; ``anew``: its bytes are needed in any case.

        Raises:
            NotAccepted: it cannot be run as things are.
            KubeError: the API server does not answer.
        """
        module = await self._module(view, wanted, user, anew=anew)
        init = await self._init(view, wanted, user)
        limits = Limits(wanted.bounds.memory_bytes, wanted.bounds.cpu_seconds, wanted.bounds.wall_seconds)
        return Prepared(module.sha256, init, digest(init), limits), module

    async def _module(self, view: ControllerView, wanted: Wanted, user: str, *, anew: bool) -> KnownModule:
        if wanted.is_fixed and not anew and (known := self.progress.known(wanted.source)) is not None:
            return known
        try:
            wasm = await self.sources.fetch(view.namespace, wanted.module, user)
        except SourceError as error:
            raise NotAccepted(error.reason, error.message) from None
        loop = asyncio.get_running_loop()
        try:
            module = await loop.run_in_executor(self.pool, self.guests.load, wasm)
        except ModuleRefused as refused:
            raise NotAccepted(refused.reason, refused.message) from None
        known = KnownModule(module.sha256, module.abi, len(wasm))
        if wanted.is_fixed:
            self.progress.learn(wanted.source, known)
        return known

    async def _init(self, view: ControllerView, wanted: Wanted, user: str) -> bytes:
        kube = self.acting_as(user)
        config_maps = await _data(kube, user, CONFIGMAPS, (view.namespace, wanted.refs[0]))
        secrets = await _data(kube, user, SECRETS, (view.namespace, wanted.refs[1]))
        return init_request((view.namespace, view.name), wanted.config, (config_maps, secrets))


async def _data(kube: Kube, user: str, resource: Resource, place: tuple[str, Sequence[str]]) -> dict[str, Any]:
    found, (namespace, names) = {}, place
    for name in names:
        try:
            found[name] = (await kube.get(resource, name, namespace)).get("data") or {}
        except NotFound:
            message = f"{resource.kind} {name}, which the spec refers to, does not exist in namespace {namespace}"
            raise NotAccepted(f"{resource.kind}NotFound", message) from None
        except Forbidden as error:
            message = f"{resource.kind} {name}, which the spec refers to, cannot be read: {acting_words(error, user)}"
            raise NotAccepted(f"{resource.kind}Forbidden", message) from None
    return found
