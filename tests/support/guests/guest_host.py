"""One guest in the hands of the service's own runtime, without the service: a module, a Kubernetes of dicts, a clock.

In: a module, an API, whether to suspend. Out: the results of calls, as docs/controller-abi.md has them. Called by the
suite of the examples. With ``directory`` the guest is suspended after every call and woken for the next: whatever a
controller does then, it does asleep.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol

from controller_host.guest.instance import Instance
from controller_host.guest.limits import Limits
from controller_host.guest.modules import Module
from controller_host.guest.snapshots import Identity, Snapshots

Json = dict[str, Any]


class Api(Protocol):
    """Answers the requests of ``call``."""

    def call(self, request: Json) -> Json: ...


@dataclass
class GuestHost:
    """One instance of a module. ``logged``: its output; ``wakes``: how often it was brought back from disk."""

    module: Module
    api: Api
    directory: Path | None = None
    logged: list[tuple[int, str]] = field(default_factory=list)
    wakes: int = 0

    def __post_init__(self) -> None:
        self._limits = Limits(memory_bytes=128 << 20, cpu_seconds=20)
        self._instance = Instance.boot(self.module, self._limits, GuestCalls(self))
        self._identity = Identity("guest", self.module.sha256, self.module.engine.key, "config")
        self._snapshots = None if self.directory is None else Snapshots(self.directory)

    def reconcile(self, key: Mapping[str, Any], obj: Json | None, **more: Any) -> Json:
        return self.call("reconcile", {"key": dict(key), "object": obj, "attempt": 0, **more})

    def init(self, config: Json | None = None, **more: Any) -> Json:
        return self.call("init", {**_start(config), **more})

    def migrate(self, state: Json, config: Json | None = None) -> Json:
        return self.call("migrate", {**_start(config), "from": {"sha256": "0" * 64, "state": state}})

    def save(self) -> Json:
        return self.call("save", None)

    def call(self, export: str, request: Json | None) -> Json:
        text = None if request is None else json.dumps(request, ensure_ascii=False).encode()
        called = self._instance.call(export, text)
        if self._snapshots is not None:
            self._sleep_and_wake(self._snapshots)
        result = json.loads(called.answer)
        assert isinstance(result, dict)
        return result

    @property
    def memory_bytes(self) -> int:
        return self._instance.guest.memory.size()

    def close(self) -> None:
        self._instance.close()
        if self._snapshots is not None:
            self._snapshots.close()

    def _sleep_and_wake(self, snapshots: Snapshots) -> None:
        self._instance.suspend(snapshots, self._identity)
        found = snapshots.find(self._identity)
        assert found is not None
        self._instance = Instance.wake(self.module, self._limits, GuestCalls(self), found)
        self.wakes += 1


@dataclass
class GuestCalls:
    """The requests of the guest, as bytes and lines."""

    host: GuestHost

    def call(self, request: bytes) -> bytes:
        return json.dumps(self.host.api.call(json.loads(request)), ensure_ascii=False).encode()

    def log(self, level: int, text: str) -> None:
        self.host.logged.append((level, text))


def _start(config: Json | None) -> Json:
    controller = {"namespace": "team-a", "name": "example"}
    return {"controller": controller, "config": config or {}, "configMaps": {}, "secrets": {}}
