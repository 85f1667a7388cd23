"""Converts the Lease object for the election.

Pure: manifests in, records and manifests out; the time is a value and only informative. Called by
``trellis.kube.leader``. Source: coordination.k8s.io/v1 Lease; the released form is that of client-go.
"""

from __future__ import annotations

import copy
from dataclasses import dataclass
from datetime import datetime, timedelta

from trellis import names
from trellis.kube.resources import LEASES, Manifest

_RELEASED_DURATION = 1
"""``leaseDurationSeconds`` of a released lease: no wait, the value that client-go writes."""
_TRANSITIONS_MOST = 2**31 - 1
"""An int32 of the API: a write of a larger number is refused, so a Lease that was edited so could never be taken."""


@dataclass(frozen=True, slots=True)
class LeaseRecord:
    """What a candidate compares: equal records mean that nobody renewed in the meantime."""

    holder: str
    renewed: str
    transitions: int
    duration: float
    acquired: str = ""
    marked: str = ""
    """The last holder that was of Trellis, "" if none ever was."""

    @property
    def stranger(self) -> bool:
        """Whether the holder is surely not of Trellis: one of Trellis had the lease and this one did not mark it."""
        return self.holder not in {"", self.marked} and self.marked != ""


def read_lease(lease: Manifest) -> LeaseRecord:
    """Return the record of a Lease; a lease without a holder has ``holder`` ""."""
    spec = lease.get("spec") or {}
    return LeaseRecord(
        holder=spec.get("holderIdentity") or "",
        renewed=spec.get("renewTime") or "",
        transitions=spec.get("leaseTransitions") or 0,
        duration=float(spec.get("leaseDurationSeconds") or 0),
        acquired=spec.get("acquireTime") or "",
        marked=(lease["metadata"].get("annotations") or {}).get(names.ANNOTATION_HOLDER) or "",
    )


def new_lease(name: str, namespace: str) -> Manifest:
    """Return a Lease nobody holds."""
    return {
        "apiVersion": LEASES.api_version,
        "kind": LEASES.kind,
        "metadata": {"name": name, "namespace": namespace},
        "spec": {},
    }


def taken(lease: Manifest, *, identity: str, duration: int, now: datetime) -> Manifest:
    """Return the lease taken or renewed by ``identity``, and marked as Trellis' own; a change of holder is counted.

    No two renewals in a row carry the same time, whatever the holder's clock does: to the others, and to the API
    server, an unchanged lease is one that nobody renewed.
    """
    record = read_lease(lease)
    if _micro_time(now) == record.renewed:
        now += timedelta(microseconds=1)
    spec: Manifest = dict(lease.get("spec") or {})
    spec |= {
        "holderIdentity": identity,
        "leaseDurationSeconds": duration,
        "renewTime": _micro_time(now),
        "leaseTransitions": record.transitions,
    }
    if record.holder != identity:
        spec["acquireTime"] = _micro_time(now)
        # The first holder of a new lease is no transition.
        more = 1 if lease["metadata"].get("resourceVersion") else 0
        spec["leaseTransitions"] = min(record.transitions + more, _TRANSITIONS_MOST)
    marks = (lease["metadata"].get("annotations") or {}) | {names.ANNOTATION_HOLDER: identity}
    return _with_spec(lease | {"metadata": lease["metadata"] | {"annotations": marks}}, spec)


def released(lease: Manifest, *, now: datetime) -> Manifest:
    """Return the lease given back: anyone may take it at once."""
    spec = dict(lease["spec"]) | {
        "holderIdentity": "",
        "leaseDurationSeconds": _RELEASED_DURATION,
        "renewTime": _micro_time(now),
    }
    return _with_spec(lease, spec)


def _with_spec(lease: Manifest, spec: Manifest) -> Manifest:
    return copy.deepcopy({key: value for key, value in lease.items() if key != "spec"}) | {"spec": spec}


def _micro_time(now: datetime) -> str:
    return now.strftime("%Y-%m-%dT%H:%M:%S.%fZ")
