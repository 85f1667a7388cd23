"""Guests that are functions of Python, for tests of what hosts them; what runs real ones is tested by itself."""

from __future__ import annotations

import copy
import errno
import hashlib
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import orjson

from controller_host.guest.faults import FaultKind, GuestFault
from controller_host.guest.guest import Host
from controller_host.guest.instance import Called
from controller_host.guest.limits import Limits
from controller_host.guest.modules import ModuleRefused, RefusalReason
from controller_host.guest.snapshots import SnapshotFailed
from controller_host.module.loading import EngineUnavailable
from controller_host.scheduler.guests import Owner

Behaviour = Callable[["FakeInstance", str, dict[str, Any]], dict[str, Any]]


@dataclass
class FakeModule:
    sha256: str
    behaviour: Behaviour
    exports: frozenset[str]
    abi: int | None = 1


@dataclass
class FakeInstance:
    """``state`` is what it has in memory; ``size`` what that counts as."""

    module: FakeModule
    limits: Limits
    host: Host
    state: dict[str, Any] = field(default_factory=dict)
    closed: bool = False
    interrupted: threading.Event = field(default_factory=threading.Event)
    abi: int | None = None

    def call(self, export: str, request: bytes | None) -> Called:
        assert not self.closed, "a guest is called that is gone"
        began = time.monotonic()
        try:
            answer = self.module.behaviour(self, export, orjson.loads(request or b"{}"))
        except BaseException:
            self.closed = True
            raise
        return Called(orjson.dumps(answer), None, 0.0, time.monotonic() - began, 0.0)

    def interrupt(self) -> None:
        self.interrupted.set()

    def wait(self, seconds: float) -> None:
        """Be in a call for so long, unless interrupted."""
        if self.interrupted.wait(seconds):
            raise GuestFault(FaultKind.INTERRUPTED, "the host stopped it")

    def close(self) -> None:
        self.closed = True


class FakeGuests:
    """``programs``: what each text of bytes does."""

    def __init__(self, programs: dict[bytes, Behaviour], exports: tuple[str, ...] = ("init", "reconcile")) -> None:
        self.programs = programs
        self.exports = frozenset(exports)
        self.modules: dict[str, FakeModule] = {}
        self.snapshots: dict[str, tuple[Owner, dict[str, Any], str]] = {}
        self.booted = self.woken = self.suspended = 0
        self.bytes = 1000
        self.full = False
        self.too_large: set[str] = set()
        """Uids of those for whom there is too little room on disk."""
        self.refused = 0
        self.abi: int | None = 1
        """What is found of a module's version as it is read; None: only the module can tell, and says this."""
        self.says_version = 1
        self.unavailable = ""
        """Why there is no engine."""

    def require(self) -> None:
        if self.unavailable:
            raise EngineUnavailable(self.unavailable)

    def load(self, wasm: bytes) -> Any:
        if wasm not in self.programs:
            raise ModuleRefused(RefusalReason.NOT_WASM, "this is no module: build one")
        sha256 = hashlib.sha256(wasm).hexdigest()
        return self.modules.setdefault(sha256, FakeModule(sha256, self.programs[wasm], self.exports, self.abi))

    def module(self, sha256: str) -> Any:
        return self.modules.get(sha256)

    def boot(self, module: Any, limits: Limits, host: Host, on_start: Callable[[Any], None]) -> Any:
        self.booted += 1
        abi = module.abi or self.says_version
        instance = FakeInstance(module, limits, host, abi=abi)
        on_start(instance)
        if abi != 1:
            raise ModuleRefused(RefusalReason.UNSUPPORTED_ABI, f"it is made for version {abi} of the ABI")
        return instance

    def note(self, owner: Owner) -> str | None:
        found = self.snapshots.get(owner.uid)
        return found[2] if found is not None and found[0] == owner else None

    def wake(self, module: Any, limits: Limits, host: Host, owner: Owner) -> Any:
        if self.note(owner) is None:
            return None
        self.woken += 1
        return FakeInstance(module, limits, host, copy.deepcopy(self.snapshots[owner.uid][1]))

    def suspend(self, instance: Any, owner: Owner, note: str) -> int:
        assert not instance.closed
        if self.full or owner.uid in self.too_large:
            self.refused += 1
            self.snapshots.pop(owner.uid, None)
            raise SnapshotFailed("No space left on device", errno.ENOSPC)
        self.suspended += 1
        self.snapshots[owner.uid] = (owner, copy.deepcopy(instance.state), note)
        instance.close()
        return len(orjson.dumps(instance.state))

    def disk_bytes(self, uid: str) -> int:
        return len(orjson.dumps(self.snapshots[uid][1])) if uid in self.snapshots else 0

    def size(self, instance: Any) -> int:
        assert not instance.closed
        return self.bytes

    def forget(self, uid: str) -> None:
        self.snapshots.pop(uid, None)
