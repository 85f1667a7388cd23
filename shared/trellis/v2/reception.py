"""State of the reception of heartbeats from the NATS of wasmCloud v2, as one value.

Pure. Created by ``trellis.lattice.follow.heartbeats``, evaluated by host_manager. Invariant: a subscription that NATS
denies is not an outage, because hosts and the runtime-operator continue.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum


class ReceptionState(StrEnum):
    """CONNECTING: not known yet. LOST: no connection. DENIED: NATS denies the subscription to the user."""

    CONNECTING = "Connecting"
    RECEIVING = "Receiving"
    LOST = "Lost"
    DENIED = "Denied"


@dataclass(frozen=True, slots=True)
class Reception:
    """The state and its duration in seconds, also over failed attempts to connect.

    ``server``: URL without passwords, "" before the first connection; ``error``: why nothing is received, "" if it is;
    ``count``: heartbeats of the present connection.
    """

    state: ReceptionState = ReceptionState.CONNECTING
    seconds: float = 0.0
    server: str = ""
    error: str = ""
    count: int = 0
