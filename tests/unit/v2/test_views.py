"""Views of objects of wasmCloud v2: lenient, bounded, and "unknown" is not a value."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from support.v2.recordings import host, recording
from trellis.read_model.explain.subject import Beside
from trellis.v2.deployments import view_artifact, view_deployment, view_replica_set
from trellis.v2.explain.artifact import explain_artifact
from trellis.v2.explain.deployment import explain_deployment
from trellis.v2.explain.host import explain_host
from trellis.v2.explain.workload import explain_workload
from trellis.v2.fields import ITEMS_KEPT, TEXT_KEPT, seconds
from trellis.v2.hosts import selects, view_host
from trellis.v2.images import ImageAnswer, ImageState, image_key
from trellis.v2.routes import unroutable, view_service, view_slice
from trellis.v2.snapshot import Part, Snapshot
from trellis.v2.workloads import view_workload

SCALAR = st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=8)
NAMES = st.sampled_from(["a", "hello", "hello-1", "web", "unknown", "", "2026-11-24T11:13:08Z", "True", "False"])
WORDS = NAMES | st.sampled_from(
    [
        "no suitable host found",
        "nats: no responders available for request",
        "context deadline exceeded",
        "workload is not operational: WORKLOAD_STATE_NOT_FOUND",
        "workload is not operational: WORKLOAD_STATE_ERROR",
        'ConfigMap "settings" not found',
        "artifact hello not found",
        "artifact hello not found in deployment spec",
    ]
)


def objects(fields: dict[str, st.SearchStrategy[Any]]) -> st.SearchStrategy[Any]:
    """Return objects with some of these fields, of the right type or of any other one."""
    return st.fixed_dictionaries({}, optional={name: found | SCALAR for name, found in fields.items()}) | SCALAR


CONDITIONS = st.lists(
    objects(
        {
            "type": st.sampled_from(
                [
                    "Config",
                    "HostSelection",
                    "Placement",
                    "Sync",
                    "Ready",
                    "Reporting",
                    "Artifact",
                    "Deploy",
                    "Published",
                ]
            ),
            "status": NAMES,
            "message": WORDS,
            "lastTransitionTime": NAMES,
        }
    ),
    max_size=5,
)
METADATA = objects(
    {
        "namespace": NAMES,
        "name": NAMES,
        "uid": NAMES,
        "creationTimestamp": NAMES,
        "deletionTimestamp": NAMES,
        "generation": st.integers(),
        "labels": st.dictionaries(NAMES, NAMES, max_size=2),
        "ownerReferences": st.lists(objects({"controller": st.booleans(), "name": NAMES, "uid": NAMES}), max_size=2),
    }
)
NAMED = objects({"name": NAMES})
TEMPLATE = {
    "components": st.lists(
        objects({"name": NAMES, "image": NAMES, "localResources": objects({"allowedHosts": st.lists(NAMES)})}),
        max_size=2,
    ),
    "hostInterfaces": st.lists(
        objects(
            {
                "namespace": st.just("wasi"),
                "package": st.just("http"),
                "interfaces": st.lists(NAMES | st.just("incoming-handler"), max_size=2),
                "config": st.dictionaries(st.just("host"), NAMES),
            }
        ),
        max_size=2,
    ),
    "hostSelector": st.dictionaries(NAMES, NAMES, max_size=1),
    "hostId": NAMES,
    "environment": NAMES,
    "service": objects({"image": NAMES}),
    "kubernetes": objects({"service": NAMED}),
}
SPEC = objects(
    TEMPLATE
    | {
        "replicas": st.integers(-1, 3),
        "artifacts": st.lists(objects({"name": NAMES, "artifactFrom": NAMED}), max_size=2),
        "template": objects({"spec": objects(TEMPLATE)}),
        "image": NAMES,
        "ports": st.lists(objects({"name": NAMES | st.just("http"), "port": st.integers()}), max_size=2),
        "type": NAMES,
    }
)
STATUS = objects(
    {
        "conditions": CONDITIONS,
        "hostId": NAMES,
        "workloadId": NAMES,
        "lastSeen": NAMES,
        "version": NAMES,
        "systemMemoryTotal": st.integers() | NAMES,
        "currentReplicaSet": NAMED,
        "previousReplicaSet": NAMED,
        "replicas": objects({"expected": st.integers(), "ready": st.integers()}),
        "observedGeneration": st.integers(),
        "artifactUrl": NAMES,
    }
)
MANIFESTS = objects(
    {
        "metadata": METADATA,
        "spec": SPEC,
        "status": STATUS,
        "hostId": NAMES,
        "hostname": NAMES | st.just("127.0.0.1"),
        "httpPort": st.integers(),
        "environment": NAMES,
        "endpoints": st.lists(
            objects({"addresses": st.lists(NAMES), "conditions": objects({"ready": st.booleans()})}), max_size=2
        ),
    }
)
MANY = st.lists(MANIFESTS, max_size=3)


@given(st.data())
@settings(max_examples=300)
def test_no_objects_make_a_page_raise(data: st.DataObject) -> None:
    draw = data.draw
    workloads = [view_workload(item) for item in draw(MANY)]
    parts = [(item.meta.namespace, part) for item in workloads for part in item.spec.parts]
    snapshot = Snapshot(
        now=draw(st.floats(0, 2e9)),
        hosts=[view_host(item) for item in draw(MANY)],
        workloads=workloads,
        replica_sets=[view_replica_set(item) for item in draw(MANY)],
        deployments=[view_deployment(item) for item in draw(MANY)],
        artifacts=[view_artifact(item) for item in draw(MANY)],
        services=[view_service(item) for item in draw(MANY)],
        slices=[view_slice(item) for item in draw(MANY)],
        unread=draw(st.dictionaries(st.sampled_from(Part), st.just("forbidden"), max_size=3)),
        images={image_key(*item): ImageAnswer(draw(st.sampled_from(ImageState))) for item in parts},
        messages=recording("04").messages(0, 20, replies=True) if draw(st.booleans()) else None,
    )
    pages = [
        *(explain_host(snapshot, item, Beside()) for item in snapshot.hosts),
        *(explain_workload(snapshot, item, Beside()) for item in snapshot.workloads),
        *(explain_deployment(snapshot, item, Beside()) for item in snapshot.deployments),
        *(explain_artifact(snapshot, item, Beside()) for item in snapshot.artifacts),
    ]
    for page in pages:
        assert page.headline
        assert page.document()["health"]


def test_unknown_and_zero_in_the_status_of_a_host_are_not_known() -> None:
    after_heartbeat, after_question = (host(recording("01").snapshot(at), "uppity-son-5573") for at in (16.0, 14.0))
    assert (after_heartbeat.version, after_heartbeat.system) == ("", "")
    assert after_heartbeat.memory_total is after_heartbeat.memory_free is None
    assert after_question.version == "2.7.0"
    assert after_question.memory_total
    assert after_heartbeat.last_seen
    assert (after_heartbeat.address, after_heartbeat.port) == ("10.77.77.11", 8180)


def test_lists_and_texts_are_bounded() -> None:
    found = view_workload(
        {"metadata": {"name": "n" * 9999}, "spec": {"components": [{"image": "i"}] * 5000, "environment": "e" * 9999}}
    )
    assert len(found.spec.components) == ITEMS_KEPT
    assert len(found.spec.environment) == len(found.meta.name) == TEXT_KEPT


def test_configuration_values_are_in_no_view() -> None:
    value = "hunter2"
    spec = {
        "components": [{"name": "web", "localResources": {"environment": {"config": {"password": value}}}}],
        "hostInterfaces": [{"namespace": "a", "package": "b", "interfaces": ["c"], "config": {"password": value}}],
    }
    assert value not in repr(view_workload({"spec": spec}))
    assert value not in repr(view_deployment({"spec": {"template": {"spec": spec}}}))


@pytest.mark.parametrize(
    ("stamp", "found"),
    [
        ("2026-11-24T11:13:08Z", 1795518788.0),
        ("2026-11-24T11:13:08.858515718+00:00", 1795518788.858515),
        ("2026-11-24T11:13:08", None),
        ("yesterday", None),
        ("", None),
        ("0000-00-00T00:00:00Z", None),
    ],
)
def test_a_time_without_a_zone_is_not_known(stamp: str, found: float | None) -> None:
    assert seconds(stamp) == found


@pytest.mark.parametrize(
    ("address", "refused"),
    [
        ("10.0.0.1", False),
        ("127.0.0.13", True),
        ("0.0.0.0", True),
        ("169.254.1.1", True),
        ("224.0.0.1", True),
        ("fd00::1", True),
        ("wasm.example", True),
        ("", True),
    ],
)
def test_addresses_that_no_slice_can_have(address: str, refused: bool) -> None:
    assert bool(unroutable(address)) is refused


def test_a_selector_matches_labels() -> None:
    found = view_host({"metadata": {"labels": {"hostgroup": "default", "zone": "a"}}})
    assert selects({}, found)
    assert selects({"zone": "a"}, found)
    assert not selects({"zone": "b"}, found)
    assert not selects({"zone": "a", "gpu": "yes"}, found)
