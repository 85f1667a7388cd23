"""Every broken situation of docs/troubleshooting.md has one health and one reason on all surfaces.

Surfaces: the page of ``trellis explain``, the entities of the console and ``trellis top``, rows of ``trellis nodes``,
the rollout of a Shim, the rows of ``trellis status``, the condition Ready that the service of each kind writes and
that ``kubectl get`` shows, and the metrics that count objects by state or health.
"""

from __future__ import annotations

import re
from collections import Counter
from pathlib import Path

import pytest
import yaml

from controller_host.report.status import Seen as SeenController
from controller_host.report.status import status_of as controller_status_of
from host_manager.domain.status import health_of as group_health_of
from host_manager.v2.reconciler import healths
from provisioner.domain.shim_status import health_of as shim_health_of
from support.console import seen_objects as objects
from support.situations.objects import (
    APPLICATIONS,
    CONTROLLERS,
    GRANTS,
    GROUPS,
    NODES,
    READY,
    SEEN,
    SHIMS,
    SHOWN,
    UNREACHABLE,
    WRITTEN_APPLICATIONS,
    Manifest,
    Nodes,
    app,
    explained,
    filled,
    group,
    of_lattice,
    shown,
)
from support.situations.v2 import V2, Found, page_of
from support.situations.wasm_pods import WASM_PODS, Owned
from support.v2.entities import seen
from support.v2.recordings import SITUATIONS, recording
from trellis.crds.conditions import Health as Written
from trellis.crds.conditions import State, state_of, summary
from trellis.lattice.domain.service_views import view_pod, view_service
from trellis.provisioning.nodes_and_jobs import view_node
from trellis.read_model.entities.cards import (
    view_app_card,
    view_controller_card,
    view_ends,
    view_group_card,
    view_service_card,
)
from trellis.read_model.entities.composing import Composer
from trellis.read_model.entities.entities import PartStatus
from trellis.read_model.explain.application import AppSnapshot, explain_application
from trellis.read_model.explain.controller import explain_controller
from trellis.read_model.explain.hosts import explain_group
from trellis.read_model.explain.page import READY as READY_WORD
from trellis.read_model.explain.page import Rank
from trellis.read_model.explain.service import ServiceSnapshot, Warned, explain_no_service, explain_service
from trellis.read_model.explain.subject import Absence, Beside
from trellis.read_model.health import Health
from trellis.read_model.tables.apps import row_of
from trellis.read_model.tables.controllers import controller_row
from trellis.read_model.tables.nodes import rows_of, with_causes
from trellis.read_model.tables.rollout import RolloutSnapshot, standing_of
from trellis.v2.cluster import Cluster
from trellis_cli.apps.row import applications_part, causes_of
from trellis_cli.common.rollout_state import Rollout
from trellis_cli.controllers.model import controllers_part
from trellis_cli.explain.grant import GrantSnapshot, explain_grant
from trellis_cli.status.row import Part
from trellis_cli.status.rows import hosts_part, rollout_part, secrets_part
from trellis_cli.top.model import Kind
from trellis_cli.v2.row import v2_part

V2_KINDS = {
    "whost": "Host",
    "workload": "Workload",
    "workloaddeployment": "WorkloadDeployment",
    "artifact": "Artifact",
}
"""Kinds of entities, and the label ``kind`` of ``trellis_wasmcloud_objects``."""
DEFINITIONS = Path(__file__).parents[2] / "deploy/crds"


@pytest.mark.parametrize(("world", "health", "reason"), NODES.values(), ids=NODES)
def test_a_node_has_one_health_and_reason_everywhere(world: Nodes, health: Health, reason: str) -> None:
    assert {*world.node_on_all()} == {(health.value, reason)}


@pytest.mark.parametrize(("world", "health", "reason"), SHIMS.values(), ids=SHIMS)
def test_a_shim_has_one_health_and_reason_everywhere(world: Nodes, health: Health, reason: str) -> None:
    assert {*world.shim_on_all()} == {(health.value, reason)}


@pytest.mark.parametrize(("world", "health", "reason"), SHIMS.values(), ids=SHIMS)
def test_the_conditions_of_a_shim_agree_with_its_health(world: Nodes, health: Health, reason: str) -> None:
    written = shim_health_of(world.statuses["spin"].conditions)
    assert health in SHOWN[written.state]
    if not world.held:  # only readers see the pods of installers
        assert written.reason == reason


def test_a_rollout_of_which_only_refused_nodes_remain_does_not_continue() -> None:
    world = SHIMS["HandlerConflict"][0]
    standing = standing_of(
        RolloutSnapshot(
            world.views[0], world.statuses["spin"], tuple(world.views), (view_node(world.node),), world.ledger
        )
    )
    assert (standing.settled, standing.broken) == (True, True)


