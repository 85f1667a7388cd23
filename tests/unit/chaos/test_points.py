"""A boundary is called by what is sent, and not by whose it is."""

from __future__ import annotations

import pytest

from chaos.points import of_reply, of_request, of_subject, of_wadm_request
from chaos.scenarios import SCENARIOS, Scenario
from trellis.kube.transport import HttpRequest


@pytest.mark.parametrize(
    ("method", "path", "called"),
    [
        ("POST", "/apis/batch/v1/namespaces/trellis-installers/jobs", "create jobs"),
        ("PATCH", "/api/v1/nodes/worker-1", "patch nodes"),
        ("PATCH", "/api/v1/nodes/worker-1/status", "patch nodes/status"),
        ("PATCH", "/apis/runtime.spinkube.dev/v1alpha1/shims/spin/status", "patch shims/status"),
        ("PUT", "/api/v1/namespaces/trellis-system/configmaps/trellis-rollout-ledger", "update configmaps"),
        ("POST", "/api/v1/namespaces", "create namespaces"),
        ("DELETE", "/apis/node.k8s.io/v1/runtimeclasses/spin", "delete runtimeclasses"),
        ("GET", "/api/v1/nodes", ""),
        ("PUT", "/apis/coordination.k8s.io/v1/namespaces/trellis-system/leases/trellis-provisioner", ""),
        ("POST", "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews", ""),
    ],
)
def test_a_write_is_called_by_what_is_done_to_which_kind(method: str, path: str, called: str) -> None:
    assert of_request(HttpRequest(method, path)) == called


def test_an_event_a_dead_letter_and_a_copy_are_distinguished() -> None:
    assert of_subject("trellis.evt.c1.node.opted_in.worker-1") == "publish node.opted_in"
    assert of_subject("trellis.dead.c1.provisioner.node.worker-1") == "publish dead"
    assert of_subject("trellis.lattice.c1.default.component_scaled") == "publish lattice"


@pytest.mark.parametrize(
    ("subject", "called"),
    [
        ("wadm.api.default.model.put", "wadm put"),
        ("wadm.api.default.model.deploy.hello", "wadm deploy"),
        ("wadm.api.default.model.get", ""),
        ("wadm.api.default.model.get.hello", ""),
        ("wadm.api.default.model.status.hello", ""),
        ("wadm.api.default.model.del.get", "wadm del"),
        ("wasmbus.ctl.v1.default.host.ping", ""),
    ],
)
def test_commands_to_wadm_are_distinguished_from_queries(subject: str, called: str) -> None:
    assert of_wadm_request(subject) == called


@pytest.mark.parametrize(
    ("consumer", "called"),
    [
        ("provisioner-nodes-c1", "acknowledge provisioner-nodes"),
        ("trellis-host_manager-default_1a2b3c-c1", "acknowledge trellis-host_manager"),
    ],
)
def test_an_acknowledgement_is_called_by_whose_it_is(consumer: str, called: str) -> None:
    assert of_reply(f"$JS.ACK.TRELLIS_EVENTS.{consumer}.1.20.21.1700000000000000000.0") == called


@pytest.mark.parametrize("scenario", SCENARIOS, ids=lambda scenario: scenario.part)
def test_a_scenario_is_of_its_own_part_and_each_phase_changes_something(scenario: Scenario) -> None:
    assert all(step.part == scenario.part for phase in scenario.phases for step in phase)
    assert all(scenario.phases)
