"""Intervals of the runtime-operator and of hosts, by which states are judged. Pure values in seconds.

Source: runtime-operator and ``wash host`` 2.7, measured in tests/data/v2.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class V2Timings:
    """Intervals of wasmCloud v2; a changed operator has different ones."""

    heartbeat: float = 15.0
    """Between two heartbeats of a host."""
    slack: float = 5.0
    """Tolerance for delivery and for different clocks."""
    settle: float = 5.0
    """Time in which the operator acts on a change: conditions are complete within a second."""
    workload_look: float = 30.0
    """Between two reconciliations of a Workload; no watch reports a ConfigMap, Secret or host earlier."""
    deployment_look: float = 60.0
    """Between two reconciliations of a WorkloadDeployment; no watch reports an Artifact earlier."""
    host_look: float = 60.0
    """Between two requests of the operator to a host."""
    host_lifetime: float = 60.0
    """Age of the last heartbeat after which the operator deletes a Host."""
    replaced: float = 60.0
    """Time after which a Workload that is not operational is replaced, with another name and UID."""
    pull: float = 30.0
    """Timeout of a host for an image. Meanwhile it answers nothing and sends no heartbeat."""
    start: float = 60.0
    """Timeout of the operator for the reply of a host to a start."""
    stop: float = 30.0
    """Timeout of the operator for the reply of a host to a stop."""
    request: float = 5.0
    """Timeout of the operator for the reply of a host to any other request."""

    @property
    def silence(self) -> float:
        """Age of a heartbeat from which it is missing: one interval was left out."""
        return 2 * self.heartbeat + self.slack

    @property
    def expired(self) -> float:
        """Age of a heartbeat that no Host reaches while the operator runs."""
        return self.host_lifetime + self.host_look + self.slack

    def expired_after(self, timed_out: int) -> float:
        """Return the age that no heartbeat reaches if requests to hosts time out, one after the other.

        A Host is deleted at its second request after its last heartbeat; one of the hosts can be deleted already.
        """
        return self.expired + (2 * self.request * (timed_out + 1) if timed_out else 0.0)