@pytest.mark.parametrize(("found", "health", "reason"), GROUPS.values(), ids=GROUPS)
def test_a_host_group_has_one_health_and_reason_everywhere(found: Manifest, health: Health, reason: str) -> None:
    entities = of_lattice(groups={"team/hosts": view_group_card(found)})
    surfaces = [explained(explain_group(found, Beside())), *shown(entities, "hostgroup/team/hosts", Kind.HOST_GROUPS)]
    assert {*surfaces} == {(health.value, reason)}


@pytest.mark.parametrize(("found", "health", "reason"), GROUPS.values(), ids=GROUPS)
def test_the_conditions_of_a_host_group_agree_with_its_health(found: Manifest, health: Health, reason: str) -> None:
    conditions = [
        (condition["type"], condition["status"], condition["reason"], condition["message"])
        for condition in found["status"]["conditions"]
    ]
    written = group_health_of(conditions)
    assert health in SHOWN[written.state]
    assert written.reason == reason


def test_hosts_are_not_healthy_while_their_lattice_is_unreachable() -> None:
    for found, health in ((group(READY), "Healthy"), (group(READY, UNREACHABLE), "Unknown")):
        pods = {"team/hosts-1": view_pod(filled(objects.host_pod()))}
        entities = of_lattice(groups={"team/hosts": view_group_card(found)}, pods=pods)
        assert entities["host/team/hosts-1"]["health"] == health


@pytest.mark.parametrize(("found", "groups", "health", "reason"), APPLICATIONS.values(), ids=APPLICATIONS)
def test_an_application_has_one_health_and_reason_everywhere(
    found: Manifest, groups: list[Manifest], health: Health, reason: str
) -> None:
    cards = {f"team/{item['metadata']['name']}": view_group_card(item) for item in groups}
    entities = of_lattice(groups=cards, applications={"team/shop": view_app_card(found)})
    page = explain_application(AppSnapshot(found, groups))
    surfaces = [explained(page), *shown(entities, "application/team/shop", Kind.APPLICATIONS)]
    assert {*surfaces} == {(health.value, reason)}


def test_an_application_whose_host_groups_cannot_be_read_is_not_without_any() -> None:
    composer = Composer()
    composer.take("applications", "team/shop", view_app_card(app()))
    composer.report(PartStatus("groups", synced=True, lacking={"": ("not allowed to list", "ask")}))
    entity = composer.flush()["application/team/shop"]
    assert entity is not None
    assert (entity["health"], entity["reason"]) == ("Healthy", "Deployed")


def test_a_service_without_ready_endpoints_is_degraded_everywhere() -> None:
    raw, ends = filled(objects.service()), filled(objects.slice_of())
    world = ServiceSnapshot(view_service(raw), [], [], [])
    without = of_lattice(services={"team/shop": view_service_card(raw)})
    surfaces = [explained(explain_service(world)), *shown(without, "service/team/shop", Kind.SERVICES)]
    assert {*surfaces} == {("Degraded", "NoReadyEndpoints")}
    found = of_lattice(services={"team/shop": view_service_card(raw)}, slices={"team/shop-0": view_ends(ends)})
    assert (found["service/team/shop"]["health"], found["service/team/shop"]["reason"]) == (
        "Healthy",
        "EndpointsReady",
    )


def test_a_service_that_cannot_exist_is_missing_for_the_reason_of_its_event() -> None:
    warning = Warned("team/hosts", "LoopbackAddress", "application shop of lattice prod: it listens on 127.0.0.1:80")
    page = explain_no_service(("shop", None), Absence(), [warning], Beside())
    assert explained(page) == ("Missing", "LoopbackAddress")


@pytest.mark.parametrize(("found", "health", "reason"), CONTROLLERS.values(), ids=CONTROLLERS)
def test_a_controller_has_one_health_and_reason_everywhere(found: Manifest, health: Health, reason: str) -> None:
    found = found | {"status": found["status"] | ({} if health is not Health.UNKNOWN else {"observedGeneration": None})}
    entities = of_lattice(controllers={"team/ring": view_controller_card(found)})
    page = explain_controller(found, Beside())
    surfaces = [explained(page), *shown(entities, "controller/team/ring", Kind.CONTROLLERS)]
    assert {*surfaces} == {(health.value, reason)}


@pytest.mark.parametrize(("seen", "health"), SEEN.values(), ids=SEEN)
def test_the_conditions_of_a_controller_agree_with_its_health(seen: SeenController, health: Health) -> None:
    found = filled(objects.controller())
    found = found | {"status": controller_status_of(seen, {}, "2026-01-01T00:00:00Z")}
    page = explain_controller(found, Beside())
    [ready] = [condition for condition in found["status"]["conditions"] if condition["type"] == "Ready"]
    assert explained(page) == (health.value, ready["reason"])


