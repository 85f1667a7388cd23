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
"""Maximum of an int32 in the API, which rejects larger numbers: a Lease edited to the maximum stays acquirable."""


@dataclass(frozen=True, slots=True)
class LeaseRecord:
    """Content of a Lease that candidates compare: equal records mean that it was not renewed."""

    holder: str
    renewed: str
    transitions: int
    duration: float
    acquired: str = ""
    marked: str = ""
    """The last holder that is a Trellis service, "" if there was none."""

    @property
    def foreign(self) -> bool:
        """True if the holder is certainly not a Trellis service: one held the lease, but this one has no mark."""
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
    """Return a Lease without a holder."""
    return {
        "apiVersion": LEASES.api_version,
        "kind": LEASES.kind,
        "metadata": {"name": name, "namespace": namespace},
        "spec": {},
    }


def with_holder(lease: Manifest, *, identity: str, duration: int, now: datetime) -> Manifest:
    """Return the lease acquired or renewed by ``identity``, marked as held by Trellis; count a change of holder.

    Consecutive renewals always have different times, regardless of the holder's clock: other candidates and the API
    server treat an unchanged lease as not renewed.
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
        # The first holder of a new lease is not a transition.
        more = 1 if lease["metadata"].get("resourceVersion") else 0
        spec["leaseTransitions"] = min(record.transitions + more, _TRANSITIONS_MOST)
    marks = (lease["metadata"].get("annotations") or {}) | {names.ANNOTATION_HOLDER: identity}
    return _with_spec(lease | {"metadata": lease["metadata"] | {"annotations": marks}}, spec)


def released(lease: Manifest, *, now: datetime) -> Manifest:
    """Return the released lease, which any candidate can acquire immediately."""
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
