"""Entities after any sequence of changes equal those of a composer that received only the final state."""

from __future__ import annotations

from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from support.console import seen_objects as objects
from trellis import names
from trellis.lattice.domain.service_views import view_pod
from trellis.provisioning.ledger import Entry, Ledger
from trellis.provisioning.nodes_and_jobs import view_job, view_node
from trellis.provisioning.views import FailedAttempt
from trellis.read_model.entities import entities
from trellis.read_model.entities.cards import (
    view_app_card,
    view_controller_card,
    view_ends,
    view_group_card,
    view_installer,
    view_service_card,
    view_shim_card,
)
from trellis.read_model.entities.composing import PARTS, Composer
from trellis.read_model.entities.entities import PartStatus
from trellis.read_model.entities.journal import Journal
from trellis.read_model.tables.nodes import rows_of
from trellis_dev.testing.builders import a_node, verified_node

_UIDS = {name: f"uid-{name}" for name in ("n1", "n2")}


def filled(manifest: dict[str, Any]) -> dict[str, Any]:
    metadata = {"uid": f"uid-{manifest['metadata']['name']}", "resourceVersion": "1"} | manifest["metadata"]
    return manifest | {"metadata": metadata}


def job(node: str, *, failed: bool) -> dict[str, Any]:
    kind = "Failed" if failed else "Complete"
    return filled(
        {
            "metadata": {
                "name": f"{node}-job",
                "namespace": "trellis-installers",
                "labels": {names.LABEL_NODE_UID: f"uid-{node}", names.LABEL_DIGEST: "d" * 16},
                "annotations": {names.ANNOTATION_NODE: node},
                "creationTimestamp": "2026-01-01T00:00:00Z",
            },
            "status": {"conditions": [{"type": kind, "status": "True", "lastTransitionTime": "2026-01-01T00:00:09Z"}]},
        }
    )


def installer_pod(node: str) -> dict[str, Any]:
    waiting = {"waiting": {"reason": "ErrImagePull", "message": "not found"}}
    labels = {"batch.kubernetes.io/job-name": f"{node}-job"}
    status = {"phase": "Pending", "containerStatuses": [{"name": "installer", "state": waiting}]}
    return {"metadata": {"name": f"{node}-pod", "namespace": "trellis-installers", "labels": labels}, "status": status}


def ledger(*nodes: str, halted: bool = False) -> Ledger:
    entries = {f"uid-{node}": Entry("d" * 16, 1, 5, ("spin",)) for node in nodes}
    return Ledger(entries, ("spin",) if halted else ())


def paused(name: str) -> dict[str, Any]:
    shim = objects.shim(name)
    return shim | {"spec": shim["spec"] | {"paused": True}}


def blocked(name: str) -> dict[str, Any]:
    condition = {
        "type": "Degraded",
        "status": "True",
        "reason": "ChecksumMissing",
        "message": "m",
        "observedGeneration": 1,
    }
    return objects.shim(name) | {"status": {"observedGeneration": 1, "conditions": [condition], "nodes": 1}}


def default(name: str) -> dict[str, Any]:
    shim = objects.shim(name)
    spec = {key: value for key, value in shim["spec"].items() if key != "nodeSelector"}
    return shim | {"spec": spec, "status": {"observedGeneration": 1, "nodes": 2}}


def broken(name: str) -> dict[str, Any]:
    node = objects.opted_in(name)
    marks = {
        names.ANNOTATION_NODE_UID: f"uid-{name}",
        names.ANNOTATION_FAILED_ATTEMPT: FailedAttempt("d" * 16, 2, 1000).encode(),
        names.ANNOTATION_FAILURE: "it broke",
    }
    node["metadata"]["annotations"] |= marks
    return node


def skipped(name: str) -> dict[str, Any]:
    node = objects.node(name)
    node["metadata"]["labels"] |= {"eks.amazonaws.com/compute-type": "fargate"}
    return node


