"""The chart around an installation: values of KWasm, hooks of `helm test` and `helm uninstall`, NOTES."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from support.chart.rendered import ChartRefusedError, Manifest, hooks, notes, only, rendered
from support.cluster.grants import given
from support.suite.naming import lacking
from trellis import names
from trellis_cli.command_line import app
from trellis_cli.uninstall.model import GUARDS

OWN_SERVER = {"enabled": False, "url": "nats://nats.example.com:4222"}
EVENTS = ("pre-install", "pre-delete", "test")
CONFINED = {
    "services": only("hostManager") | {"hostManager": {"enabled": True, "watchNamespaces": ["shop", "lab"]}},
    "crds": {"install": False},
}


def environment(component: str, **values: Any) -> dict[str, str]:
    [deployment] = [
        item
        for item in rendered(**values)
        if item["kind"] == "Deployment" and item["metadata"]["labels"]["app.kubernetes.io/component"] == component
    ]
    [container] = deployment["spec"]["template"]["spec"]["containers"]
    return {item["name"]: item["value"] for item in container["env"] if "value" in item}


def pod_of(found: list[Manifest]) -> Manifest:
    """The pod that a hook runs, of any kind of owner."""
    [item] = [item for item in found if item["kind"] in {"Job", "Pod"}]
    return dict(item["spec"]["template"]["spec"] if item["kind"] == "Job" else item["spec"])


def command_of(found: list[Manifest]) -> list[str]:
    [container] = pod_of(found)["containers"]
    return list(container["command"])


# --- KWasm's values ---


@pytest.mark.parametrize("value", [True, "true"])
def test_kwasms_values_have_the_meaning_of_the_values_of_trellis(value: object) -> None:
    values = {"kwasmOperator": {"autoProvision": value, "installerImage": "example.com/installer:1"}}
    ours = {
        "installers": {"autoProvision": True},
        "services": {"provisioner": {"settings": {"TRELLIS_INSTALLER_IMAGE": "example.com/installer:1"}}},
    }
    for component in ("node-watcher", "provisioner"):
        assert environment(component, **values) == environment(component, **ours)


def test_kwasms_defaults_change_nothing() -> None:
    assert environment("node-watcher", kwasmOperator={"autoProvision": "false"}) == environment("node-watcher")


def test_an_installer_image_set_twice_to_the_same_value_is_no_conflict() -> None:
    settings = {"services": {"provisioner": {"settings": {"TRELLIS_INSTALLER_IMAGE": "x:1"}}}}
    found = environment("provisioner", kwasmOperator={"installerImage": "x:1"}, **settings)
    assert found["TRELLIS_INSTALLER_IMAGE"] == "x:1"


@pytest.mark.parametrize(
    ("values", "expected_text"),
    [
        (
            {"kwasmOperator": {"autoProvision": "false"}, "installers": {"autoProvision": True}},
            "kwasmOperator.autoProvision: is false, and installers.autoProvision is true",
        ),
        (
            {
                "kwasmOperator": {"installerImage": "x:1"},
                "services": {"provisioner": {"settings": {"TRELLIS_INSTALLER_IMAGE": "x:2"}}},
            },
            "kwasmOperator.installerImage: is x:1, and services.provisioner.settings.TRELLIS_INSTALLER_IMAGE is x:2",
        ),
        ({"kwasmOperator": {"autoProvision": "yes"}}, "kwasmOperator.autoProvision"),
        ({"kwasmOperator": {"image": "x"}}, "image is not allowed"),
        ({"replicaCount": 1}, "set services.nodeWatcher.replicas and"),
        ({"affinity": {"nodeAffinity": {}}}, "set pods.affinity"),
        ({"podAnnotations": {"a": "b"}}, "set pods.podAnnotations"),
        ({"imagePullSecrets": [{"name": "x"}]}, "set image.pullSecrets"),
        (
            {"image": {"repository": "ghcr.io/kwasm/kwasm-operator"}},
            "image.repository: ghcr.io/kwasm/kwasm-operator is",
        ),
        ({"anything": 1}, "anything is not allowed"),
    ],
)
def test_a_value_of_kwasm_without_effect_is_refused_with_its_replacement(
    values: dict[str, Any], expected_text: str
) -> None:
    with pytest.raises(ChartRefusedError, match=re.escape(expected_text)):
        rendered(**values)


def test_empty_values_of_kwasm_are_accepted() -> None:
    empty = {"nameOverride": "", "resources": {}, "tolerations": [], "affinity": {}}
    assert rendered(**empty, nats=OWN_SERVER) == rendered(nats=OWN_SERVER)


# --- hooks ---


CASES: list[tuple[str, dict[str, Any]]] = [
    (event, values)
    for event in EVENTS
    for values in ({}, {"mode": "bundle"}, {"nats": OWN_SERVER}, CONFINED)
    if (event, values) != ("pre-install", {"nats": OWN_SERVER})
]
"""There are no keys to make for a server of one's own."""


