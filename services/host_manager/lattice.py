"""The lattice of a host group, and the host in each pod.

Pure. In: the host group and its Secrets; pods and the lattice. Out: an address; a report for each pod. Called by
``gather`` and ``status``. Invariants: a heartbeat counts as missing only after 70 s in which the pod was ready and the
lattice connection was up; the host of a pod is identified by the label that it reports (template revision 2).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Final, Literal

from host_manager.domain.environment import POD_LABEL
from host_manager.domain.group import Group
from host_manager.domain.inputs import Source
from host_manager.domain.pods import PodView
from host_manager.domain.snapshot import Snapshot
from trellis.lattice.connection.address import LatticeAddress
from trellis.lattice.connection.groups import lattice_address
from trellis.lattice.domain.group_views import LatticeSpec
from trellis.lattice.domain.hosts import Presence, Sighting, presence_of
from trellis.lattice.domain.view import LatticeView

_REPORTED_VALUES: Final[Mapping[Presence, Literal["Yes", "No", "Unknown"]]] = {
    Presence.PRESENT: "Yes",
    Presence.HEARTBEAT_MISSING: "No",
    Presence.UNKNOWN: "Unknown",
}


@dataclass(frozen=True, slots=True)
class Report:
    """Report of the lattice on one pod. ``sighting``: of its host; ``due``: seconds until the report changes without a
    heartbeat, None if it does not.
    """

    reported: Literal["Yes", "No", "Unknown"]
    sighting: Sighting | None = None
    due: float | None = None


def lattice_of(group: Group, read: Mapping[Source, Mapping[str, Any] | None]) -> LatticeAddress:
    """Return the lattice of a host group: the NATS that its leaf nodes connect to, with the same credentials.

    ``read``: objects by source, None for a missing one.

    Raises:
        SubjectError: the lattice name, or the prefix of its control subjects, is not valid in a subject.
    """
    secrets = {name: found for (kind, name), found in read.items() if kind == "Secret"}
    return lattice_address(LatticeSpec.of(group.spec), group.namespace, secrets)


def reports_of(snapshot: Snapshot) -> dict[str, Report]:
    """Return the report of the lattice on each pod, by name."""
    view = snapshot.lattice
    if view is None:
        return {pod.name: Report("Unknown") for pod in snapshot.pods}
    # A host that restarts in its pod has a new id; the heartbeat of the former one is missing after a while. Any client
    # of a lattice can claim a pod; that does not make a heartbeat missing, and the result is deterministic.
    pods = {pod.name for pod in snapshot.pods}
    claims = [seen for seen in view.hosts if seen.host.labels.get(POD_LABEL) in pods]
    hosts = {seen.host.labels[POD_LABEL]: seen for seen in sorted(claims, key=_started)}
    return {pod.name: _report(pod, hosts.get(pod.name), snapshot, view) for pod in snapshot.pods}


def _report(pod: PodView, seen: Sighting | None, snapshot: Snapshot, view: LatticeView) -> Report:
    if not pod.reports_pod or view.connected_since is None:
        return Report("Unknown", seen)
    if not pod.ready:
        reporting = seen is not None and snapshot.clock - seen.at <= view.silence
        return Report("Yes" if reporting else "Unknown", seen)
    # Only the time counts in which the pod was ready and the lattice connection was up. The clock of the API server may
    # differ from the local one, so that its time alone is not sufficient.
    since = snapshot.clock - _ready_seconds(pod, snapshot)
    listened = max(view.connected_since, since, snapshot.ready_at.get(pod.name, since))
    presence = presence_of(None if seen is None else seen.at, snapshot.clock, listened, view.silence)
    since = seen.at if seen is not None and presence is Presence.PRESENT else listened
    due = None if presence is Presence.HEARTBEAT_MISSING else max(0.0, since + view.silence - snapshot.clock)
    return Report(_REPORTED_VALUES[presence], seen, due)


def has_been_ready(pod: PodView, snapshot: Snapshot, seconds: float) -> bool:
    """Return whether a pod is ready for more than ``seconds``, by the API server's clock."""
    return pod.ready and _ready_seconds(pod, snapshot) > seconds


def _ready_seconds(pod: PodView, snapshot: Snapshot) -> float:
    return _seconds_between(pod.ready_since or snapshot.now, snapshot.now)


def _started(seen: Sighting) -> tuple[float, str]:
    return seen.at - seen.host.uptime_seconds, seen.host.id


def _seconds_between(earlier: str, later: str) -> float:
    return max(0.0, (datetime.fromisoformat(later) - datetime.fromisoformat(earlier)).total_seconds())
