"""The plan for the objects of wasmcloud-operator: its API, host groups, Services, and the operator itself."""

from __future__ import annotations

import base64
import json
from typing import Any

import pytest

from support.cluster.definitions import foreign_applications, kubevela_applications
from support.lattices.host_groups import CASES, FORMER_NAME, TODAYS_NAME, children, custom_resource
from support.nodes.leftovers import Manifest, leftover
from support.suite.naming import lacking
from trellis import names
from trellis.crds.kinds import APPLICATIONS, make_definition
from trellis.kube.resources import API_SERVICES, HOST_CONFIGS, SERVICES
from trellis_cli.migrate.model.plan import Doing, Step
from trellis_cli.migrate.model.wasmcloud import Former, FormerGroup, plan_registration, plan_services, still_served
from trellis_cli.migrate.model.wasmcloud_groups import plan_groups
from trellis_cli.migrate.model.wasmcloud_kind import plan_kind
from trellis_cli.migrate.model.wasmcloud_rest import plan_rest, warnings_of
from trellis_cli.migrate.model.writes import DeleteObject, PatchObject

RELEASE = {"meta.helm.sh/release-name": "platform", "meta.helm.sh/release-namespace": "ops"}
DEFINITION: Manifest = {
    "kind": "CustomResourceDefinition",
    "metadata": {"name": "wasmcloudhostconfigs.k8s.wasmcloud.dev"},
}
FULL_SECRETS: dict[tuple[str, str], dict[str, str]] = {
    ("Secret", "wasmcloud-registry"): {
        ".dockerconfigjson": json.dumps(
            {"auths": {"registry.example.com": {"username": "secret-user", "password": "secret-word"}}}
        )
    },
    ("Secret", "cluster-secrets"): {"nats.creds": "creds"},
    ("Secret", "ca1"): {"ca.crt": "x"},
}


def of_operator(what: str, app: str = "shop", **metadata: Any) -> Manifest:
    found = leftover("wasmcloud", what, namespace="ns", app=app)
    found["metadata"] |= metadata
    return found


def deleting(manifest: Manifest) -> Manifest:
    manifest["metadata"]["deletionTimestamp"] = "2026-01-31T08:00:00Z"
    return manifest


def group(case: str = "minimal", operator: str = TODAYS_NAME, **metadata: Any) -> FormerGroup:
    """Return a recorded group as the operator leaves it."""
    uid = children(case)["ConfigMap"]["metadata"]["ownerReferences"][0]["uid"]
    manifest = custom_resource(case) | {"kind": HOST_CONFIGS.kind}
    manifest["metadata"] |= {"uid": uid, "resourceVersion": "7", "finalizers": [names.WASMCLOUD_OPERATOR]} | metadata
    sources: dict[tuple[str, str], Manifest | None] = {}
    if case == "full":
        for source, data in FULL_SECRETS.items():
            encoded = {key: base64.b64encode(value.encode()).decode() for key, value in data.items()}
            sources[source] = {"metadata": {"name": source[1]}, "data": encoded}
        sources["ConfigMap", "ca2"] = {"metadata": {"name": "ca2"}, "data": {"corp.crt": "x"}}
    return FormerGroup(manifest, {(kind, case): child for kind, child in children(case, operator).items()}, sources)


def by_object(steps: list[Step]) -> dict[str, Doing]:
    return {step.object: step.doing for step in steps}


# --- the API ---


@pytest.mark.parametrize("service", ["wadm-operator", "wasmcloud-operator"])
def test_the_api_of_the_operator_is_deleted_under_both_its_names(service: str) -> None:
    found = of_operator("registration")
    found["spec"]["service"]["name"] = service
    [step] = plan_registration(Former(registration=found))
    assert step.write == DeleteObject(API_SERVICES, None, "v1beta1.core.oam.dev", "uid-registration", "12")


def test_the_api_server_s_own_registration_of_a_definition_is_no_matter() -> None:
    found = of_operator("registration")
    found["spec"]["service"] = None
    assert plan_registration(Former(registration=found)) == []
    assert plan_registration(Former()) == []


def test_an_api_of_another_owner_is_left_alone() -> None:
    found = of_operator("registration")
    found["spec"]["service"]["name"] = "kubevela-apiserver"
    [step] = plan_registration(Former(registration=found))
    assert (step.doing, step.write) == (Doing.LEAVE, None)


@pytest.mark.parametrize(
    ("service", "available", "running", "reported"),
    [
        pytest.param("wadm-operator", "True", False, True, id="something answers, and no Deployment is known"),
        pytest.param("wadm-operator", "False", False, False, id="nothing answers"),
        pytest.param("wadm-operator", "True", True, False, id="its Deployment says more"),
        pytest.param("other", "True", False, False, id="it is somebody else's"),
    ],
)
def test_an_api_that_is_served_shows_that_an_operator_runs(
    service: str, available: str, running: bool, reported: bool
) -> None:
    found = of_operator("registration") | {"status": {"conditions": [{"type": "Available", "status": available}]}}
    found["spec"]["service"]["name"] = service
    deployments = (of_operator("deployment"),) if running else ()
    assert bool(still_served(Former(registration=found, deployments=deployments))) is reported


