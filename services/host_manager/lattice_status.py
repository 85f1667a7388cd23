"""The part of the status about the lattice: the host of each pod, all hosts, applications, conditions.

Pure. In: a snapshot. Out: parts of the status. Called by ``status``. Invariants: while the lattice is unreachable, the
last report remains and the conditions are Unknown; a heartbeat without changes does not change the status; after a
reconnect, the report on a host remains until its heartbeat is due.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace
from datetime import datetime, timedelta
from typing import Any, Final

import orjson

from host_manager.domain.environment import POD_LABEL
from host_manager.domain.group import Manifest
from host_manager.domain.pods import PodView
from host_manager.domain.snapshot import Snapshot
from host_manager.lattice import Report, has_been_ready, reports_of
from trellis.lattice.domain.hosts import Sighting, Unit
from trellis.lattice.domain.models import Model

REPORTED: Final = "HostsReporting"
APPLICATIONS: Final = "ApplicationsKnown"
HOSTS_SHOWN: Final = 500
"""Maximum number of hosts of a lattice, and of pods: the object has to stay well below the 1.5 MiB limit of etcd."""
_LIST_BYTES: Final = 300 * 1024
"""Size limit of each of the three lists."""
_ITEM_BYTES: Final = 30 * 1024
_UNITS_SHOWN: Final = 100
_APPS_SHOWN: Final = 1000
_PODS_NAMED: Final = 3
_JITTER: Final = 30
"""Seconds. Heartbeats have the uptime in whole seconds: the start time does not change by the rounding."""

Finding = tuple[str, str, str, str]
"""Type, status, reason and message of a condition."""


def make_hosts(snapshot: Snapshot) -> list[Manifest]:
    """Return the pods of the host group, each with its host."""
    reports = _shown_reports(snapshot)
    former = _by_id(snapshot, "hosts")
    pods = sorted(snapshot.pods, key=lambda pod: pod.name)[:HOSTS_SHOWN]
    return _fitting(_host(snapshot, pod, reports[pod.name], former) for pod in pods)


def make_lattice(snapshot: Snapshot) -> Manifest:
    """Return ``apps``, ``app_count`` and ``latticeHosts``; an unknown value keeps its former value."""
    former = snapshot.status
    apps, hosts = former.get("apps") or [], former.get("latticeHosts")
    count = former.get("app_count") or 0
    view = snapshot.lattice
    if view is not None and view.settled:
        if view.models is not None:
            apps, count = _fitting(_app(model) for model in view.models[:_APPS_SHOWN]), len(view.models)
        if view.connected_since is not None:
            before = _by_id(snapshot, "latticeHosts")
            hosts = _fitting(_lattice_host(snapshot, seen, before) for seen in view.hosts[:HOSTS_SHOWN])
    return {"apps": apps, "app_count": count} | ({} if hosts is None else {"latticeHosts": hosts})


def make_conditions(snapshot: Snapshot, shown: Mapping[str, Any]) -> list[Finding]:
    """Return the conditions about the lattice; ``shown``: the part of the status from ``make_lattice``."""
    view = snapshot.lattice
    if view is None:
        cause = (
            snapshot.lattice_reason
            or "host_manager is not connected to the lattice, so the reports of hosts are unknown"
        )
        return [(kind, "Unknown", "LatticeNotConnected", cause) for kind in (REPORTED, APPLICATIONS)]
    if not view.settled:
        return [_as_it_was(snapshot, kind) for kind in (REPORTED, APPLICATIONS)]
    if view.connected_since is None:
        # The cause alone, as it ends with the resolution. While a lattice is unreachable, nothing is removed.
        return [(kind, "Unknown", "LatticeUnreachable", view.reason) for kind in (REPORTED, APPLICATIONS)]
    wadm: Finding = (APPLICATIONS, "True", "Healthy", _left_out(shown, "apps", len(view.models or ())))
    if view.models_reason:
        wadm = (APPLICATIONS, "Unknown", "WadmUnavailable", view.models_reason)
    kind, status, reason, message = _reported(snapshot)
    left_out = _left_out(shown, "latticeHosts", len(view.hosts), more=view.refused)
    return [(kind, status, reason, "; ".join(part for part in (message, left_out) if part)), wadm]


def _left_out(shown: Mapping[str, Any], name: str, count: int, *, more: bool = False) -> str:
    """Return the number of items that a list shows, "" if it shows all."""
    fitting = len(shown.get(name) or ())
    return f"status.{name} shows {fitting} of {'more than ' * more}{count}" if fitting < count or more else ""


def pods_without_heartbeat(snapshot: Snapshot) -> list[str]:
    """Return the names of the pods with a missing heartbeat."""
    return sorted(name for name, report in reports_of(snapshot).items() if report.reported == "No")


def due_in(snapshot: Snapshot) -> float | None:
    """Return the seconds until a heartbeat counts as missing, None if none can."""
    return min((report.due for report in reports_of(snapshot).values() if report.due is not None), default=None)


def _fitting(items: Iterable[Manifest]) -> list[Manifest]:
    """Return the items that fit; otherwise any client of a lattice could cause a status that is too large to write.

    A large item is reduced to its scalar fields, so that it does not displace further items.
    """
    shown, room = [], _LIST_BYTES
    for item in items:
        fitting, size = item, len(orjson.dumps(item))
        if size > _ITEM_BYTES:
            fitting = {name: value for name, value in item.items() if not isinstance(value, list | dict)}
            size = len(orjson.dumps(fitting))
        room -= size
        if room < 0:
            break
        shown.append(fitting)
    return shown


def _shown_reports(snapshot: Snapshot) -> dict[str, Report]:
    """Return the shown report of each pod, by name. The former report remains after a start and a reconnect to NATS:
    otherwise each missing heartbeat would be Unknown, and missing again 70 s later, with an Event.
    """
    reports, view = reports_of(snapshot), snapshot.lattice
    if view is None or (view.settled and view.connected_since is None):
        return reports
    former = {host.get("pod"): host for host in snapshot.status.get("hosts") or ()}
    for pod in snapshot.pods:
        former_report = former.get(pod.name, {})
        if reports[pod.name].reported != "Unknown" or former_report.get("ready") is not pod.ready:
            continue
        if not view.settled or (former_report["reported"] == "No" and has_been_ready(pod, snapshot, view.silence)):
            reports[pod.name] = replace(reports[pod.name], reported=former_report["reported"])
    return reports


def _reported(snapshot: Snapshot) -> Finding:
    reports = _shown_reports(snapshot)
    ready = [pod for pod in snapshot.pods if pod.ready]
    missing = sorted(name for name, report in reports.items() if report.reported == "No")
    if missing:
        named = ", ".join(missing[:_PODS_NAMED]) + (
            f" and {len(missing) - _PODS_NAMED} more" * (len(missing) > _PODS_NAMED)
        )
        message = f"the host in pod {named} sent no heartbeat for 70 s: see its log, or set hostRecycling: OneAtATime"
        return REPORTED, "False", "HeartbeatMissing", message
    unreported = [pod for pod in ready if not pod.reports_pod]
    if unreported:
        message = (
            f"{len(unreported)} pods have a template before revision 2 and do not report their host: see latticeHosts "
            "for all hosts"
        )
        return REPORTED, "Unknown", "HostIDUnknown", message
    waiting = [pod.name for pod in ready if reports[pod.name].reported != "Yes"]
    if waiting:
        return (
            REPORTED,
            "Unknown",
            "WaitingForHosts",
            f"{len(waiting)} of {len(ready)} ready pods have not been reported by the lattice yet",
        )
    return REPORTED, "True", "AllReporting", f"the lattice reports {len(ready)} of {len(ready)} ready pods"


def _as_it_was(snapshot: Snapshot, kind: str) -> Finding:
    for condition in snapshot.status.get("conditions") or ():
        if condition["type"] == kind:
            return kind, condition["status"], condition["reason"], condition["message"]
    return kind, "Unknown", "LatticeNotConnected", "host_manager is connecting to the lattice"


def _host(snapshot: Snapshot, pod: PodView, report: Report, former: Mapping[str, Manifest]) -> Manifest:
    host: Manifest = {"pod": pod.name, "ready": pod.ready, "reported": report.reported}
    if pod.node:
        host["node"] = pod.node
    if pod.addresses:
        host["ip"] = pod.addresses[0]
    if report.sighting is not None:
        return host | _identity(snapshot, report.sighting, former)
    before = next((item for item in former.values() if item.get("pod") == pod.name), None)
    if before is not None and (snapshot.lattice is None or snapshot.lattice.connected_since is None):
        # The host is currently unknown: its last known identity remains.
        return host | {name: before[name] for name in ("id", "version", "startedAt", "labels") if name in before}
    return host


def _lattice_host(snapshot: Snapshot, seen: Sighting, former: Mapping[str, Manifest]) -> Manifest:
    host = seen.host
    described = _identity(snapshot, seen, former)
    described |= {"name": host.name} if host.name else {}
    if pod := host.labels.get(POD_LABEL):
        described["pod"] = pod
    units = (("components", host.components), ("providers", host.providers))
    described |= {name: _units(found) for name, found in units if found}
    return described | ({"applications": list(host.applications[:_UNITS_SHOWN])} if host.applications else {})


def _identity(snapshot: Snapshot, seen: Sighting, former: Mapping[str, Manifest]) -> Manifest:
    host = seen.host
    started = datetime.fromisoformat(snapshot.now) - timedelta(
        seconds=round(snapshot.clock - seen.at) + host.uptime_seconds
    )
    before = former.get(host.id, {}).get("startedAt")
    if before and abs((datetime.fromisoformat(before) - started).total_seconds()) <= _JITTER:
        started = datetime.fromisoformat(before)
    described: Manifest = {"id": host.id, "startedAt": started.strftime("%Y-%m-%dT%H:%M:%SZ")}
    described |= {"version": host.version} if host.version else {}
    return described | ({"labels": dict(sorted(host.labels.items()))} if host.labels else {})


def _units(units: Iterable[Unit]) -> list[Manifest]:
    shown = sorted(units, key=lambda unit: (unit.id, unit.image))[:_UNITS_SHOWN]
    return [{"id": unit.id} | ({"image": unit.image} if unit.image else {}) for unit in shown]


def _app(model: Model) -> Manifest:
    return {"name": model.name, "version": model.version}


def _by_id(snapshot: Snapshot, name: str) -> dict[str, Any]:
    return {item["id"]: item for item in snapshot.status.get(name) or () if item.get("id")}
