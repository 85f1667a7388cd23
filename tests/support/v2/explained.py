"""The in-memory API server with the objects of a recorded situation, and what pages ask it.

In: a situation and a time. Out: a connection; requests as verb, group and resource. Called by tests.
"""

from __future__ import annotations

import contextlib
from typing import Final

from support.v2.recordings import recording
from trellis.kube.resources import (
    ALL,
    ARTIFACTS,
    ENDPOINT_SLICES,
    NAMESPACES,
    SERVICES,
    WASM_HOSTS,
    WASMCLOUD_V2,
    WORKLOAD_DEPLOYMENTS,
    WORKLOAD_REPLICA_SETS,
    WORKLOADS,
)
from trellis.read_model.reading.cluster import Reading
from trellis.read_model.reading.explained import page_of
from trellis.read_model.reading.find import ObjectNotFoundError
from trellis.telemetry import Metrics, setup
from trellis.v2.images import ImageKey
from trellis_cli.common.objects import ObjectName
from trellis_cli.v2.options import Sources
from trellis_cli.v2.page import v2_page
from trellis_cli.v2.registries import ask_registries
from trellis_cli.v2.status import read_v2
from trellis_dev.fakes.fake import FakeKube

RESOURCE: Final = {
    "WorkloadDeployment": WORKLOAD_DEPLOYMENTS,
    "WorkloadReplicaSet": WORKLOAD_REPLICA_SETS,
    "Workload": WORKLOADS,
    "Host": WASM_HOSTS,
    "Artifact": ARTIFACTS,
    "Service": SERVICES,
    "EndpointSlice": ENDPOINT_SLICES,
}


def bare() -> FakeKube:
    return FakeKube(telemetry=setup("test", metrics=Metrics()))


def kube_of(situation: str, at: float) -> FakeKube:
    """Return an API server with the objects of a recorded situation; its clock is that of the recording."""
    made = bare()
    fill(made, situation, at)
    start = recording(situation).start
    made.now = lambda: start + at  # type: ignore[method-assign]
    return made


def fill(made: FakeKube, situation: str, at: float) -> None:
    """Put the kinds of wasmCloud v2 and the objects of a recorded situation into an API server."""
    for res in WASMCLOUD_V2:
        made.define(res)
    for name in ("apps", "wasmcloud-system"):
        made.put(NAMESPACES, {"metadata": {"name": name}})
    found, uids = recording(situation), dict[str, str]()
    for item in sorted(found.objects(at), key=lambda each: [*RESOURCE].index(each["kind"])):
        metadata = {
            key: value for key, value in item["metadata"].items() if key not in {"resourceVersion", "finalizers"}
        }
        owners = [owner | {"uid": uids[owner["uid"]]} for owner in metadata.get("ownerReferences", ())]
        put = made.put(RESOURCE[item["kind"]], {**item, "metadata": metadata | {"ownerReferences": owners}})
        uids[metadata["uid"]] = put["metadata"]["uid"]


async def asked_of_kubernetes() -> set[tuple[str, str, str]]:
    """Return the permissions that all pages and the row need, also of missing objects and pull Secrets."""
    kube = kube_of("15", 30)
    reading = Reading(kube, "trellis-system")
    for kind, name in (
        ("workloaddeployment", "art-plain"),
        ("workload", kube.objects(WORKLOADS)[0]["metadata"]["name"]),
        ("whost", "uppity-son-5573"),
        ("artifact", "hello-code"),
        ("workload", "missing"),
    ):
        with contextlib.suppress(ObjectNotFoundError):
            await v2_page(reading, ObjectName(kind, name, "wasmcloud-system" if kind == "whost" else "apps"), Sources())
    await page_of(reading, "trellis-installers", "service", kube.objects(SERVICES)[0]["metadata"]["name"], "apps")
    await ask_registries(reading, {ImageKey("apps", "registry.test/team/app:1", "missing")})
    await read_v2(kube, "trellis-system")
    return permissions_of(kube)


def permissions_of(kube: FakeKube) -> set[tuple[str, str, str]]:
    """Return the permissions that the requests so far needed; an apply also needs that to create the object."""
    known = {(res.api_version, res.plural): res for res in (*ALL, *WASMCLOUD_V2)}
    found = set()
    for request in kube.api.requests:
        _, root, *parts = request.path.split("/")
        version = parts.pop(0) if root == "api" else "/".join((parts.pop(0), *parts[:1]))
        parts = parts if root == "api" else parts[1:]
        if not parts:
            continue  # discovery, which every account may read
        if parts[0] == "namespaces" and len(parts) > 2:
            parts = parts[2:]
        res = known[version, parts[0]]
        verb = "list" if len(parts) == 1 else "get"
        verbs = {"GET": (verb,), "PATCH": ("patch", "create")}.get(request.method, (request.method,))
        found |= {(verb, res.group, res.plural) for verb in verbs}
    return found
