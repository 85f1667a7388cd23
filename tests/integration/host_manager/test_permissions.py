"""The permissions under deploy/rbac are what host_manager needs, no more and no less; without one it says which."""

from __future__ import annotations

import json
import logging
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from host_manager.timings import Timings
from support.cluster.grants import SYSTEM, Granted, elsewhere, given, granted, manifests, refused, used
from support.lattices.host_world import PATIENCE, HostWorld
from support.lattices.lattice_speaker import LatticeSpeaker
from support.nodes.fleet import eventually
from support.v2.definitions import wasmcloud_v2
from trellis import names
from trellis.kube.resources import (
    BUDGETS,
    CONFIGMAPS,
    DAEMON_SETS,
    DEFINITIONS,
    DEPLOYMENTS,
    EVENTS,
    HOST_CONFIGS,
    LEASES,
    ROLE_BINDINGS,
    ROLES,
    SECRETS,
    WASMCLOUD_V2,
)
from trellis.lattice.timings import LatticeTimings
from trellis.names import circuit_breaker_name
from trellis_dev.localcluster import ClusterInfo
from trellis_dev.localcluster.nats import NatsServer

pytestmark = pytest.mark.cluster

GIVEN_ON = {(verb, "services") for verb in ("list", "update", "delete")}
"""Rights that are there only because each group's own Role has them."""
CONFINED, WATCHED, CLUSTER = "host-manager-confined.yaml", "host-manager-watched.yaml", "host-manager.yaml"


@pytest.fixture
def account(cluster: ClusterInfo, hosts: HostWorld, tmp_path: Path) -> Iterator[Granted]:
    with granted(cluster, hosts.api, "trellis-host-manager", tmp_path) as made:
        yield made


def confined(hosts: HostWorld, account: Granted, *more: str) -> dict[str, Any]:
    """Return the settings of an installation that looks at the test's namespace only."""
    namespaces = ",".join((hosts.namespace, *more))
    return {"kubeconfig": account.kubeconfig, "namespace": SYSTEM, "watch_namespaces": namespaces}


async def refused_for_a_missing_secret(hosts: HostWorld) -> None:
    await eventually(
        lambda: f"Secret {hosts.namespace}/registry" in hosts.condition("group", "Degraded")[2],
        "it is said",
        seconds=PATIENCE,
    )


def events(hosts: HostWorld) -> list[dict[str, Any]]:
    return [item for item in hosts.call("GET", EVENTS)["items"] if item["reason"] == "SecretMissing"]


def make_registry(hosts: HostWorld) -> None:
    hosts.secret("registry", **{".dockerconfigjson": json.dumps({"auths": {"r.example.com": {"auth": "dTpw"}}})})


async def a_first_term(hosts: HostWorld) -> None:
    """A group that lacks what it names at first, and one that wasmcloud-operator made."""
    hosts.create("group", registryCredentialsSecret="registry")
    await refused_for_a_missing_secret(hosts)
    make_registry(hosts)
    await hosts.settled("group", revision=2)
    await hosts.settled("minimal", revision=1)


