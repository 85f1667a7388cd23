"""What a controller is to run: its module, checked and compiled, and what it is told when it starts.

In: a spec, and what that refers to, read as the controller's account. Out: ``Prepared``, or why not, in the reasons of
a condition. Called by ``fetching``. Invariants: what a checksum or digest pins is fetched once, not at each restart,
and run only for who was let have it by its source; no value of a Secret is in a message.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from concurrent.futures import Executor
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any, Final, Protocol

from controller_host.domain.results import init_request
from controller_host.domain.source_errors import SourceError
from controller_host.domain.views import ControllerView, Wanted, digest
from controller_host.guest.limits import Limits
from controller_host.guest.refusals import ModuleRefused
from controller_host.module.joint import Joint
from controller_host.module.sources import Asked
from controller_host.permissions import acting_words
from controller_host.scheduler.guests import Guests, Prepared
from controller_host.state.progress import KnownModule, Progress
from trellis.kube.client import Kube
from trellis.kube.errors import Forbidden, NotFound
from trellis.kube.resources import CONFIGMAPS, SECRETS, Resource
from trellis.runtime.fair_share import Shares

_REFERENCES: Final = (64, 8)
"""Controllers whose references are read at a time, and of those of one namespace."""
COMPILING: Final = 2
"""Modules that are compiled at a time, those of one namespace one after the other."""


class ReferenceReason(StrEnum):
    """Why what ``configMapRefs`` or ``secretRefs`` name cannot be had."""

    CONFIG_MAP_NOT_FOUND = "ConfigMapNotFound"
    CONFIG_MAP_FORBIDDEN = "ConfigMapForbidden"
    SECRET_NOT_FOUND = "SecretNotFound"  # noqa: S105 - a reason
    SECRET_FORBIDDEN = "SecretForbidden"  # noqa: S105 - as above


class NotAccepted(Exception):  # noqa: N818 - says what is the matter
    """What is wanted cannot be run. ``reason``: of the condition ``Accepted``; ``message``: what to do."""

    def __init__(self, reason: str, message: str) -> None:
        self.reason = reason
        self.message = message
        super().__init__(f"{reason}: {message}")


class Fetch(Protocol):
    """A module whose turn it is to be fetched; see ``sources``."""

    async def confirm(self) -> bool:
        """See to it that its source lets who asks have it; False: only fetching it can tell. Raises SourceError."""

    async def module(self) -> bytes:
        """Return the module; raises SourceError."""


class Sources(Protocol):
    """Gets the bytes of modules."""

    def turn(self, asked: Asked) -> AbstractAsyncContextManager[Fetch]:
        """Wait until it is the turn of a module's namespace, and have it while the block runs."""


@dataclass(frozen=True, slots=True)
class Preparing:
    """Prepares controllers. ``pool``: threads that may take their time."""

    acting_as: Callable[[str], Kube]
    sources: Sources
    guests: Guests
    progress: Progress
    pool: Executor
    _joint: Joint[tuple[str, bool], KnownModule] = field(default_factory=Joint)
    _compiling: Shares = field(default_factory=lambda: Shares(COMPILING, 1))
    _references: Shares = field(default_factory=lambda: Shares(*_REFERENCES))

    def at_once(self, view: ControllerView, wanted: Wanted, user: str) -> tuple[Prepared, KnownModule] | None:
        """Return what is to run if nobody has to be asked for it, None otherwise."""
        if any(wanted.refs) or (module := self._known(view, wanted, user)) is None:
            return None
        return _prepared(wanted, module, init_request((view.namespace, view.name), wanted.config, ({}, {})))

    async def prepare(
        self, view: ControllerView, wanted: Wanted, user: str, *, anew: bool
    ) -> tuple[Prepared, KnownModule]:
        """Return what is to run, and what is known of its module; ``again``: its bytes are needed in any case.

        Raises:
            NotAccepted: it cannot be run as things are.
            KubeError: the API server does not answer.
        """
        module = None if anew else self._known(view, wanted, user)
        if module is None:
            # Who asks as the same user for the same source would be let have it, or not, in the same way.
            claim = claim_of(wanted, user)
            asked = Asked(view.namespace, wanted.module, user)
            module = await self._joint.do((claim, anew), lambda: self._fetched(asked, wanted, anew=anew))
            if wanted.is_fixed:
                self.progress.show(view.uid, claim)
        return _prepared(wanted, module, await self._init(view, wanted, user))

    def _known(self, view: ControllerView, wanted: Wanted, user: str) -> KnownModule | None:
        """Return what a source is known to have that cannot change, if this user was let have it before."""
        if not wanted.is_fixed or not self.progress.has_shown(view.uid, claim_of(wanted, user)):
            return None
        return self.progress.known(wanted.source)

    async def _fetched(self, asked: Asked, wanted: Wanted, *, anew: bool) -> KnownModule:
        """Fetch a module; of one that is known it is enough that its source would give it to who asks."""
        try:
            async with self.sources.turn(asked) as fetch:
                known = self.progress.known(wanted.source) if wanted.is_fixed and not anew else None
                if known is not None and await fetch.confirm():
                    return known
                return await self._loaded(asked.namespace, await fetch.module(), wanted)
        except SourceError as error:
            raise NotAccepted(error.reason, error.message) from None

    async def _loaded(self, namespace: str, wasm: bytes, wanted: Wanted) -> KnownModule:
        try:
            async with self._compiling.hold(namespace):
                module = await asyncio.get_running_loop().run_in_executor(self.pool, self.guests.load, wasm)
        except ModuleRefused as refused:
            raise NotAccepted(refused.reason, refused.message) from None
        known = KnownModule(module.sha256, module.abi, len(wasm))
        if wanted.is_fixed:
            self.progress.learn(wanted.source, known)
        return known

    async def _init(self, view: ControllerView, wanted: Wanted, user: str) -> bytes:
        config_maps: dict[str, Any] = {}
        secrets: dict[str, Any] = {}
        if any(wanted.refs):
            kube = self.acting_as(user)
            async with self._references.hold(view.namespace):
                config_maps = await _data(kube, user, CONFIGMAPS, (view.namespace, wanted.refs[0]))
                secrets = await _data(kube, user, SECRETS, (view.namespace, wanted.refs[1]))
        return init_request((view.namespace, view.name), wanted.config, (config_maps, secrets))


def claim_of(wanted: Wanted, user: str) -> str:
    """Return what stands for "this user was let have this source"."""
    return digest(wanted.source.encode(), user.encode())


def _prepared(wanted: Wanted, module: KnownModule, init: bytes) -> tuple[Prepared, KnownModule]:
    limits = Limits(wanted.bounds.memory_bytes, wanted.bounds.cpu_seconds, wanted.bounds.wall_seconds)
    return Prepared(module.sha256, init, digest(init), limits), module


async def _data(kube: Kube, user: str, resource: Resource, place: tuple[str, Sequence[str]]) -> dict[str, Any]:
    found, (namespace, names) = {}, place
    for name in names:
        try:
            found[name] = (await kube.get(resource, name, namespace)).get("data") or {}
        except NotFound:
            message = f"{resource.kind} {name}, which the spec refers to, does not exist in namespace {namespace}"
            raise NotAccepted(ReferenceReason(f"{resource.kind}NotFound"), message) from None
        except Forbidden as error:
            message = f"{resource.kind} {name}, which the spec refers to, cannot be read: {acting_words(error, user)}"
            raise NotAccepted(ReferenceReason(f"{resource.kind}Forbidden"), message) from None
    return found
