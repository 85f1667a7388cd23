"""Entities of recorded situations, as the console and ``trellis top`` have them.

In: a situation and a time. Out: views, composers, entities. Called by tests.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, Final

from support.v2.recordings import Recording, recording
from trellis.read_model.entities.composing_v2 import INSTALLED, PARTS, V2Composer
from trellis.read_model.entities.entities import PartStatus
from trellis.v2.deployments import view_artifact, view_deployment, view_replica_set
from trellis.v2.host_messages import HostMessages
from trellis.v2.hosts import view_host
from trellis.v2.pods import view_host_pod
from trellis.v2.routes import LABEL_ROUTE, view_service, view_slice
from trellis.v2.workloads import view_workload

OF_KIND: Final = {
    "Host": ("whosts", view_host),
    "Workload": ("workloads", view_workload),
    "WorkloadReplicaSet": ("workloadreplicasets", view_replica_set),
    "WorkloadDeployment": ("workloaddeployments", view_deployment),
    "Artifact": ("artifacts", view_artifact),
    "Service": ("wservices", view_service),
    "EndpointSlice": ("wslices", view_slice),
}
REFUSED: Final = {"": ("not allowed to list hosts in the whole cluster", "request the permission")}


def statuses(lacking: Iterable[str] = ()) -> list[PartStatus]:
    parts = [PartStatus(name, True, REFUSED if name in lacking else {}) for name in PARTS]
    return [PartStatus(INSTALLED, True, {}), *parts]


def views(found: Recording, at: float) -> dict[tuple[str, str], Any]:
    """Return the views of a situation at a time, by part and key."""
    views: dict[tuple[str, str], Any] = {}
    for item in found.objects(at):
        name, view = OF_KIND[item["kind"]]
        metadata = item["metadata"]
        if name != "wslices" or LABEL_ROUTE in metadata["labels"]:
            views[name, f"{metadata['namespace']}/{metadata['name']}"] = view(item)
    return views


def composer_of(found: Mapping[tuple[str, str], Any], lacking: Iterable[str] = ()) -> V2Composer:
    composer = V2Composer()
    for (name, key), view in found.items():
        composer.take(name, key, view)
    composer.report(statuses(lacking))
    return composer


def seen(
    situation: str,
    at: float,
    *,
    lacking: Iterable[str] = (),
    messages: HostMessages | None = None,
    pods: Iterable[Mapping[str, Any]] = (),
) -> dict[str, Any]:
    """Return the entities of a situation at a time; ``pods``: of host groups, which no recording has."""
    found = recording(situation)
    of_groups = {
        ("wpods", f"{pod['metadata']['namespace']}/{pod['metadata']['name']}"): view_host_pod(pod) for pod in pods
    }
    there = {key: view for key, view in (views(found, at) | of_groups).items() if key[0] not in lacking}
    return {
        id_: entity
        for id_, entity in composer_of(there, lacking).flush(found.start + at, messages).items()
        if entity is not None
    }