async def a_second_term(hosts: HostWorld, server: NatsServer) -> None:
    """Publish again, scale, restart, replace by another kind, and delete."""
    hosts.call("DELETE", SECRETS, "registry")
    await refused_for_a_missing_secret(hosts)
    await eventually(lambda: [event["count"] for event in events(hosts)] == [2], "it is counted", seconds=PATIENCE)
    make_registry(hosts)
    hosts.change("group", registryCredentialsSecret=None, natsAddress="nats://127.0.0.1", natsClientPort=server.port)
    await hosts.settled("group")
    assert hosts.find(SECRETS, names.registry_secret("group")) is None
    hosts.call("PATCH", HOST_CONFIGS, "group", {"spec": {"replicas": 2}}, sub="scale")
    await eventually(lambda: hosts.status("group").get("readyReplicas") == 2, "two hosts", seconds=PATIENCE)

    before = {pod["metadata"]["uid"] for pod in hosts.pods("group")}
    hosts.change("group", hostRecycling="OneAtATime")
    try:
        await eventually(
            lambda: not before <= {pod["metadata"]["uid"] for pod in hosts.pods("group")}, "a restart", seconds=PATIENCE
        )
    except AssertionError:
        pods = [(pod["metadata"], pod.get("status")) for pod in hosts.pods("group")]
        found = {
            "pods": pods,
            "budgets": hosts.call("GET", BUDGETS)["items"],
            "events": hosts.call("GET", EVENTS)["items"],
        }
        pytest.fail(f"no host is restarted: {hosts.status('group')} {found}")
    hosts.change("group", hostRecycling=None)
    await hosts.settled("group")

    selector = {"matchLabels": {names.LABEL_INSTANCE: "group"}}
    budget = {"metadata": {"name": "mine"}, "spec": {"minAvailable": 0, "selector": selector}}
    hosts.call("POST", BUDGETS, body=budget)
    await eventually(lambda: hosts.find(BUDGETS, "group") is None, "ours makes way", seconds=PATIENCE)
    for daemonset, former in ((True, DEPLOYMENTS), (False, DAEMON_SETS)):
        hosts.change("group", schedulingOptions={"daemonset": daemonset})
        await eventually(lambda res=former: hosts.find(res, "group") is None, former.plural, seconds=PATIENCE)
    await hosts.settled("group")

    await eventually(lambda: len(hosts.pods("group")) == 2, "former pods are gone", seconds=PATIENCE)

    def crashes() -> bool:
        # A kubelet reports it as long as it lasts; kwok may have the pod running in between. One that ends is no host.
        for pod in hosts.pods("group"):
            if "deletionTimestamp" not in pod["metadata"] and "conditions" in pod["status"]:
                hosts.wait_in(pod, "CrashLoopBackOff", "back-off 10s restarting failed container")
                break
        return hosts.condition("group", "Degraded")[1] == "CrashLoopBackOff"

    await eventually(crashes, "it crashes", seconds=PATIENCE)
    for name in ("group", "minimal"):  # at once: each host is a question to the circuit breaker
        hosts.call("DELETE", HOST_CONFIGS, name)
    for name in ("group", "minimal"):
        await eventually(lambda name=name: hosts.find(HOST_CONFIGS, name) is None, "it is gone", seconds=PATIENCE)


@pytest.mark.timeout(420)  # all that can happen to a group, one thing after the other
@pytest.mark.parametrize("mode", ["confined", "cluster"])
async def test_each_right_is_used_and_none_is_missing(
    hosts: HostWorld, account: Granted, mode: str, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, "host_manager")  # a failure shows the actions
    timings = Timings(lattice=LatticeTimings(silence=2.0))
    if mode == "confined":
        applied = [*manifests(CONFINED), *manifests(WATCHED, hosts.namespace)]
        settings = confined(hosts, account)
    else:
        applied = manifests(CLUSTER)
        settings = {"kubeconfig": account.kubeconfig, "namespace": SYSTEM}
    account.apply(applied)
    hosts.api.call("DELETE", LEASES.path(SYSTEM, "trellis-host-manager"))
    hosts.api.call("DELETE", CONFIGMAPS.path(SYSTEM, circuit_breaker_name("host_manager")))
    offset = hosts.fleet.audit_offset()
    await hosts.as_recorded("minimal")
    with wasmcloud_v2(hosts.api), NatsServer(tmp_path / "nats") as server:
        async with LatticeSpeaker(server.url, "default", models=[]), hosts.service(timings, **settings) as service:
            await a_first_term(hosts)
            await eventually(lambda: not service.health.readiness().reasons, "ready", seconds=PATIENCE)
        async with LatticeSpeaker(server.url, "default", models=[]), hosts.service(timings, **settings):
            await a_second_term(hosts, server)
    records = hosts.fleet.writes(offset)
    assert refused(records, account.user) == []
    assert elsewhere(records, account.user) == {"/readyz", f"/apis/{WASMCLOUD_V2[0].group}"}
    wanted, found = given(applied), used(records, account.user)
    if mode == "cluster":  # what is given in all namespaces is used in one
        places = {"", SYSTEM}
        found = {(verb, resource, place if place in places else "") for verb, resource, place in found}
        found = {(*item[:2], "") if item[1] == "namespaces" else item for item in found}
    assert found - wanted == set(), "used, but given by other rules than these"
    assert {item for item in wanted - found if item[:2] not in GIVEN_ON} == set(), "given, but not used"


