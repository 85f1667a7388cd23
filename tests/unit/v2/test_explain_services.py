"""Services of wasmCloud v2 during outages and failed rollouts, and Services that do not exist."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from support.suite.naming import lacking
from support.v2.manifests import (
    ALL,
    DEADLINE,
    NOT_FOUND,
    condition,
    make_deployment,
    make_host,
    make_service,
    make_slice,
    make_snapshot,
    make_workload,
    steps,
)
from trellis.read_model.explain.page import Explanation
from trellis.read_model.explain.subject import Beside
from trellis.read_model.health import Health
from trellis.v2.explain.deployment import explain_deployment
from trellis.v2.explain.service import explain_no_routed_service, explain_routed_service
from trellis.v2.reasons import Reason
from trellis.v2.snapshot import Snapshot

ADDRESSES = ("10.0.0.1", "10.0.0.2")
HTTP = {"namespace": "wasi", "package": "http", "interfaces": ["incoming-handler"], "config": {"host": "web.test"}}


def cut_off(*slices: Any) -> Snapshot:
    """Return a cluster whose operator does not reach NATS: no Workload is in sync."""
    late = condition("Sync", "False", DEADLINE)
    workloads = [make_workload(f"w{n}", [*steps(*ALL[:3]), late], host=f"id-h{n}") for n in (1, 2)]
    return make_snapshot(
        [make_host("h1", seen=50), make_host("h2", seen=48)],
        workloads,
        deployment=make_deployment(2, kubernetes={"service": {"name": "web"}}),
        services=[make_service()],
        slices=slices,
    )


def page(snapshot: Snapshot) -> Explanation:
    return explain_routed_service(snapshot, snapshot.services[0], Beside())


def reasons(found: Explanation) -> list[str]:
    return [line.reason for line in found.lines if line.trouble]


def test_an_outage_of_nats_is_the_cause_and_the_endpoints_are_shown() -> None:
    found = page(cut_off(make_slice("web", *ADDRESSES)))
    assert found.cause is not None
    assert (found.cause.reason, found.verdict.health) == (Reason.NATS_UNREACHABLE, Health.UNKNOWN)
    assert Reason.NO_ENDPOINTS not in reasons(found)
    assert any(ADDRESSES[0] in line.text for line in found.lines if line.about == "endpoints")


def test_an_outage_of_nats_that_removed_the_endpoints_is_named_with_that() -> None:
    found = page(cut_off())
    assert found.cause is not None
    assert (found.cause.reason, found.verdict.health) == (Reason.NATS_UNREACHABLE, Health.DEGRADED)
    assert Reason.NO_ENDPOINTS in reasons(found)


def test_workloads_that_fail_while_former_ones_serve_leave_no_service_without_endpoints() -> None:
    failed = make_workload("w1", [*steps(*ALL[:3]), condition("Sync", "False", NOT_FOUND)])
    snapshot = make_snapshot(
        [make_host()],
        [failed],
        deployment=make_deployment(kubernetes={"service": {"name": "web"}}),
        services=[make_service()],
        slices=[make_slice("web", *ADDRESSES)],
    )
    found = page(snapshot)
    assert found.cause is not None
    assert (found.cause.reason, found.verdict.health) == (Reason.NOT_READY, Health.DEGRADED)
    none = page(replace(snapshot, slices=()))
    assert none.cause is not None
    assert none.cause.reason == Reason.NO_ENDPOINTS


def test_a_missing_service_that_a_deployment_names_has_its_page() -> None:
    snapshot = make_snapshot(deployment=make_deployment(kubernetes={"service": {"name": "shop"}}))
    for namespace in ("apps", None):
        found = explain_no_routed_service(snapshot, "shop", namespace, Beside())
        assert found is not None
        assert found.cause is not None
        assert (found.cause.reason, found.verdict.health) == (Reason.SERVICE_NOT_FOUND, Health.MISSING)
        assert "apps/web" in found.headline
    assert explain_no_routed_service(snapshot, "other", "apps", Beside()) is None
    assert explain_no_routed_service(snapshot, "shop", "other", Beside()) is None


def test_endpoints_that_no_port_leads_to_are_not_shown_as_working() -> None:
    snapshot = make_snapshot(
        [make_host()],
        [make_workload()],
        deployment=make_deployment(kubernetes={"service": {"name": "web"}}),
        services=[make_service(port="")],
        slices=[make_slice("web", *ADDRESSES)],
    )
    for found in (page(snapshot), explain_deployment(snapshot, snapshot.deployments[0], Beside())):
        assert found.cause is not None
        assert found.cause.reason == Reason.PORT_NOT_NAMED
        assert [line.ok for line in found.lines if line.about == "endpoints"] == [None]
    named = replace(snapshot, services=make_snapshot(services=[make_service()]).services)
    assert [line.ok for line in page(named).lines if line.about == "endpoints"] == [True]


@pytest.mark.parametrize("port", [0, None, "http", -1])
def test_endpoints_without_a_port_number_contradict_no_host(port: Any) -> None:
    piece = make_slice("web", "10.0.0.1") | {"ports": [{"name": "http", "port": port}]}
    snapshot = make_snapshot(
        [make_host()],
        [make_workload()],
        deployment=make_deployment(kubernetes={"service": {"name": "web"}}),
        services=[make_service()],
        slices=[piece],
    )
    assert page(snapshot).cause is None


def test_the_name_of_another_service_leads_to_no_workload() -> None:
    """The operator writes an EndpointSlice for it nevertheless."""
    external = make_service()
    external["spec"] |= {"type": "ExternalName", "externalName": "shop.example.com"}
    snapshot = make_snapshot(
        [make_host()],
        [make_workload()],
        deployment=make_deployment(kubernetes={"service": {"name": "web"}}),
        services=[external],
        slices=[make_slice("web", "10.0.0.1")],
    )
    found = page(snapshot)
    assert found.cause is not None
    assert found.cause.reason == Reason.NO_ENDPOINTS
    assert lacking(found.headline, "ExternalName") == []


def test_the_command_that_changes_a_workload_changes_it_each_time() -> None:
    snapshot = make_snapshot(
        [make_host()],
        [make_workload(age=900)],
        deployment=make_deployment(kubernetes={"service": {"name": "web"}}),
        services=[make_service(age=60)],
    )
    found = page(snapshot)
    assert found.cause is not None
    assert found.cause.reason == Reason.SERVICE_NEWER
    assert lacking(found.cause.do, "--overwrite", "$(date)") == []


def test_a_headless_service_needs_no_port_with_a_name() -> None:
    headless = make_service(port="")
    headless["spec"]["clusterIP"] = "None"
    snapshot = make_snapshot(
        [make_host()],
        [make_workload()],
        deployment=make_deployment(kubernetes={"service": {"name": "web"}}),
        services=[headless],
        slices=[make_slice("web", *ADDRESSES)],
    )
    assert page(snapshot).cause is None
    without = page(replace(snapshot, slices=()))
    assert without.cause is not None
    assert without.cause.reason == Reason.NO_ENDPOINTS


def test_endpoints_that_the_api_server_refuses_to_update_are_not_healthy() -> None:
    """They are those from before a host with a loopback address ran a Workload of the Service."""
    spec = {
        "components": [{"name": "web", "image": "registry.test/app:1"}],
        "kubernetes": {"service": {"name": "web"}},
        "hostInterfaces": [HTTP],
    }
    for address, expected in (("127.0.0.13", Reason.ADDRESS_NOT_ROUTABLE), ("10.0.0.2", None)):
        snapshot = make_snapshot(
            [make_host(), make_host("h2", hostname=address)],
            [make_workload("w1", spec=spec), make_workload("w2", spec=spec, host="id-h2")],
            deployment=make_deployment(2, template={"spec": spec}),
            services=[make_service()],
            slices=[make_slice("web", "10.0.0.1")],
        )
        for found in (page(snapshot), explain_deployment(snapshot, snapshot.deployments[0], Beside())):
            assert (found.cause.reason if found.cause is not None else None) == expected
            assert (address in found.headline) is (expected is not None)


def test_a_service_whose_workloads_are_all_on_hosts_that_do_not_exist_is_not_healthy() -> None:
    snapshot = make_snapshot(
        [make_host("h2")],
        [make_workload(host="id-gone", age=9000)],
        deployment=make_deployment(kubernetes={"service": {"name": "web"}}),
        services=[make_service(port="")],
        slices=[make_slice("web", *ADDRESSES)],
    )
    found = page(snapshot)
    assert found.cause is not None
    assert found.cause.reason == Reason.HOST_NOT_FOUND
    assert Reason.PORT_NOT_NAMED in reasons(found)
    assert page(replace(snapshot, hosts=make_snapshot([make_host(hostId="id-gone")]).hosts)).cause is not None