@pytest.mark.parametrize(("event", "values"), CASES)
def test_a_hook_has_a_pod_without_privileges_and_leaves_nothing(event: str, values: dict[str, Any]) -> None:
    found = hooks(event, **values)
    for item in found:
        assert item["metadata"]["annotations"]["helm.sh/hook-delete-policy"] == "before-hook-creation,hook-succeeded"
    pod = pod_of(found)
    [container] = pod["containers"]
    assert pod["securityContext"]["runAsNonRoot"] is True
    assert container["securityContext"] == {
        "allowPrivilegeEscalation": False,
        "readOnlyRootFilesystem": True,
        "capabilities": {"drop": ["ALL"]},
    }
    accounts = [item["metadata"]["name"] for item in found if item["kind"] == "ServiceAccount"]
    assert accounts == [pod["serviceAccountName"]]
    for item in found:
        if item["kind"].endswith("Binding"):
            assert [subject["name"] for subject in item["subjects"]] == accounts


@pytest.mark.parametrize(("event", "values"), CASES)
def test_a_hook_gives_a_command_that_there_is_with_options_that_it_has(event: str, values: dict[str, Any]) -> None:
    program, *arguments = command_of(hooks(event, **values))
    assert program == "trellis"
    done = CliRunner().invoke(app, [*arguments, "--help"])
    assert done.exit_code == 0, done.output
    options = {argument.partition("=")[0] for argument in arguments if argument.startswith("--")}
    assert all(option in done.output for option in options)


def test_the_uninstall_hook_may_list_and_patch_objects_with_finalizers_stop_services_and_nothing_else() -> None:
    found = hooks("pre-delete")
    assert given(found) == {
        *((verb, kind, "") for verb in ("list", "patch") for kind in (
            "services", "endpointslices.discovery.k8s.io", "applications.core.oam.dev",
            "wasmcloudhostconfigs.k8s.wasmcloud.dev", "shims.runtime.spinkube.dev",
        )),
        ("delete", "endpointslices.discovery.k8s.io", ""),  # OpenShift asks for it where an owner is set
        ("get", "customresourcedefinitions.apiextensions.k8s.io", ""),
        ("get", "apiservices.apiregistration.k8s.io", ""),
        ("list", "deployments.apps", "trellis-system"),
        ("patch", "deployments.apps/scale", "trellis-system"),
        ("list", "pods", "trellis-system"),
        ("get", "leases.coordination.k8s.io", "trellis-system"),
        ("get", "leases.coordination.k8s.io", "kube-system"),
    }  # fmt: skip
    [home] = [item for item in found if item["kind"] == "Role" and item["metadata"]["namespace"] == "trellis-system"]
    named = {rule["resources"][0]: set(rule.get("resourceNames", ())) for rule in home["rules"]}
    services = {guard.service for guard in GUARDS}
    assert named["leases"] == {names.LEASE_PREFIX + service for service in services}
    assert named["deployments/scale"] == {f"trellis-{service}" for service in (*services, "bundle")}


def test_a_confined_installation_removes_the_finalizers_of_its_groups_without_a_cluster_role() -> None:
    found = hooks("pre-delete", **CONFINED)
    assert command_of(found)[-2:] == ["--in=shop", "--in=lab"]
    assert not [item for item in found if item["kind"] == "ClusterRole"]
    groups = {right for right in given(found) if right[1].startswith("wasmcloudhostconfigs")}
    assert {place for _, _, place in groups} == {"shop", "lab"}


def test_the_key_hook_reads_the_secrets_of_the_chart_and_changes_only_the_bus_secret() -> None:
    found = hooks("pre-install", nats={"tls": {"enabled": True}})
    assert given(found) == {(verb, "secrets", "trellis-system") for verb in ("create", "get", "patch")}
    [role] = [item for item in found if item["kind"] == "Role"]
    named = {rule["verbs"][0]: rule.get("resourceNames", []) for rule in role["rules"]}
    assert named == {
        "create": [],
        "get": ["trellis-bus", "trellis-bus-tls", "trellis-nats-server", "trellis-nats-tls"],
        "patch": ["trellis-bus"],
    }


