"""Inputs from Secrets and ConfigMaps, missing inputs, and data that no message may show."""

from __future__ import annotations

import base64
import json
from dataclasses import replace
from typing import Any

import pytest

from host_manager.domain.group import LATEST, Inputs
from host_manager.domain.inputs import Problem, keep_checksum, read_inputs, sources_of
from host_manager.domain.pods import PodView, Trouble, view_pod
from host_manager.domain.published_events import due, ready_event
from host_manager.domain.takeover import transferred_fields
from support.lattices.host_groups import custom_resource, desired
from support.suite.naming import lacking
from trellis import names

FULL = custom_resource("full")["spec"]


def encoded(text: str) -> str:
    return base64.b64encode(text.encode()).decode()


def secret(**data: str) -> dict[str, Any]:
    return {"data": {key: encoded(value) for key, value in data.items()}}


def docker(auths: Any) -> dict[str, Any]:
    return secret(**{".dockerconfigjson": json.dumps({"auths": auths})})


def read(registry: dict[str, Any] | None) -> tuple[Inputs, tuple[Problem, ...]]:
    group = desired(LATEST, registryCredentialsSecret="r").group
    return read_inputs(group, {("Secret", "r"): registry}, "")


def test_every_source_is_named_once() -> None:
    group = desired(LATEST, **FULL, leafTls={"secretName": "ca1"}).group
    assert sources_of(group) == [
        ("Secret", "cluster-secrets"),
        ("Secret", "wasmcloud-registry"),
        ("Secret", "ca1"),
        ("ConfigMap", "ca2"),
    ]


def test_all_that_is_missing_is_named() -> None:
    group = desired(LATEST, **FULL).group
    _, problems = read_inputs(group, dict.fromkeys(sources_of(group)), "")
    assert [problem.reason for problem in problems] == ["SecretMissing"] * 3 + ["ConfigMapMissing"]
    assert lacking(problems[3].message, "ConfigMap g/ca2") == []


def test_certificates_are_the_keys_that_end_so_by_name() -> None:
    group = desired(LATEST, certificates=FULL["certificates"]).group
    found = {
        ("Secret", "ca1"): secret(**{"b.crt": "", "a.crt": "", "other.txt": ""}),
        ("ConfigMap", "ca2"): {"data": {"corp.crt": "x"}},
    }
    assert read_inputs(group, found, "")[0].authorities == ((("a.crt", "b.crt"), ()), ((), ("corp.crt",)))


@pytest.mark.parametrize(
    "entry",
    [{"username": "u", "password": "p:w", "auth": "x"}, {"auth": encoded("u:p:w")}],
    ids=["user and password", "auth alone"],
)
def test_a_registry_is_read_in_either_form(entry: dict[str, str]) -> None:
    inputs, problems = read(docker({"r.example.com": entry}))
    [registry] = inputs.registries
    assert (registry.server, registry.user, registry.password) == ("r.example.com", "u", "p:w")
    assert problems == ()
    assert "p:w" not in repr(inputs)


def test_of_several_registries_the_first_is_used_and_the_others_are_named() -> None:
    entry = {"username": "u", "password": "secret"}
    inputs, [problem] = read(
        docker({"b.example.com": entry, "https://a.example.com/v1/": entry, "a.example.com:5000": entry})
    )
    assert inputs.registries[0].server == "a.example.com:5000"
    assert (problem.reason, problem.blocks) == ("RegistriesLeftOut", False)
    assert lacking(problem.message, "a.example.com:5000", "b.example.com and 1 more", "configServiceEnabled") == []


def test_an_invalid_registry_name_is_reported() -> None:
    """The host has a registry's credentials under the name that references have; an address is never asked for."""
    _, [problem] = read(docker({"https://index.docker.io/v1/": {"auth": encoded("u:p")}}))
    assert (problem.reason, problem.blocks) == ("RegistryNotNamed", False)
    assert "'https://index.docker.io/v1/'" in problem.message


