"""Recordings of the real wasmCloud v2 (2.7): the objects of a situation at any moment, and what was on its NATS.

In: tests/data/v2. Out: manifests, payloads, snapshots. Called by tests.
"""

from __future__ import annotations

import json
import random
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path
from typing import Any, Final

from trellis.v2.deployments import DeploymentView, view_artifact, view_deployment, view_replica_set
from trellis.v2.host_messages import Collector, HostMessages
from trellis.v2.hosts import HostView, view_host
from trellis.v2.images import ImageAnswer, ImageKey
from trellis.v2.messages import HEARTBEATS
from trellis.v2.pods import view_host_pod
from trellis.v2.routes import LABEL_ROUTE, view_service, view_slice
from trellis.v2.snapshot import Part, Snapshot
from trellis.v2.workloads import WorkloadView, view_workload

Manifest = dict[str, Any]
FOLDER: Final = Path(__file__).parents[2] / "data/v2"
SITUATIONS: Final = sorted(path.stem for path in FOLDER.glob("*.json"))


@dataclass(frozen=True)
class Recording:
    """One situation. Times are seconds since ``start`` (Unix seconds)."""

    start: float
    before: list[Manifest]
    changes: list[tuple[float, str, str, Manifest | None]]
    heard: list[tuple[float, str, Any]]

    @property
    def end(self) -> float:
        """Time of the last change."""
        return max((change[0] for change in self.changes), default=0.0)

    @property
    def times(self) -> list[float]:
        """Times of all changes."""
        return sorted({change[0] for change in self.changes})

    def objects(self, at: float) -> list[Manifest]:
        """Return all objects at a time."""
        there = {_key(item): item for item in self.before}
        for time, kind, key, patch in self.changes:
            if time > at:
                break
            if kind == "DELETED":
                there.pop(key, None)
            else:
                there[key] = _merged(there.get(key, {}) if kind == "MODIFIED" else {}, patch or {})
        return [_restored(item) for item in there.values()]

    def payloads(self, begin: float, end: float) -> Iterable[tuple[float, str, bytes]]:
        """Yield the messages of a period: time, subject, payload."""
        first: dict[str, Manifest] = {}
        for time, subject, found in self.heard:
            if isinstance(found, str):
                if subject.startswith(HEARTBEATS):
                    first[subject] = json.loads(found)
                payload = found
            else:
                payload = json.dumps(_merged(first[subject], found))
            if begin <= time <= end:
                yield time, subject, payload.encode()

    def messages(self, begin: float, end: float, *, replies: bool = False) -> HostMessages:
        """Return what a listener receives in a period."""
        collector = Collector()
        if replies:
            collector.expect_replies()
        for time, subject, payload in self.payloads(begin, end):
            if subject.startswith(HEARTBEATS):
                collector.heartbeat(subject, payload, self.start + time)
            elif replies:
                collector.reply(subject, payload)
        return collector.result(end - begin)

    def snapshot(
        self,
        at: float,
        *,
        listened: float = 0.0,
        replies: bool = False,
        seed: int = 0,
        unread: Mapping[Part, str] | None = None,
        images: Mapping[ImageKey, ImageAnswer] | None = None,
        pods: Sequence[Manifest] = (),
    ) -> Snapshot:
        """Return the snapshot of a command at a time, with the messages of the last ``listened`` seconds.

        ``seed``: order of the objects, which no list guarantees; ``pods``: of host groups, which no recording has.
        """
        found = self.objects(at)
        random.Random(seed).shuffle(found)
        former = [view_workload(item) for item in self.objects(at - listened) if item["kind"] == "Workload"]
        return replace(
            snapshot_of_objects([*found, *pods], self.start + at, unread),
            messages=self.messages(at - listened, at, replies=replies) if listened else None,
            former=former if listened else (),
            images=images or {},
        )


def snapshot_of_objects(found: Iterable[Manifest], now: float, unread: Mapping[Part, str] | None = None) -> Snapshot:
    """Return the snapshot of these objects at a time (Unix seconds)."""
    of: dict[str, list[Manifest]] = {}
    for item in found:
        of.setdefault(item["kind"], []).append(item)
    hidden = unread or {}
    by_part = {
        Part.HOSTS: of.get("Host", []),
        Part.WORKLOADS: of.get("Workload", []),
        Part.REPLICA_SETS: of.get("WorkloadReplicaSet", []),
        Part.DEPLOYMENTS: of.get("WorkloadDeployment", []),
        Part.ARTIFACTS: of.get("Artifact", []),
        Part.SERVICES: of.get("Service", []),
        Part.SLICES: [item for item in of.get("EndpointSlice", []) if LABEL_ROUTE in item["metadata"]["labels"]],
        Part.PODS: of.get("Pod", []),
    }
    seen = {part: [] if part in hidden else items for part, items in by_part.items()}
    return Snapshot(
        now=now,
        hosts=[view_host(item) for item in seen[Part.HOSTS]],
        workloads=[view_workload(item) for item in seen[Part.WORKLOADS]],
        replica_sets=[view_replica_set(item) for item in seen[Part.REPLICA_SETS]],
        deployments=[view_deployment(item) for item in seen[Part.DEPLOYMENTS]],
        artifacts=[view_artifact(item) for item in seen[Part.ARTIFACTS]],
        services=[view_service(item) for item in seen[Part.SERVICES]],
        slices=[view_slice(item) for item in seen[Part.SLICES]],
        pods=[view_host_pod(item) for item in seen[Part.PODS]],
        unread=hidden,
    )


@cache
def recording(name: str) -> Recording:
    """Return the recording of a situation; its number suffices: ``04``."""
    [found] = [item for item in SITUATIONS if name in {item, item.partition("-")[0]}]
    data = json.loads((FOLDER / f"{found}.json").read_text())
    changes, heard = ([tuple(item) for item in data[part]] for part in ("changes", "heard"))
    return Recording(data["start"], data["before"], changes, heard)


def deployment(snapshot: Snapshot, name: str) -> DeploymentView:
    """Return the WorkloadDeployment of a name."""
    [found] = [item for item in snapshot.deployments if item.meta.name == name]
    return found


def workloads(snapshot: Snapshot, name: str) -> list[WorkloadView]:
    """Return the Workloads of the current WorkloadReplicaSet of a WorkloadDeployment."""
    current = deployment(snapshot, name).current
    return sorted((item for item in snapshot.workloads if item.meta.owner_name == current), key=lambda it: it.meta.name)


def host(snapshot: Snapshot, name: str) -> HostView:
    """Return the Host of a name."""
    [found] = [item for item in snapshot.hosts if item.meta.name == name]
    return found


def _key(item: Manifest) -> str:
    metadata = item["metadata"]
    return f"{item['kind']}/{metadata.get('namespace', '')}/{metadata['name']}"


def _merged(base: Any, patch: Any) -> Any:
    """Return a JSON merge patch (RFC 7386) applied to an object; the object is unchanged."""
    if not isinstance(patch, dict):
        return patch
    found = dict(base) if isinstance(base, dict) else {}
    for name, value in patch.items():
        if value is None:
            found.pop(name, None)
        else:
            found[name] = _merged(found.get(name), value)
    return found


def _restored(item: Manifest) -> Manifest:
    """Return an object with its conditions as a list; the recordings have them by type."""
    status = item.get("status")
    if not isinstance(status, dict) or not isinstance(status.get("conditions"), dict):
        return item
    conditions = [{"type": kind, **found} for kind, found in status["conditions"].items()]
    return {**item, "status": {**status, "conditions": conditions}}
