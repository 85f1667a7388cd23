"""Our own pod template: what it adds, and that what the user says wins."""

from __future__ import annotations

from typing import Any

import pytest

from host_manager.domain.group import ADOPTED, LATEST, Inputs, Registry
from host_manager.domain.merging import TemplateError
from host_manager.domain.resources import make_budget, make_nats_conf, make_registry_secret, make_workload
from support.lattices.host_groups import FULL_INPUTS, custom_resource, desired
from support.suite.golden import Golden


def pod(revision: int, inputs: Inputs | None = None, **spec: Any) -> dict[str, Any]:
    found: dict[str, Any] = make_workload(desired(revision, inputs, **spec))["spec"]["template"]["spec"]
    return found


def variables(pod_spec: dict[str, Any]) -> dict[str, dict[str, Any]]:
    return {variable["name"]: variable for variable in pod_spec["containers"][1]["env"]}


def test_the_whole_of_it_for_a_minimal_group(golden: Golden) -> None:
    golden.check("host_manager/latest-minimal", make_workload(desired(LATEST, Inputs(checksum="c0ffee"))))


def test_the_whole_of_it_for_a_group_with_every_field(golden: Golden) -> None:
    spec = custom_resource("full")["spec"] | {"leafTls": {"secretName": "leaf"}, "drainSeconds": 30}
    inputs = Inputs(
        credentials=True,
        authorities=FULL_INPUTS.authorities,
        registries=FULL_INPUTS.registries,
        tls_keys=("ca.crt", "tls.crt", "tls.key"),
        checksum="c0ffee",
    )
    made = desired(LATEST, inputs, **spec)
    golden.check("host_manager/latest-full", make_workload(made))
    golden.check("host_manager/latest-full-nats", {"nats.conf": make_nats_conf(made).splitlines()})
    golden.check("host_manager/registry-secret", make_registry_secret(made))
    golden.check("host_manager/budget", make_budget(made.group))


def test_the_leaf_outlives_the_host_and_the_kubelet_waits_for_both() -> None:
    found = pod(LATEST, drainSeconds=60)
    sleep = int(found["containers"][0]["lifecycle"]["preStop"]["exec"]["command"][1])
    assert 60 < sleep < found["terminationGracePeriodSeconds"]


def test_the_pod_settings_of_the_user_win() -> None:
    additions = {"terminationGracePeriodSeconds": 5, "topologySpreadConstraints": []}
    found = pod(LATEST, schedulingOptions={"podTemplateAdditions": additions})
    assert found["terminationGracePeriodSeconds"] == 5
    assert found["topologySpreadConstraints"] == []


def test_containers_of_the_user_follow_the_host_container_only_in_the_template_of_trellis() -> None:
    options = {"podTemplateAdditions": {"containers": [{"name": "mine", "image": "x", "env": None}]}}
    assert [container["name"] for container in pod(ADOPTED, schedulingOptions=options)["containers"]] == [
        "nats-leaf",
        "wasmcloud-host",
    ]
    assert pod(LATEST, schedulingOptions=options)["containers"][2] == {"name": "mine", "image": "x"}


def test_a_container_of_the_user_does_not_take_the_name_of_the_host_container() -> None:
    """The other operator leaves all of them out; with a name twice the API server takes no pod at all."""
    containers = [{"name": "nats-leaf", "image": "x"}, {"name": {}}, {"name": "wasmcloud-host"}]
    found = pod(LATEST, schedulingOptions={"podTemplateAdditions": {"containers": containers}})
    assert [container["name"] for container in found["containers"]] == ["nats-leaf", "wasmcloud-host", {}]
    assert found["containers"][0]["image"] == "nats:2.10-alpine"


@pytest.mark.parametrize("revision", [ADOPTED, LATEST])
def test_the_place_of_the_others_example_that_no_pod_has_is_left_out(revision: int) -> None:
    additions = {"spec": {"nodeSelector": {"kubernetes.io/os": "linux"}}, "hostNetwork": True}
    found = pod(revision, schedulingOptions={"podTemplateAdditions": additions})
    assert found["hostNetwork"]
    assert not {"spec", "nodeSelector"} & found.keys()


def test_a_variable_of_the_user_replaces_one_of_the_template_of_trellis_only() -> None:
    """Merged it would have both a value and a reference, which no API server takes."""
    theirs = [{"name": name, "value": "x"} for name in ("WASMCLOUD_LABEL_kubernetes_pod", "WASMCLOUD_CLUSTER_SEED")]
    options = {"containerTemplateAdditions": {"wasmcloud": {"env": theirs}}}
    found = variables(pod(LATEST, Inputs(seed=True), secretName="s", issuers=["C"], schedulingOptions=options))
    assert [found[item["name"]] for item in theirs] == theirs
    assert found["WASMCLOUD_CLUSTER_ISSUERS"]["value"] == "C"