VIEWS: dict[str, dict[str, list[Any]]] = {
    "nodes": {
        name: [
            view_node(filled(item))
            for item in (
                objects.node(name),
                objects.opted_in(name),
                objects.node(name, ready=False),
                broken(name),
                skipped(name),
            )
        ]
        for name in _UIDS
    },
    "jobs": {
        f"trellis-installers/{name}-job": [
            *(view_job(job(name, failed=failed)) for failed in (True, False)),
            view_job(job(name, failed=False) | {"status": {}}),
        ]
        for name in _UIDS
    },
    "installers": {f"trellis-installers/{name}-pod": [view_installer(filled(installer_pod(name)))] for name in _UIDS},
    "ledgers": {"trellis-system/trellis-rollout": [ledger(), ledger("n1"), ledger("n1", "n2", halted=True)]},
    "shims": {
        name: [
            view_shim_card(filled(item)) for item in (objects.shim(name), paused(name), blocked(name), default(name))
        ]
        for name in ("spin", "wws")
    },
    "groups": {
        "team/hosts": [view_group_card(filled(objects.group(pods=pods))) for pods in ((), ("hosts-1",), ("hosts-2",))]
    },
    "pods": {
        f"team/{name}": [view_pod(filled(objects.host_pod(name, ready=ready))) for ready in (True, False)]
        for name in ("hosts-1", "hosts-2")
    },
    "applications": {
        "team/shop": [view_app_card(filled(objects.application(phase=phase))) for phase in ("Deployed", "Failed")]
    },
    "services": {"team/shop": [view_service_card(filled(objects.service()))]},
    "slices": {
        "team/shop-0": [
            view_ends(filled(item))
            for item in (objects.slice_of(), objects.slice_of(pod="hosts-2"), objects.slice_of("another"))
        ]
    },
    "controllers": {"team/ring": [view_controller_card(filled(objects.controller()))]},
}
STEPS = st.sampled_from(
    [(part, key, view) for part, keys in VIEWS.items() for key, views in keys.items() for view in [*views, None]]
)


def test_every_part_is_tried() -> None:
    assert set(VIEWS) == set(PARTS)


@given(st.lists(st.tuples(STEPS, st.booleans()), max_size=40))
def test_entities_equal_those_of_a_viewer_who_read_only_the_final_state(
    steps: list[tuple[tuple[str, str, Any], bool]],
) -> None:
    composer, journal, end = Composer(), Journal(1000), dict[tuple[str, str], Any]()
    for (part, key, view), flush in steps:
        composer.take(part, key, view)
        end[part, key] = view
        if flush:
            journal.write(composer.flush())
    journal.write(composer.flush())
    late, wanted = Composer(), Journal(1000)
    for (part, key), view in end.items():
        late.take(part, key, view)
    wanted.write(late.flush())
    assert journal.entities == wanted.entities


def test_a_slot_in_the_ledger_changes_its_node_alone() -> None:
    composer = Composer()
    for name in _UIDS:
        composer.take("nodes", name, view_node(filled(objects.opted_in(name))))
    before = composer.flush()["node/n1"]
    composer.take("ledgers", "trellis-system/trellis-rollout", ledger("n1"))
    changes = composer.flush()
    assert before is not None
    assert changes["node/n1"] is not None
    assert (before["phase"], changes["node/n1"]["phase"]) == ("Waiting", "Provisioning")
    assert "node/n2" not in changes


def test_a_part_that_may_not_be_read_is_an_entity_that_reports_it() -> None:
    composer = Composer()
    composer.report(PartStatus("nodes", True, {"": ("not allowed to list nodes", "ask")}))
    part = composer.flush()["part/nodes"]
    assert part is not None
    assert part["lacking"] == [{"namespace": None, "message": "not allowed to list nodes", "do": "ask"}]
    assert part["health"] == "Degraded"