@pytest.mark.parametrize(
    ("registry", "reason"),
    [
        (secret(other="x"), "SecretKeyMissing"),
        (docker({}), "RegistrySecretInvalid"),
        (docker([]), "RegistrySecretInvalid"),
        (docker({"r": {"auth": "%%%hunter2"}}), "RegistrySecretInvalid"),
        (docker({"r": "hunter2"}), "RegistrySecretInvalid"),
        (docker({"r": {"password": "hunter2"}}), "RegistrySecretInvalid"),
        (docker({"r": {"username": 1, "password": "hunter2"}}), "RegistrySecretInvalid"),
        (docker({"r": {"username": "u", "password": ["hunter2"]}}), "RegistrySecretInvalid"),
        (secret(**{".dockerconfigjson": "hunter2"}), "RegistrySecretInvalid"),
        ({"data": {".dockerconfigjson": "!!"}}, "RegistrySecretInvalid"),
    ],
)
def test_an_unreadable_registry_is_reported_without_its_contents(registry: dict[str, Any], reason: str) -> None:
    inputs, [problem] = read(registry)
    assert inputs.registries == ()
    assert problem.reason == reason
    assert "hunter2" not in problem.message
    assert not any(value and value in problem.message for value in registry["data"].values())


def test_an_empty_name_is_reported() -> None:
    _, [problem] = read_inputs(desired(LATEST, secretName="").group, {}, "")
    assert lacking(problem.message, "spec.secretName") == []


@pytest.mark.parametrize(
    ("data", "credentials", "seed", "reported"),
    [
        ({"nats.creds": encoded("x")}, True, False, False),
        ({"nats.creds": encoded("x"), "WASMCLOUD_CLUSTER_SEED": "x"}, True, True, False),
        ({"WASMCLOUD_CLUSTER_SEED": "x"}, False, True, False),
        ({"other": encoded("x")}, False, False, True),
        ({}, False, False, True),
        ({"nats.creds": base64.b64encode(b"\xff\xfe").decode()}, False, False, True),
    ],
)
def test_the_secret_for_nats(data: dict[str, str], credentials: bool, seed: bool, reported: bool) -> None:
    group = desired(LATEST, secretName="s").group
    inputs, problems = read_inputs(group, {("Secret", "s"): {"data": data}}, "")
    assert (inputs.credentials, inputs.seed, bool(problems)) == (credentials, seed, reported)
    assert not any(problem.blocks for problem in problems)


def test_the_checksum_changes_with_each_content_and_shows_none() -> None:
    group = desired(LATEST, secretName="s").group
    sums = {
        read_inputs(group, {("Secret", "s"): secret(**{"nats.creds": value})}, conf)[0].checksum
        for value in ("a", "b")
        for conf in ("", "x")
    }
    assert len(sums) == 4
    assert all(len(item) == 10 for item in sums)


def test_entries_of_both_managers_become_one() -> None:
    fields = ({"f:spec": {"f:a": {}}}, {"f:spec": {"f:b": {"k:x": {}}}})
    managers = (names.WASMCLOUD_OPERATOR, names.FIELD_MANAGER_HOST_MANAGER)
    entries = [
        {"manager": manager, "operation": "Apply", "fieldsType": "FieldsV1", "fieldsV1": owned}
        for manager, owned in zip(managers, fields, strict=True)
    ]
    kubelet = {"manager": "kubelet", "operation": "Update", "fieldsV1": {}}
    found = transferred_fields({"metadata": {"managedFields": [*entries, kubelet]}})
    assert found == [
        {**entries[1], "fieldsV1": {"f:spec": {"f:a": {}, "f:b": {"k:x": {}}}}},
        kubelet,
    ]
    assert transferred_fields({"metadata": {"managedFields": [entries[1], kubelet]}}) is None


def raw_pod(**status: Any) -> dict[str, Any]:
    labels = {names.LABEL_INSTANCE: "group", "host-label.k8s.wasmcloud.dev/zone": "a"}
    env = [{"name": "WASMCLOUD_LATTICE", "value": "default"}]
    return {
        "metadata": {"name": "p", "namespace": "g", "uid": "u", "resourceVersion": "3", "labels": labels},
        "spec": {
            "nodeName": "n",
            "containers": [{"name": "nats-leaf", "ports": [{"containerPort": 4222}]}, {"name": "h", "env": env}],
        },
        "status": status,
    }


READY = {"conditions": [{"type": "Ready", "status": "True"}], "podIPs": [{"ip": "10.0.0.1"}, {"ip": "fd00::1"}]}