def test_keys_are_made_before_an_installation_an_upgrade_and_a_rollback_and_not_for_a_secret_that_is_there() -> None:
    events = {hook["metadata"]["annotations"]["helm.sh/hook"] for hook in hooks("pre-install")}
    assert events == {"pre-install,pre-upgrade,pre-rollback"}
    assert hooks("pre-install", nats={"existingSecret": "bus"}) == []
    assert hooks("pre-install", nats=OWN_SERVER) == []


def test_hooks_can_be_disabled() -> None:
    assert hooks("pre-delete", uninstall={"removeFinalizers": False}) == []


@pytest.mark.parametrize(("timeout", "seconds"), [("10s", 70), ("2m", 180), ("60m", 3660)])
def test_the_job_before_an_uninstallation_ends_after_its_command(timeout: str, seconds: int) -> None:
    [job] = [item for item in hooks("pre-delete", uninstall={"timeout": timeout}) if item["kind"] == "Job"]
    assert job["spec"]["activeDeadlineSeconds"] == seconds
    [container] = job["spec"]["template"]["spec"]["containers"]
    assert f"--timeout={timeout}" in container["command"]


@pytest.mark.parametrize("timeout", ["120", "9s", "0m", "61m", "2h", "m"])
def test_an_invalid_timeout_of_an_uninstallation_is_refused_by_its_name(timeout: str) -> None:
    with pytest.raises(ChartRefusedError, match=r"uninstall\.timeout"):
        rendered(uninstall={"timeout": timeout})


def test_helm_test_asks_for_every_service_that_is_to_run() -> None:
    found = hooks("test")
    assert given(found) == {("list", "pods", "trellis-system")}
    components = {
        entry["metadata"]["labels"]["app.kubernetes.io/component"]
        for entry in rendered()
        if entry["kind"] == "Deployment"
    }
    assert {entry for entry in command_of(found) if not entry.startswith("--")} == {"trellis", "check", *components}
    [seeds] = [volume["secret"] for volume in pod_of(found)["volumes"] if volume["name"] == "seeds"]
    assert [item["key"] for item in seeds["items"]] == ["cli.nk"], "it can say nothing of its own on the bus"
    assert command_of(hooks("test", mode="bundle"))[-1] == "bundle"
    assert "--no-bus" in command_of(hooks("test", nats=OWN_SERVER))
    assert hooks("test", services=only()) == []


# --- NOTES ---


def test_notes_name_what_runs_and_what_to_do_in_every_mode(tmp_path: Path) -> None:
    apart = notes(tmp_path)
    assert "kubectl -n trellis-system logs deployment/trellis-provisioner" in apart
    assert "get secret trellis-bus" in apart
    assert "helm test trellis --namespace trellis-system" in apart
    together = notes(tmp_path, mode="bundle", nats=OWN_SERVER)
    assert "logs deployment/trellis-bundle" in together
    assert "trellis-bus" not in together
    assert OWN_SERVER["url"] in together
    assert "trellis crds check" not in together
    confined = notes(tmp_path, **CONFINED)
    assert ": shop, lab" in confined
    assert "trellis crds check" in confined
    assert "secrets.accounts" not in confined
    kwasm = notes(tmp_path, kwasmOperator={"autoProvision": "true", "installerImage": "x:1"})
    assert lacking(kwasm, "true", "x:1") == []
    assert "trellis migrate kwasm" in kwasm
    assert "helm uninstall" not in notes(tmp_path, uninstall={"removeFinalizers": False})
    assert "logs deployment/" not in notes(tmp_path, services=only())
    assert "cert-manager" not in apart
    issued = notes(tmp_path, nats={"tls": {"enabled": True, "certManager": {"issuerRef": {"name": "lab"}}}})
    assert "kubectl -n trellis-system get certificate,certificaterequest --output wide" in issued


def test_notes_name_no_object_that_the_chart_does_not_make(tmp_path: Path) -> None:
    for values in ({}, {"mode": "bundle"}):
        rendered_notes = notes(tmp_path, **values)
        there = {f"{item['kind'].lower()}/{item['metadata']['name']}" for item in rendered(**values)}
        there.add("secret/trellis-bus")
        named = set(re.findall(r"\b(?:deployment|service)/[a-z-]+", rendered_notes)) | {
            f"secret/{name}" for name in re.findall(r"get secret ([a-z-]+)", rendered_notes)
        }
        assert named <= there
        assert named