def test_passwords_in_addresses_and_endless_texts_stay_out() -> None:
    app = objects.application(phase="Failed")
    app["status"]["message"] = "cannot pull nats://me:hunter2@host:4222 " + "x" * 5000
    composer = Composer()
    composer.take("applications", "team/shop", view_app_card(filled(app)))
    entity = composer.flush()["application/team/shop"]
    assert entity is not None
    assert "hunter2" not in entity["message"]
    assert len(entity["message"]) <= 400


def test_a_service_is_of_the_lattice_that_its_application_names() -> None:
    """On the Service stands a mark, which tells lattices of one name apart."""
    service = filled(objects.service())
    mark = service["metadata"]["annotations"][names.ANNOTATION_LATTICE]
    card = view_service_card(service)
    assert card is not None
    assert mark.startswith(f"{card.lattice}/")
    assert card.lattice == view_app_card(filled(objects.application())).lattice


def test_the_error_of_a_guest_is_truncated_and_contains_no_password() -> None:
    message = "http://u:hunter2@registry/ " + "x" * 30_000
    manifest = objects.controller()
    manifest["status"]["conditions"][0] |= {"status": "False", "message": message}
    manifest["status"]["lastFault"] = {"kind": "Trap", "message": message, "time": "2026-11-21T11:14:29Z"}
    entity = entities.controller_entity(view_controller_card(manifest))
    assert len(str(entity)) < 3_000
    assert "hunter2" not in str(entity)
    assert entity["last_fault"]["kind"] == "Trap"


def test_a_node_that_a_shim_selects_is_opted_in_as_in_trellis_nodes() -> None:
    composer, shown = Composer(), Journal(1000)
    nodes = {"n1": view_node(filled(objects.node("n1"))), "n2": view_node(filled(skipped("n2")))}
    for name, node in nodes.items():
        composer.take("nodes", name, node)
    card, denied = view_shim_card(filled(objects.shim("spin"))), {"": ("cannot be listed", "ask")}
    for found, lacking, wanted in (
        *((None, {}, "false"), (card, {}, "true"), (None, {}, "false")),
        *((None, denied, "unknown"), (None, {}, "false")),
    ):
        composer.take("shims", "spin", found)
        composer.report(PartStatus("shims", synced=True, lacking=lacking))
        shown.write(composer.flush())
        phases = {name: shown.entities[f"node/{name}"] for name in nodes}
        shims = None if lacking else [found.view] if found is not None else []
        rows = {row.name: row for row in rows_of(nodes.values(), {}, Ledger({}), shims)}
        assert {name: item["phase"] for name, item in phases.items()} == {name: row.state for name, row in rows.items()}
        assert {phase["opt_in"] for phase in phases.values()} == {wanted}


def test_a_node_with_nothing_to_install_follows_the_shims_and_the_ledger() -> None:
    composer, shown = Composer(), Journal(1000)
    composer.take("nodes", "n1", view_node(filled(objects.opted_in("n1"))))
    default = filled(objects.shim("spin"))
    default["metadata"]["labels"] = {names.LABEL_KWASM_DEFAULT: "true"}
    kwasm = Ledger({"uid-other": Entry("0" * 16, 1, 1)})

    def reason() -> Any:
        shown.write(composer.flush())
        return shown.entities["node/n1"]["reason"]

    found = [reason()]
    for part in ("nodes", "shims", "ledgers"):
        composer.report(PartStatus(part, synced=True, lacking={}))
        found.append(reason())
    for part, view in (
        *(("shims", view_shim_card(default)), ("shims", None)),
        *(("ledgers", kwasm), ("ledgers", Ledger({}))),
        *(("nodes", verified_node(a_node("n2"))), ("nodes", a_node("n2"))),
    ):
        composer.take(part, "n2" if part == "nodes" else "spin", view)
        found.append(reason())
    composer.report(PartStatus("shims", synced=True, lacking={"": ("cannot be read", "ask")}))
    found.append(reason())
    bare = "NothingToInstall"
    assert found == ["Waiting", "Waiting", "Waiting", bare, *3 * ["Waiting", bare], "Waiting"]
