"""The environment of an example controller in a test: a module, its requests, and a Kubernetes of dicts."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

from support.guests.guest_api import FakeApi, Json, key_of
from support.guests.guest_host import GuestHost

NANOSECONDS = 10**9
UNUSUAL = 'quotes " and \\ and \n and \u0000 and ünïcödé and 🦀'

Boot = Callable[[FakeApi], GuestHost]
"""A new instance, not told anything yet."""


@dataclass
class Clock:
    """The time for guests, in nanoseconds since 1970."""

    now: int = 1_800_000_000 * NANOSECONDS

    def time_ns(self) -> int:
        return self.now


@dataclass
class World:
    """One instance of an example, started."""

    boot: Boot
    config: Json
    clock: Clock
    api: FakeApi = field(default_factory=FakeApi)

    def __post_init__(self) -> None:
        self.restart()

    def restart(self) -> None:
        self.host = self.boot(self.api)
        started = self.host.init(self.config)
        assert started == {}, started

    def changed(self, obj: Json) -> Json:
        """A user writes an object; return what the controller answers to it."""
        stored = self.api.put(obj)
        return self.host.reconcile(key_of(stored), stored)

    def deleted(self, obj: Json) -> Json:
        """An object is no more; return what the controller answers to it."""
        self.api.objects = {place: kept for place, kept in self.api.objects.items() if key_of(kept) != key_of(obj)}
        return self.host.reconcile(key_of(obj), None)


Start = Callable[..., World]
"""Starts the example that is named, with what else is given as its configuration."""