# --- Services ---


def test_a_service_with_fixed_addresses_is_kept_and_stale_ones_are_named() -> None:
    pod = {"status": {"phase": "Running", "podIPs": [{"ip": "10.1.0.1"}]}}
    former = Former(services=(of_operator("service"),), slices=(of_operator("slice"),), pods=(pod,))
    [step] = plan_services(former)
    assert (step.object, step.doing, step.write) == ("Service ns/shop", Doing.KEEP, None)
    assert lacking(step.reason, "2", "10.1.0.2") == []
    assert "10.1.0.1" not in step.reason


def test_a_slice_of_another_namespace_is_not_its() -> None:
    [step] = plan_services(Former(services=(of_operator("service"),), slices=(of_operator("slice", namespace="o"),)))
    assert "no address" in step.reason


def test_a_service_that_selects_pods_goes_on() -> None:
    found = of_operator("service")
    found["spec"]["selector"] = {"app.kubernetes.io/name": "wasmcloud", "host-label.k8s.wasmcloud.dev/zone": "a"}
    [step] = plan_services(Former(services=(found,)))
    assert (step.doing, step.write) == (Doing.KEEP, None)
    assert "fixed" not in step.reason


def test_a_service_in_deletion_loses_the_operator_s_finalizer_and_no_other() -> None:
    finalizers = ["example.com/other", names.WASMCLOUD_OPERATOR_SERVICE]
    [step] = plan_services(Former(services=(deleting(of_operator("service", finalizers=finalizers)),)))
    assert step.doing is Doing.FINALIZER_REMOVED
    assert isinstance(step.write, PatchObject)
    assert (step.write.res, step.write.namespace, step.write.name) == (SERVICES, "ns", "shop")
    assert [(op["op"], op["path"], op["value"]) for op in step.write.ops] == [
        ("test", "/metadata/uid", "uid-shop"),
        ("test", "/metadata/resourceVersion", "13"),
        ("replace", "/metadata/finalizers", ["example.com/other"]),
    ]


@pytest.mark.parametrize("labels", [{}, {"app.kubernetes.io/managed-by": "Helm"}])
def test_a_service_of_another_owner_is_ignored(labels: dict[str, str]) -> None:
    found = deleting(of_operator("service", labels=labels, finalizers=["example.com/other"]))
    assert plan_services(Former(services=(found,))) == []


# --- groups ---


@pytest.mark.parametrize("operator", [TODAYS_NAME, FORMER_NAME])
@pytest.mark.parametrize("case", ["minimal", "daemonset"])
def test_a_recorded_group_is_adopted_without_a_roll(case: str, operator: str) -> None:
    [step] = plan_groups(Former(groups=(group(case, operator),)))
    assert (step.doing, step.write) == (Doing.KEEP, None)
    for kind in children(case):
        assert kind in step.reason


def test_leaked_credentials_cost_one_restart_and_are_not_printed() -> None:
    found = group("full")
    steps = plan_groups(Former(groups=(found,)))
    assert by_object(steps) == {"WasmCloudHostConfig g/full": Doing.KEEP, "Deployment g/full": Doing.KEEP}
    assert "rolled once" in steps[0].reason
    assert "WASMCLOUD_OCI_REGISTRY_PASSWORD" in steps[1].reason
    shown = " ".join(text for step in steps for text in step.document().values())
    for secret in ("u1", "p1", "secret-user", "secret-word"):
        assert secret not in shown.split()
    assert ".dockerconfigjson" not in repr(found)  # nothing of a Secret is shown, as it is or encoded


def test_a_group_that_deviates_from_its_spec_is_restarted() -> None:
    found = group()
    host = found.children["Deployment", "minimal"]["spec"]["template"]["spec"]["containers"][1]
    host["env"].append({"name": "WASMCLOUD_CLUSTER_ISSUERS", "value": ""})  # as 0.2 wrote it
    steps = plan_groups(Former(groups=(found,)))
    assert [step.object for step in steps] == ["WasmCloudHostConfig g/minimal", "Deployment g/minimal"]


def test_a_missing_child_is_made() -> None:
    found = group()
    left = {key: child for key, child in found.children.items() if key[0] != "Role"}
    first, second = plan_groups(Former(groups=(FormerGroup(found.manifest, left),)))
    assert (first.object, second.object) == ("WasmCloudHostConfig g/minimal", "Role g/minimal")
    assert lacking(second.reason, "host_manager") == []


