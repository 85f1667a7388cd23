"""The state of a lattice at one moment.

Pure. Created by ``trellis.lattice.connection.lattices``, read by the domains of services.
"""

from __future__ import annotations

from dataclasses import dataclass

from trellis.lattice.domain.hosts import Presence, Sighting, presence_of
from trellis.lattice.domain.models import Model
from trellis.lattice.timings import LatticeTimings


@dataclass(frozen=True, slots=True)
class LatticeView:
    """What is known of a lattice at one moment. ``models`` is None where wadm did not answer yet, or is not asked.

    ``linked_since`` is in seconds of the monotonic clock, None while the link is unreachable or deaf; ``why`` says why
    it is, and ``models_why`` why what is known of applications may be old. ``settled``: what is watched was asked, or
    could not be; before that an empty view says nothing. ``refused``: there are more hosts than these, for which there
    is no room. ``silence``: seconds without a heartbeat after which a host is silent.
    """

    linked_since: float | None
    why: str = ""
    hosts: tuple[Sighting, ...] = ()
    models: tuple[Model, ...] | None = None
    models_why: str = ""
    settled: bool = True
    refused: bool = False
    silence: float = LatticeTimings().silence

    def presence(self, host_id: str, now: float) -> Presence:
        """Return what is known of a host."""
        heard = next((seen.at for seen in self.hosts if seen.host.id == host_id), None)
        return presence_of(heard, now, self.linked_since, self.silence)
