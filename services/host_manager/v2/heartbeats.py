"""Heartbeats of hosts of wasmCloud v2 for the decisions and the metrics of host_manager.

In: the reception of heartbeats. Out: messages for the snapshot, the state of the reception, metrics. Called by
``watches`` while the API group is served. Invariant: without an uninterrupted reception for longer than two heartbeats,
the snapshot has no messages, so a lost connection is one log line and one event.
"""

from __future__ import annotations

from collections.abc import Container
from typing import Final

from trellis.kube.client import Kube
from trellis.lattice.follow.heartbeats import Heartbeats
from trellis.v2.host_messages import HostMessages
from trellis.v2.reception import Reception

CONNECTION: Final = "trellis-host-manager-v2"


class CompleteHeartbeats:
    """The last heartbeats, None while some may be missing. ``window``: seconds in which each host sends one.

    ``kube``: its clock is the one of the objects.
    """

    def __init__(self, received: Heartbeats, kube: Kube, window: float) -> None:
        self._received = received
        self._kube = kube
        self._window = window
        self._hosts = self._unreadable = 0

    @property
    def reception(self) -> Reception:
        """State of the reception."""
        return self._received.reception

    async def run(self) -> None:
        """Receive until cancelled."""
        telemetry, received = self._kube.telemetry, self._received
        total = telemetry.metrics.wasmcloud_heartbeats_total.labels(telemetry.service)
        received.on_message = total.inc
        forget = telemetry.metrics.wasmcloud_reception(
            telemetry.service,
            lambda: float(received.connected),
            lambda: self._hosts if received.connected else 0,
            lambda: self._unreadable if received.connected else 0,
        )
        try:
            await received.run()
        finally:
            forget()

    def messages(self, hosts: Container[str]) -> HostMessages | None:
        """Return the heartbeats of the last two intervals, None without an uninterrupted reception for so long.

        ``hosts``: IDs of the Hosts. Heartbeats of other ones are not parsed: any client of NATS can invent hosts.
        """
        found = self._received.messages(self._kube.now(), hosts)
        if found.error or found.seconds < self._window:
            return None
        self._hosts = len(found.hosts)
        self._unreadable = sum(bool(last.reason) for last in found.hosts.values())
        return found
