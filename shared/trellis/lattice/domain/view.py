"""The state of a lattice at one moment.

Pure. Created by ``trellis.lattice.follow.lattice_watches``, read by the domains of services.
"""

from __future__ import annotations

from dataclasses import dataclass

from trellis.lattice.domain.hosts import Presence, Sighting, presence_of
from trellis.lattice.domain.models import Model
from trellis.lattice.timings import LatticeTimings


@dataclass(frozen=True, slots=True)
class LatticeView:
    """The state of a lattice at one moment. ``models`` is None until wadm answers, or if it is not queried.

    ``connected_since``: seconds of the monotonic clock, None while the lattice is unreachable or a subscription is
    denied; ``reason``: its reason; ``models_reason``: why the applications may be outdated. ``settled``: the watches
    completed their first query, or failed; until then an empty view has no meaning. ``refused``: further hosts were
    dropped by the limits. ``silence``: seconds without a heartbeat after which a host counts as stopped.
    """

    connected_since: float | None
    reason: str = ""
    hosts: tuple[Sighting, ...] = ()
    models: tuple[Model, ...] | None = None
    models_reason: str = ""
    settled: bool = True
    refused: bool = False
    silence: float = LatticeTimings().silence

    def presence(self, host_id: str, now: float) -> Presence:
        """Return the presence of a host."""
        last_message_at = next((seen.at for seen in self.hosts if seen.host.id == host_id), None)
        return presence_of(last_message_at, now, self.connected_since, self.silence)