def test_a_missing_secret_or_a_foreign_child_makes_the_group_wait() -> None:
    full = group("full")
    sources = {**full.sources, ("Secret", "cluster-secrets"): None}
    foreign = group()
    foreign.children["Role", "minimal"]["metadata"]["ownerReferences"][0]["uid"] = "uid-other"
    steps = plan_groups(Former(groups=(FormerGroup(full.manifest, full.children, sources), foreign)))
    by_object = {step.object: step for step in steps}
    assert by_object["WasmCloudHostConfig g/full"].doing is Doing.LEAVE
    assert lacking(by_object["WasmCloudHostConfig g/full"].reason, "Secret g/cluster-secrets") == []
    assert by_object["WasmCloudHostConfig g/minimal"].doing is Doing.LEAVE
    assert by_object["Role g/minimal"].doing is Doing.LEAVE


def test_a_spec_that_cannot_be_read_is_reported_and_left() -> None:
    found = group()
    del found.manifest["spec"]["lattice"]
    [step] = plan_groups(Former(groups=(found,)))
    assert step.doing is Doing.LEAVE
    assert "spec.lattice" in step.reason


def test_a_group_of_host_manager_is_no_matter() -> None:
    assert plan_groups(Former(groups=(group(finalizers=[names.FINALIZER_HOSTS]),))) == []


def test_a_group_in_deletion_loses_its_finalizer() -> None:
    found = group(finalizers=[names.WASMCLOUD_OPERATOR, "example.com/other"])
    deleting(found.manifest)
    [step] = plan_groups(Former(groups=(found,)))
    assert step.doing is Doing.FINALIZER_REMOVED
    assert isinstance(step.write, PatchObject)
    assert step.write.ops[-1]["value"] == ["example.com/other"]


def test_a_group_in_deletion_with_a_finalizer_of_another_owner_is_ignored() -> None:
    found = group(finalizers=["foregroundDeletion"])
    deleting(found.manifest)
    assert plan_groups(Former(groups=(found,))) == []


# --- the operator itself ---


def parts(**metadata: Any) -> Former:
    deployment = of_operator("deployment", **metadata)
    deployment["spec"]["replicas"] = 0
    return Former(
        definition=DEFINITION,
        groups=(group(),),
        deployments=(deployment,),
        services=(of_operator("own_service", **metadata), of_operator("service")),
        objects=tuple(of_operator(what, **metadata) for what in ("account", "role", "binding")),
    )


def test_parts_of_the_operator_are_named_with_the_command_and_not_removed() -> None:
    steps = plan_rest(parts())
    assert not [step for step in steps if step.write is not None]
    reason = {step.object: step.reason for step in steps}
    assert reason.keys() == {
        "Deployment ns/wadm-operator",
        "Service ns/wadm-operator",
        "ServiceAccount ns/wadm-operator",
        "ClusterRole wadm-operator",
        "ClusterRoleBinding wadm-operator-delegator",
        "CustomResourceDefinition wasmcloudhostconfigs.k8s.wasmcloud.dev",
    }
    assert reason["Service ns/wadm-operator"].endswith("kubectl -n ns delete service wadm-operator")
    assert reason["ClusterRole wadm-operator"].endswith("kubectl delete clusterrole wadm-operator")
    assert "kubectl" not in reason["CustomResourceDefinition wasmcloudhostconfigs.k8s.wasmcloud.dev"]


def test_a_release_is_uninstalled_by_helm() -> None:
    found = {step.object: step.reason for step in plan_rest(parts(annotations=RELEASE))}
    assert "helm -n ops uninstall platform" in found["ServiceAccount ns/wadm-operator"]


def test_a_release_with_groups_in_it_is_warned_of() -> None:
    former = parts(annotations=RELEASE)
    former.groups[0].manifest["metadata"]["annotations"] = RELEASE
    assert not [step for step in plan_rest(former) if "uninstall" in step.reason]
    warned = warnings_of(former)
    assert lacking(warned[0], "NOT", "CustomResourceDefinition") == []
    assert lacking(warned[1], "NOT", "ops/platform") == []


def test_an_operator_that_runs_is_no_leftover_and_needs_its_parts() -> None:
    [step] = plan_rest(Former(deployments=(of_operator("deployment"),), services=(of_operator("own_service"),)))
    assert step.reason.endswith(": kubectl -n ns delete service wadm-operator")


@pytest.mark.parametrize("case", CASES)
def test_objects_of_groups_are_no_part_of_the_operator(case: str) -> None:
    found = {child["kind"]: child for child in children(case).values()}
    objects = (found["ServiceAccount"],)
    assert plan_rest(Former(services=(found["Service"], of_operator("service")), objects=objects)) == []


def test_the_crd_is_created_before_the_operators_api_is_removed_and_no_crd_is_overwritten() -> None:
    found = of_operator("registration")
    [step] = plan_kind(Former(registration=found))
    assert (step.doing, step.object) == (Doing.DEFINE, "CustomResourceDefinition applications.core.oam.dev")
    assert plan_kind(Former()) == [], "nobody served it"
    assert plan_kind(Former(registration=found, applications=make_definition(APPLICATIONS))) == []
    for other in (kubevela_applications(), foreign_applications()):
        [step] = plan_kind(Former(registration=found, applications=other))
        assert (step.doing, step.write) == (Doing.LEAVE, None)
        assert step.reason