async def test_a_missing_permission_is_named_and_other_namespaces_go_on(hosts: HostWorld, account: Granted) -> None:
    """A namespace without permissions stops nothing in the other one; once they are given its groups begin."""
    other = f"{hosts.namespace}-2"
    hosts.api.call("POST", "/api/v1/namespaces", {"metadata": {"name": other}})
    account.apply([*manifests(CONFINED), *manifests(WATCHED, hosts.namespace)])
    try:
        async with hosts.service(**confined(hosts, account, other)) as service:
            hosts.create("group")
            await hosts.settled("group")

            def reasons() -> str:
                return "\n".join(service.health.readiness().reasons)

            lacking = (
                account.user,
                "list wasmcloudhostconfigs.k8s.wasmcloud.dev",
                f"namespace {other}",
                f"`kubectl -n {other} apply -f deploy/rbac/host-manager-watched.yaml`",
            )
            await eventually(lambda: all(named in reasons() for named in lacking), reasons, seconds=PATIENCE)
            account.apply(manifests(WATCHED, other))
            await eventually(lambda: not reasons(), reasons, seconds=PATIENCE)

            rules = next(manifest for manifest in manifests(WATCHED) if manifest["kind"] == "Role")["rules"]
            without = [rule for rule in rules if "configmaps" not in rule["resources"]]
            hosts.call("PATCH", ROLES, "trellis-host-manager", {"rules": without})
            hosts.change("group", leafNodeDomain="other")
            lacking = ("get configmaps", f"namespace {hosts.namespace}")
            await eventually(lambda: all(named in reasons() for named in lacking), reasons, seconds=PATIENCE)
            hosts.call("PATCH", ROLES, "trellis-host-manager", {"rules": rules})
            await eventually(lambda: not reasons(), reasons, seconds=PATIENCE)
            await hosts.settled("group")
    finally:
        hosts.api.call("DELETE", f"/api/v1/namespaces/{other}")


@pytest.mark.thorough
async def test_without_any_right_it_waits_and_begins_once_it_has_them(hosts: HostWorld, account: Granted) -> None:
    account.apply([manifest for manifest in manifests(CONFINED) if manifest["kind"] == "ServiceAccount"])
    async with hosts.service(**confined(hosts, account)) as service:
        lacking = ("get namespaces", f"namespace {SYSTEM}", f"`kubectl apply -f deploy/rbac/{CONFINED}`")
        await eventually(
            lambda: all(named in "\n".join(service.health.readiness().reasons) for named in lacking),
            service.health.readiness,
            seconds=PATIENCE,
        )
        account.apply([manifest for manifest in manifests(CONFINED) if manifest["kind"] != "ServiceAccount"])
        account.apply(manifests(WATCHED, hosts.namespace))
        hosts.create("group")
        await hosts.settled("group")
        await eventually(lambda: service.health.readiness().ok, service.health.readiness, seconds=PATIENCE)
        assert {ROLES.kind, ROLE_BINDINGS.kind} <= {manifest["kind"] for manifest in manifests(WATCHED)}


def test_the_rules_of_both_modes_are_the_same() -> None:
    """The permissions in a namespace do not depend on the number of namespaces."""
    everywhere = {item for item in given(manifests(CLUSTER)) if item[2] == "" and item[1] != "namespaces"}
    definitions = f"{DEFINITIONS.plural}.{DEFINITIONS.group}"
    assert given(manifests(WATCHED)) == everywhere - {("get", definitions, "")}, "a CRD is in no namespace"
