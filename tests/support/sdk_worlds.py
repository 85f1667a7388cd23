"""Where an example controller runs in a test: a module, what it was told, and a Kubernetes of dicts."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path

from support.guest_api import FakeApi, Json, key_of
from support.guest_host import Clock, GuestHost

NANOSECONDS = 10**9


@dataclass
class World:
    """One instance of an example, started."""

    module: Path
    config: Json
    api: FakeApi = field(default_factory=FakeApi)
    clock: Clock = field(default_factory=Clock)

    def __post_init__(self) -> None:
        self.host = self.cold()
        started = self.host.init(self.config)
        assert started == {}, started

    def cold(self) -> GuestHost:
        """A new instance, not told anything yet."""
        return GuestHost(self.module, self.api, self.clock)

    def restart(self) -> None:
        self.host = self.cold()
        assert self.host.init(self.config) == {}

    def changed(self, obj: Json) -> Json:
        """Somebody writes an object; return what the controller answers to it."""
        stored = self.api.put(obj)
        return self.host.reconcile(key_of(stored), stored)

    def gone(self, obj: Json) -> Json:
        """An object is no more; return what the controller answers to it."""
        self.api.objects = {place: kept for place, kept in self.api.objects.items() if key_of(kept) != key_of(obj)}
        return self.host.reconcile(key_of(obj), None)
