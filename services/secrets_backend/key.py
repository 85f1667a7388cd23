"""The curve key of the backend: one Secret for all replicas.

In: the Secret, read periodically. Out: the keys that decrypt requests. Called by ``app`` and ``answering``. Invariants:
an existing Secret is never overwritten; the last valid keys stay in use until the Secret is valid again, so that a
deleted or corrupted Secret does not stop the service; no message contains a seed.
"""

from __future__ import annotations

import asyncio
import contextlib
import time
from typing import Final

from secrets_backend.domain.key_secret import KeySecretError, data_of, read_ring
from secrets_backend.domain.keys import CurveKey, KeyRing
from secrets_backend.timings import KeyTimings
from trellis import names
from trellis.kube.client import Kube
from trellis.kube.errors import AlreadyExists, KubeError, NotFound
from trellis.kube.resources import SECRETS, Manifest
from trellis.telemetry import get_logger
from trellis.telemetry.health import Health

HEALTH: Final = "key"

_log = get_logger(__name__)


class Key:
    """Reads the key at an interval; ``there`` is set after the first success."""

    def __init__(self, kube: Kube, namespace: str, health: Health, timings: KeyTimings) -> None:
        self._kube = kube
        self._namespace = namespace
        self._health = health
        self._timings: Final = timings
        self._ring: KeyRing | None = None
        self._began = self._looked = -timings.soon
        self._looking = asyncio.Lock()
        self._reported = ""
        self.there = asyncio.Event()
        health.expect(HEALTH)

    @property
    def ring(self) -> KeyRing:
        """The current keys; only after ``there`` is set."""
        assert self._ring is not None
        return self._ring

    async def run(self) -> None:
        """Read the key until cancelled."""
        while True:
            await self.look()
            await asyncio.sleep(self._timings.look)

    async def look(self) -> None:
        """Read the key, or create it if there is none."""
        async with self._looking:
            await self._look()

    async def invalidate(self) -> bool:
        """Read the key from the API server and return whether it changed, so that a rotation takes effect at once.

        A read that started before this call may be outdated. Calls within a second of a read share the next one, so
        that invalid requests cause at most one request per second to the API server.
        """
        before, called_at = self._ring, time.monotonic()
        async with self._looking:
            if self._began <= called_at:
                await asyncio.sleep(max(0.0, self._looked + self._timings.soon - called_at))
                await self._look()
        return self._ring != before

    async def newest(self) -> KeyRing:
        """Return the keys in the Secret, or the last known ones after a second without an answer.

        A host keeps the key for its lifetime, so it must not get one that was just replaced.
        """
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(self._timings.soon), self._looking:
                if time.monotonic() - self._looked >= self._timings.soon:
                    await self._look()
        return self.ring

    async def _look(self) -> None:
        self._began = time.monotonic()
        try:
            ring = read_ring(await self._read_or_make())
        except KeySecretError as error:
            self._trouble(f"Secret {self._namespace}/{names.SECRETS_KEY}: {error}: restore its former content")
        except KubeError as error:
            self._trouble(self._kube.describe_error(error), counts=self._ring is None)
        else:
            if self._ring is not None and ring != self._ring:
                _log.info("key rotated", key=ring.current.public, previous=len(ring.previous))
            self._ring, self._reported = ring, ""
            self._health.ready(HEALTH)
            self._health.note(HEALTH, "")
            self.there.set()
        finally:
            self._looked = time.monotonic()

    async def _read_or_make(self) -> Manifest:
        try:
            return await self._read()
        except NotFound:
            # A deleted Secret is restored with the same keys: hosts keep the public key for their lifetime.
            ring = self._ring or KeyRing(CurveKey.make(), ())
            try:
                made = await self._kube.create(SECRETS, make_secret(self._namespace, ring))
            except AlreadyExists:  # another replica was faster
                return await self._read()
            _log.info("key Secret created" if self._ring is None else "deleted key Secret restored")
            return made

    async def _read(self) -> Manifest:
        return await self._kube.get(SECRETS, names.SECRETS_KEY, self._namespace, timeout=self._timings.read)

    def _trouble(self, reason: str, *, counts: bool = True) -> None:
        if counts:
            self._health.not_ready(HEALTH, reason)
        else:
            self._health.note(HEALTH, f"using the former key: {reason}")
        if reason != self._reported:
            effect = "using the former key" if self._ring is not None else "refusing all requests"
            _log.warning("key Secret cannot be read", reason=reason, effect=effect)
        self._reported = reason


def make_secret(namespace: str, ring: KeyRing) -> Manifest:
    """Return the Secret with the keys."""
    labels = {names.LABEL_MANAGED_BY: names.MANAGED_BY}
    return {
        "apiVersion": SECRETS.api_version,
        "kind": SECRETS.kind,
        "metadata": {"name": names.SECRETS_KEY, "namespace": namespace, "labels": labels},
        "type": "Opaque",
        "data": data_of(ring),
    }
