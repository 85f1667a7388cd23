"""How long service_reflector waits for what; tests pass shorter times. Called by ``app``."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Timings:
    """Seconds. ``group_grace``: for how long Services stay once no host group names their lattice.

    Within it GitOps makes a group again that it deleted. It is measured by the monotonic clock of the process that
    leads: a new leader starts it again, and a clock that is set forward does not shorten it.

    ``refused_retry``: between two attempts of a key whose write the API server refused (admission, quota, RBAC).
    ``refused_spread``: added to it for each other refused key, so all of them together stay a few writes a second.
    """

    group_grace: float = 300.0
    refused_retry: float = 15.0
    refused_spread: float = 0.25
