"""Preparation of a controller: its module, verified and compiled, and the input of its start.

In: a spec and its references, read as the controller's account. Out: ``Prepared``, or an error with the reason for a
condition. Called by ``fetching``. Invariants: a module with a checksum or digest is fetched once, not at each restart,
and run only for users that its source permits to read it; messages do not contain values of Secrets.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Sequence
from concurrent.futures import Executor
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any, Final, Protocol

from controller_host.domain.results import init_request
from controller_host.domain.views import ControllerView, Wanted, digest
from controller_host.guest.limits import Limits
from controller_host.guest.refusals import ModuleRefused
from controller_host.module.single_flight import SingleFlight
from controller_host.module.sources import ModuleRequest
from controller_host.permissions import impersonation_message
from controller_host.scheduler.guests import Guests, Prepared
from controller_host.state.progress import KnownModule, Progress
from trellis.kube.client import Kube
from trellis.kube.errors import Forbidden, NotFound
from trellis.kube.resources import CONFIGMAPS, SECRETS, Resource
from trellis.registries.domain.errors import SourceError
from trellis.runtime.fair_share import FairShare

_REFERENCES: Final = (64, 8)
"""Controllers whose references are read concurrently: in total, and per namespace."""
COMPILING: Final = 2
"""Concurrent compilations; one per namespace."""


class ReferenceReason(StrEnum):
    """Reason why an object in ``configMapRefs`` or ``secretRefs`` cannot be read."""

    CONFIG_MAP_NOT_FOUND = "ConfigMapNotFound"
    CONFIG_MAP_FORBIDDEN = "ConfigMapForbidden"
    SECRET_NOT_FOUND = "SecretNotFound"  # noqa: S105 - a reason
    SECRET_FORBIDDEN = "SecretForbidden"  # noqa: S105 - as above


class NotAccepted(Exception):  # noqa: N818 - named after the outcome
    """A controller cannot run. ``reason``: of the condition ``Accepted``; ``message``: with the resolution."""

    def __init__(self, reason: str, message: str) -> None:
        self.reason = reason
        self.message = message
        super().__init__(f"{reason}: {message}")


class Fetch(Protocol):
    """A fetch of a module in its turn; see ``sources``."""

    async def confirm(self) -> bool:
        """Check that the source permits the user to read it; False: only a fetch can check. Raises SourceError."""

    async def module(self) -> bytes:
        """Return the module; raises SourceError."""


class Sources(Protocol):
    """Source of the bytes of modules."""

    def turn(self, request: ModuleRequest) -> AbstractAsyncContextManager[Fetch]:
        """Wait for the turn of a module's namespace, and keep it while the block runs."""


@dataclass(frozen=True, slots=True)
class Preparing:
    """Preparation of controllers. ``pool``: threads for slow work.

    ``shared``: seconds for which the result of a repeated check of a source is used for all controllers with the same
    source and user: a thousand controllers may have one module.
    """

    acting_as: Callable[[str], Kube]
    sources: Sources
    guests: Guests
    progress: Progress
    pool: Executor
    shared: float
    _checked: dict[str, tuple[float, KnownModule]] = field(default_factory=dict)
    _single_flight: SingleFlight[tuple[str, bool], KnownModule] = field(default_factory=SingleFlight)
    _compiling: FairShare = field(default_factory=lambda: FairShare(COMPILING, 1))
    _references: FairShare = field(default_factory=lambda: FairShare(*_REFERENCES))

    def at_once(
        self, view: ControllerView, wanted: Wanted, user: str, *, repeated: bool
    ) -> tuple[Prepared, KnownModule] | None:
        """Return the prepared controller if no request is required, None otherwise.

        ``repeated``: it has been prepared with this spec, and its source is checked for changes.
        """
        if any(wanted.refs):
            return None
        module = self._known(view, wanted, user) or (self._just_checked(wanted, user) if repeated else None)
        if module is None:
            return None
        return _prepared(wanted, module, init_request((view.namespace, view.name), wanted.config, ({}, {})))

    async def prepare(
        self, view: ControllerView, wanted: Wanted, user: str, *, refetch: bool
    ) -> tuple[Prepared, KnownModule]:
        """Return the prepared controller and its module; ``refetch``: fetch the module's bytes even if it is known.

        Raises:
            NotAccepted: the controller cannot run.
            KubeError: the API server does not answer.
        """
        module = None if refetch else self._known(view, wanted, user)
        if module is None:
            # The source permits or refuses all requests of the same user for the same source alike.
            claim = claim_of(wanted, user)
            request = ModuleRequest(view.namespace, wanted.module(), user)
            module = await self._single_flight.do(
                (claim, refetch), lambda: self._fetched(request, wanted, refetch=refetch)
            )
            if wanted.is_fixed:
                self.progress.show(view.uid, claim)
            else:
                self._note(claim, module)
        return _prepared(wanted, module, await self._init(view, wanted, user))

    def _known(self, view: ControllerView, wanted: Wanted, user: str) -> KnownModule | None:
        """Return the known module of a fixed source, if the source permitted this user to read it before."""
        if not wanted.is_fixed or not self.progress.has_shown(view.uid, claim_of(wanted, user)):
            return None
        return self.progress.known(wanted.source)

    def _just_checked(self, wanted: Wanted, user: str) -> KnownModule | None:
        at, module = self._checked.get(claim_of(wanted, user), (0.0, None))
        return module if time.monotonic() - at < self.shared else None

    async def _fetched(self, request: ModuleRequest, wanted: Wanted, *, refetch: bool) -> KnownModule:
        """Fetch a module; for a known module, only check that the source permits the user to read it."""
        try:
            async with self.sources.turn(request) as fetch:
                known = self.progress.known(wanted.source) if wanted.is_fixed and not refetch else None
                if known is not None and await fetch.confirm():
                    return known
                return await self._loaded(request.namespace, await fetch.module(), wanted)
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

    def _note(self, claim: str, module: KnownModule) -> None:
        """Keep the result of a check for ``shared`` seconds."""
        now = time.monotonic()
        while self._checked and now - next(iter(self._checked.values()))[0] >= self.shared:
            del self._checked[next(iter(self._checked))]
        self._checked.pop(claim, None)  # the order is that of the checks
        self._checked[claim] = now, module

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
    """Return the digest that records the permission of a user to read a source."""
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
            message = f"{resource.kind} {name} does not exist in namespace {namespace}: create it, or correct the spec"
            raise NotAccepted(ReferenceReason(f"{resource.kind}NotFound"), message) from None
        except Forbidden as error:
            message = f"{resource.kind} {name} of the spec cannot be read: {impersonation_message(error, user)}"
            raise NotAccepted(ReferenceReason(f"{resource.kind}Forbidden"), message) from None
    return found
