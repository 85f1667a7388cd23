"""Metrics of hosts of wasmCloud v2 from their heartbeats: CPU and memory of known Hosts.

In: heartbeats of a run. Out: series, which end with their Host. Called by ``reconciler``. Invariant: only hosts with a
Host in Kubernetes have series, because any client of NATS can invent hosts.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from math import nan

from trellis.telemetry import Telemetry
from trellis.telemetry.observed import Forget
from trellis.v2.messages import HostHeartbeat

HostKey = tuple[str, str]
"""Namespace and name of a Host."""


class HostNumbers:
    """The series of hosts."""

    def __init__(self, telemetry: Telemetry) -> None:
        self._telemetry = telemetry
        self._last: dict[HostKey, HostHeartbeat] = {}
        self._forgets: dict[HostKey, Forget] = {}

    def show(self, found: Mapping[HostKey, HostHeartbeat]) -> None:
        """Export the numbers of these hosts, and of no other ones."""
        for key in [key for key in self._forgets if key not in found]:
            self._forgets.pop(key)()
        self._last = dict(found)
        metrics, service = self._telemetry.metrics, self._telemetry.service
        for key in found:
            if key not in self._forgets:
                reads = (partial(self._cpu, key), partial(self._free, key), partial(self._total, key))
                self._forgets[key] = metrics.wasmcloud_host(service, key, reads)

    def _cpu(self, key: HostKey) -> float:
        cpu = self._last[key].cpu if key in self._last else None
        return nan if cpu is None else cpu / 100

    def _free(self, key: HostKey) -> float:
        free = self._last[key].memory_free if key in self._last else None
        return nan if free is None else free

    def _total(self, key: HostKey) -> float:
        total = self._last[key].memory_total if key in self._last else None
        return nan if total is None else total