@pytest.mark.parametrize(("found", "health", "reason"), V2.values(), ids=V2)
def test_an_object_of_wasmcloud_v2_has_one_health_and_reason_everywhere(
    found: Found, health: Health, reason: str
) -> None:
    assert {*found.surfaces()} == {(health.value, reason)}


@pytest.mark.parametrize("situation", SITUATIONS)
def test_every_object_of_a_situation_of_wasmcloud_v2_has_one_health_everywhere(situation: str) -> None:
    at = recording(situation).end / 2
    snapshot = recording(situation).snapshot(at)
    row = v2_part(snapshot).data
    for id_, entity in seen(situation, at).items():
        if entity["kind"] == "part":
            continue
        page = page_of(snapshot, id_)
        assert explained(page) == (entity["health"], entity["reason"]), id_
        if entity["kind"] in {"whostgroup", "whost", "workloaddeployment", "artifact"}:
            cause = page.cause
            outage = {line.reason for line in page.lines if line.trouble and line.rank is Rank.SERVICE}
            wrong = cause is not None and cause.rank is Rank.CAUSE and cause.state is not Health.PROGRESSING
            wrong = wrong and cause is not None and cause.reason not in outage  # which the row has once
            assert (id_ in row["unhealthy"]) == wrong, id_


@pytest.mark.parametrize(("world", "health", "reason"), WASM_PODS.values(), ids=WASM_PODS)
async def test_an_owner_of_wasm_pods_has_one_health_and_reason_everywhere(
    world: Owned, health: Health, reason: str
) -> None:
    assert {*await world.surfaces()} == {(health.value, reason)}


def agrees(part: Part, health: Health) -> bool:
    """Return whether a row of ``trellis status`` reports a problem of a degraded object, and of no healthy one."""
    return part.ok is (health is not Health.DEGRADED) or health not in {*EXPECTED, Health.DEGRADED}


EXPECTED = {Health.HEALTHY, Health.PROGRESSING, Health.NOT_OPTED_IN}
"""Health without a problem. ``trellis status`` may report the nodes of a suspended Shim, and why a state is unknown."""


@pytest.mark.parametrize(("world", "health", "reason"), SHIMS.values(), ids=SHIMS)
def test_the_status_of_the_rollout_agrees_with_the_health_of_a_shim(world: Nodes, health: Health, reason: str) -> None:
    jobs = {"uid-n1": world.job_views}
    rows = with_causes(rows_of([view_node(world.node)], jobs, world.ledger, world.views, world.statuses), world.held)
    pending = {name: line.text for name, line in world.held.items()}
    part = rollout_part(Rollout([*rows], world.ledger, shims=world.shims), pending)
    assert agrees(part, health)
    assert health is not Health.DEGRADED or reason in {*re.findall(r"\w+", part.problem), "RolloutHalted"}


@pytest.mark.parametrize(("found", "health"), [case[:2] for case in GROUPS.values()], ids=GROUPS)
def test_the_status_of_hosts_agrees_with_the_health_of_a_host_group(found: Manifest, health: Health) -> None:
    assert agrees(hosts_part([found], "leader"), health)


@pytest.mark.parametrize(("found", "groups", "health"), [case[:3] for case in APPLICATIONS.values()], ids=APPLICATIONS)
def test_the_status_of_applications_agrees_with_the_health_of_an_application(
    found: Manifest, groups: list[Manifest], health: Health
) -> None:
    assert agrees(applications_part([row_of(found)], causes_of([found], groups), "leader"), health)


@pytest.mark.parametrize(("found", "health", "reason"), CONTROLLERS.values(), ids=CONTROLLERS)
def test_the_status_of_controllers_agrees_with_the_health_of_a_controller(
    found: Manifest, health: Health, reason: str
) -> None:
    part = controllers_part([controller_row(found)], "leader")
    assert agrees(part, health)
    assert health is not Health.DEGRADED or reason in part.problem


def state_in_metrics(written: Written) -> State:
    """Return the label ``state`` of ``trellis_objects`` for an object with the conditions of this health."""
    return state_of([{"type": verdict.type, "status": verdict.status} for verdict in summary(written)])


@pytest.mark.parametrize(("world", "health"), [case[:2] for case in SHIMS.values()], ids=SHIMS)
def test_metrics_count_a_shim_by_its_health(world: Nodes, health: Health) -> None:
    assert health in SHOWN[state_in_metrics(shim_health_of(world.statuses["spin"].conditions))]


@pytest.mark.parametrize(("found", "health"), [case[:2] for case in GROUPS.values()], ids=GROUPS)
def test_metrics_count_a_host_group_by_its_health(found: Manifest, health: Health) -> None:
    conditions = [
        (condition["type"], condition["status"], condition["reason"], condition["message"])
        for condition in found["status"]["conditions"]
    ]
    assert health in SHOWN[state_in_metrics(group_health_of(conditions))]