def test_mounts_of_the_user_stay_in_a_group_without_credentials() -> None:
    theirs = [{"name": "nats-creds", "mountPath": "/mine"}, {"mountPath": "/nameless"}]
    options = {"containerTemplateAdditions": {"nats": {"volumeMounts": theirs}}}
    [leaf, _] = pod(LATEST, schedulingOptions=options)["containers"]
    assert leaf["volumeMounts"][:2] == theirs


def test_a_label_of_the_user_does_not_replace_one_of_trellis() -> None:
    for revision in (ADOPTED, LATEST):
        found = variables(pod(revision, hostLabels={"kubernetes": "no", "kubernetes_pod": "x"}))
        assert found["WASMCLOUD_LABEL_kubernetes"]["value"] == "no"
        assert found["WASMCLOUD_LABEL_kubernetes_pod"]["value"] == "x"


def test_the_former_field_of_daemonset_applies_to_the_template_of_trellis_only() -> None:
    assert make_workload(desired(ADOPTED, daemonset=True))["kind"] == "Deployment"
    assert make_workload(desired(LATEST, daemonset=True))["kind"] == "DaemonSet"


def test_hosts_from_before_1_0_have_their_seed_by_reference() -> None:
    found = variables(pod(LATEST, Inputs(seed=True), secretName="seed", issuers=["CA", "CB"]))
    assert found["WASMCLOUD_CLUSTER_SEED"]["valueFrom"]["secretKeyRef"]["name"] == "seed"
    assert found["WASMCLOUD_CLUSTER_ISSUERS"]["value"] == "CA,CB"
    assert "WASMCLOUD_CLUSTER_SEED" not in variables(pod(ADOPTED, Inputs(seed=True), secretName="seed"))


def test_a_secret_without_credentials_is_not_mounted_as_a_file_that_is_none() -> None:
    [leaf, _] = pod(LATEST, Inputs(), secretName="seed")["containers"]
    assert [mount["name"] for mount in leaf["volumeMounts"]] == ["nats-config"]


def test_a_host_gets_the_first_of_several_registries() -> None:
    registries = (Registry("a.example.com", "ua", "pa"), Registry("b.example.com", "ub", "pb"))
    found = variables(pod(LATEST, Inputs(registries=registries), registryCredentialsSecret="r"))
    assert found["WASMCLOUD_OCI_REGISTRY"]["value"] == "a.example.com"


@pytest.mark.parametrize(
    ("options", "place"),
    [
        ({"containerTemplateAdditions": {"nats": {"ports": "x"}}}, "containerTemplateAdditions.nats.ports"),
        ({"containerTemplateAdditions": {"wasmcloud": {"env": ["x"]}}}, "containerTemplateAdditions.wasmcloud.env"),
        ({"containerTemplateAdditions": {"nats": {"lifecycle": 1}}}, "containerTemplateAdditions.nats.lifecycle"),
        ({"podTemplateAdditions": {"volumes": {}}}, "podTemplateAdditions.volumes"),
        ({"podTemplateAdditions": {"containers": "x"}}, "podTemplateAdditions.containers"),
    ],
)
def test_an_option_that_no_pod_can_have_is_named(options: dict[str, Any], place: str) -> None:
    with pytest.raises(TemplateError, match=place):
        pod(LATEST, schedulingOptions=options)


@pytest.mark.parametrize(
    ("field", "value", "line"),
    [
        ("natsAddress", 'nats://a"b', r'      url: "nats://a\"b:7422"'),
        ("natsAddress", "nats://user:a=b&c@n", '      url: "nats://user:a=b&c@n:7422"'),
        ("leafNodeDomain", "a } b", '  domain: "a } b"'),
        ("leafNodeDomain", "12", '  domain: "12"'),
        ("leafNodeDomain", "On", '  domain: "On"'),
        ("leafNodeDomain", "onshore", "  domain: onshore"),
        ("leafNodeDomain", "edge-1_a", "  domain: edge-1_a"),
    ],
)
def test_text_stays_text_in_the_configuration_of_the_leaf(field: str, value: str, line: str) -> None:
    spec: dict[str, Any] = {field: value}
    assert line in make_nats_conf(desired(ADOPTED, **spec)).splitlines()


@pytest.mark.parametrize(
    ("replicas", "unavailable", "surge", "drained"),
    [(0, 1, 1, 1), (1, 0, 1, 1), (2, 1, 1, 1), (19, 1, 1, 1), (45, 4, 4, 4)],
)
def test_a_roll_takes_no_more_hosts_than_a_drain_may(replicas: int, unavailable: int, surge: int, drained: int) -> None:
    """Kubernetes asks no budget when it rolls; a single host is replaced before it goes."""
    made = desired(LATEST, hostReplicas=replicas)
    rolling = {"maxUnavailable": unavailable, "maxSurge": surge}
    assert make_workload(made)["spec"]["strategy"] == {"type": "RollingUpdate", "rollingUpdate": rolling}
    assert make_budget(made.group)["spec"]["maxUnavailable"] == drained


def test_a_roll_of_an_adopted_group_is_bounded_as_it_was() -> None:
    assert "strategy" not in make_workload(desired(ADOPTED, hostReplicas=45))["spec"]