def test_a_ready_pod_is_reported_with_its_addresses() -> None:
    event = ready_event(view_pod(raw_pod(**READY)))
    assert event is not None
    assert (event.addresses, event.ports, event.lattice) == (["10.0.0.1", "fd00::1"], [4222], "default")
    assert (event.group, event.node, event.labels) == ("group", "n", {"zone": "a"})


def events(pod: PodView | None, before: PodView | None) -> list[str]:
    return [event.event_name for event in due(pod, ready_event(before) if before else None)]


def test_due_work_follows_from_the_status_and_the_observed_state() -> None:
    ready, starting = view_pod(raw_pod(**READY)), view_pod(raw_pod())
    other = view_pod(raw_pod(**READY) | {"metadata": raw_pod()["metadata"] | {"uid": "u2"}})
    moved = view_pod(raw_pod(**(READY | {"podIPs": [{"ip": "10.0.0.2"}]})))
    assert events(ready, None) == ["ready"]
    assert events(ready, ready) == []
    assert events(moved, ready) == ["ready"]
    assert events(starting, ready) == ["gone"]
    assert events(None, ready) == ["gone"]
    assert events(other, ready) == ["gone", "ready"]
    assert events(None, None) == []


def test_a_pod_that_is_being_deleted_is_not_ready() -> None:
    pod = raw_pod(**READY)
    pod["metadata"]["deletionTimestamp"] = "2026-01-01T00:00:00Z"
    assert not view_pod(pod).ready


@pytest.mark.parametrize(
    ("waiting", "reason"),
    [("ContainerCreating", None), ("PodInitializing", None), ("ImagePullBackOff", "ImagePullBackOff")],
)
def test_only_a_lasting_problem_is_reported(waiting: str, reason: str | None) -> None:
    status = {"containerStatuses": [{"name": "h", "state": {"waiting": {"reason": waiting}}}]}
    trouble = view_pod(raw_pod(**status)).trouble
    assert (trouble.reason if trouble else None) == reason


@pytest.mark.parametrize(
    ("ended", "message"),
    [
        ({}, "back-off"),
        ({"exitCode": 1}, "back-off; it ended with status 1"),
        ({"exitCode": 137, "reason": "OOMKilled"}, "back-off; it ended with status 137 (OOMKilled)"),
        ({"exitCode": 2, "message": "no lattice\n"}, "back-off; it ended with status 2: no lattice"),
    ],
)
def test_the_termination_of_a_host_is_reported_too(ended: dict[str, Any], message: str) -> None:
    state = {"waiting": {"reason": "CrashLoopBackOff", "message": "back-off"}}
    status = {"containerStatuses": [{"name": "wasmcloud-host", "state": state, "lastState": {"terminated": ended}}]}
    assert view_pod(raw_pod(**status)).trouble == Trouble("CrashLoopBackOff", message, "wasmcloud-host")


UID = "uid-of-the-group"
SALTED = Inputs(checksum="by-name", former_checksum="by-uid")


def workload(checksum: str | None, owner: str | None) -> dict[str, Any]:
    annotations = {} if checksum is None else {names.ANNOTATION_CHECKSUM: checksum}
    owners = [] if owner is None else [{"uid": owner}]
    return {"metadata": {"ownerReferences": owners}, "spec": {"template": {"metadata": {"annotations": annotations}}}}


@pytest.mark.parametrize(
    ("found", "checksum"),
    [
        (None, "by-name"),
        (workload("by-name", UID), "by-name"),
        (workload("by-name", None), "by-name"),
        (workload("by-uid", UID), "by-uid"),
        (workload("of-other-contents", UID), "by-name"),
        (workload(None, UID), "by-uid"),
        (workload(None, None), "by-name"),
    ],
    ids=["new", "its own", "kept without a group", "from before", "changed", "revision 1", "revision 1, kept"],
)
def test_pods_keep_the_checksum_that_they_have_while_the_contents_are_the_same(
    found: dict[str, Any] | None, checksum: str
) -> None:
    assert keep_checksum(SALTED, found, UID).checksum == checksum


def test_the_checksum_of_an_equal_group_that_is_created_again_is_the_same() -> None:
    group = desired(LATEST, secretName="s").group
    again = replace(group, uid="another")
    sources = {("Secret", "s"): secret(**{"nats.creds": "a"})}
    first, second = (read_inputs(item, sources, "")[0] for item in (group, again))
    assert first.checksum == second.checksum
    assert first.former_checksum != second.former_checksum