@pytest.mark.parametrize("situation", APPLICATIONS)
def test_metrics_count_an_application_by_its_health(situation: str) -> None:
    assert APPLICATIONS[situation][2] in SHOWN[state_of(WRITTEN_APPLICATIONS[situation]["conditions"])]


@pytest.mark.parametrize(("seen", "health"), SEEN.values(), ids=SEEN)
def test_metrics_count_a_controller_by_its_health(seen: SeenController, health: Health) -> None:
    conditions = controller_status_of(seen, {}, "2026-01-01T00:00:00Z")["conditions"]
    assert health in SHOWN[state_of(conditions)]


@pytest.mark.parametrize("situation", SITUATIONS)
def test_metrics_count_objects_of_wasmcloud_v2_by_their_health(situation: str) -> None:
    at = recording(situation).end / 2
    entities = seen(situation, at).values()
    counted = healths(Cluster(recording(situation).snapshot(at)))
    for entity, kind in V2_KINDS.items():
        assert counted[kind] == Counter(item["health"] for item in entities if item["kind"] == entity), kind


@pytest.mark.parametrize("definition", sorted(DEFINITIONS.rglob("*.*.*yaml")), ids=lambda path: path.stem)
def test_the_columns_of_kubectl_are_the_condition_ready(definition: Path) -> None:
    for version in yaml.safe_load(definition.read_text())["spec"]["versions"]:
        columns = {column["name"]: column["jsonPath"] for column in version["additionalPrinterColumns"]}
        ready = ".status.conditions[?(@.type=='Ready')]"
        assert [columns[name] for name in ("Ready", "Reason", "Message")] == [
            f"{ready}.{field}" for field in ("status", "reason", "message")
        ]


OF_NO_OBJECT = {
    "Dead letters",
    "No leader",
    "Pods do not start after an installation with cert-manager",
    "Object or CRD not found",
    "API server unavailable",
    "NATS unavailable",
}
"""Situations of the page that are not the state of an object with a health."""


def test_every_situation_of_the_page_has_a_case() -> None:
    page = (Path(__file__).parents[2] / "docs" / "troubleshooting.md").read_text()
    headings = re.findall(r"^### (.*)$", page, re.MULTILINE)
    cases = " ".join([*NODES, *SHIMS, *GROUPS, *APPLICATIONS, *CONTROLLERS, "LoopbackAddress"]).lower()
    same = {
        "FailedToRetrieveImagePullSecret": "ErrImagePull",
        "Waiting: no host group of the lattice": "no host group",
        "Rollout halted": "halted",
        "Node not opted in": "not opted in",
    }
    named = [
        re.split(r"[:,]| of the ", same.get(heading, heading))[0].lower()
        for heading in headings
        if heading not in OF_NO_OBJECT
    ]
    assert {*headings} > OF_NO_OBJECT
    assert [name for name in named if name not in cases] == []


@pytest.mark.parametrize("cases", [SHIMS, GROUPS, APPLICATIONS], ids=["shims", "host groups", "applications"])
def test_each_kind_that_the_page_names_for_a_mass_deletion_has_a_case(cases: dict[str, object]) -> None:
    assert "MassDeletion" in cases


@pytest.mark.parametrize(("world", "health", "reason"), GRANTS.values(), ids=GRANTS)
def test_a_grant_has_one_health_and_reason_everywhere(world: GrantSnapshot, health: Health, reason: str) -> None:
    conditions = world.grant["status"]["conditions"]
    [ready] = [condition for condition in conditions if condition["type"] == "Ready"]
    assert {explained(explain_grant(world)), (health.value, ready["reason"])} == {(health.value, reason)}
    assert health in SHOWN[state_of(conditions)], "kubectl and metrics"


@pytest.mark.parametrize(("world", "health"), [case[:2] for case in GRANTS.values()], ids=GRANTS)
def test_the_status_of_secrets_agrees_with_the_health_of_a_grant(world: GrantSnapshot, health: Health) -> None:
    assert agrees(secrets_part([world.grant], world.groups, []), health)


def test_a_grant_that_works_for_one_of_two_lattices_is_not_reported_to_have_no_effect() -> None:
    sources = [{"namespace": "team", "lattice": "prod"}, {"namespace": "team", "lattice": "test"}]
    grant = filled({"metadata": {"name": "g", "namespace": "vault"}, "spec": {"from": sources, "secrets": ["*"]}})
    page = explain_grant(GrantSnapshot(grant, [group(READY)]))
    assert page.wanted == READY_WORD
    assert [line.ok for line in page.lines if line.about == "from"] == [True, False]
