"""Pods of the chart: existing settings, restricted pods as Kubernetes defines them, a bus that knows its clients."""

from __future__ import annotations

import json
import re
import tomllib
from typing import Any

import pytest
import yaml

from controller_host.domain.views import parse_bytes
from controller_host.module.preparing import COMPILING
from support.chart.bus_secret import users_of
from support.chart.rendered import CHART, ChartRefusedError, Manifest, helm, hooks, of, only, rendered
from trellis.crds.kinds import BY_DIRECTORY, KINDS
from trellis_cli.run.services import NAMED

ROOT = CHART.parents[2]
VALUES = yaml.safe_load((CHART / "values.yaml").read_text())
SCRIPTS = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["scripts"]
OWN_SERVER = {"enabled": False, "url": "nats://nats.example.com:4222", "existingSecret": "seeds"}
FULL = {
    "otlpEndpoint": "http://collector:4318",
    "secrets": {"accounts": [{"namespace": "shop", "user": "jane@example.com"}]},
    "controllers": {"modulesClaim": "modules", "snapshots": {"existingClaim": "snapshots"}},
    "services": {
        "hostManager": {"settings": {"TRELLIS_SOURCES_INTERVAL": 30}},
        "provisioner": {"settings": {"TRELLIS_MAX_UNAVAILABLE": "20%", "TRELLIS_REQUIRE_CHECKSUM": False}},
    },
    "nats": OWN_SERVER,
}


def of_kind(found: list[Manifest], *kinds: str) -> list[Manifest]:
    return [item for item in found if item["kind"] in kinds]


BY_DEFAULT = {name for name, item in NAMED.items() if not item.only_if_named}
"""What runs unless it is said: all but the console."""


def container(workload: Manifest) -> Manifest:
    [found] = workload["spec"]["template"]["spec"]["containers"]
    return dict(found)


def environment(deployment: Manifest) -> dict[str, str]:
    return {item["name"]: item["value"] for item in container(deployment)["env"] if "value" in item}


@pytest.mark.parametrize("values", [{}, FULL], ids=["by default", "with all that can be said"])
def test_a_pod_has_only_settings_that_its_service_reads(values: dict[str, Any]) -> None:
    deployments = of_kind(rendered(**values), "Deployment")
    assert {deployment["metadata"]["name"] for deployment in deployments} == {f"trellis-{name}" for name in BY_DEFAULT}
    for deployment in deployments:
        component = deployment["metadata"]["labels"]["app.kubernetes.io/component"]
        model = NAMED[component].settings
        names = {entry["name"] for entry in container(deployment)["env"]}
        assert names <= {f"TRELLIS_{name.upper()}" for name in model.model_fields}, component
        values_of = {name.removeprefix("TRELLIS_").lower(): value for name, value in environment(deployment).items()}
        values_of.pop("nats_nkey_file", None)  # the file is in the pod
        settings = model(**values_of)
        assert settings.namespace == "trellis-system"
        assert settings.cluster == "trellis"


def test_each_value_reaches_its_service() -> None:
    found = {item["metadata"]["name"]: environment(item) for item in of_kind(rendered(**FULL), "Deployment")}
    assert found["trellis-host-manager"]["TRELLIS_SOURCES_INTERVAL"] == "30"
    assert found["trellis-provisioner"]["TRELLIS_REQUIRE_CHECKSUM"] == "false"
    assert found["trellis-provisioner"]["TRELLIS_INSTALLER_NAMESPACE"] == "trellis-installers"
    assert found["trellis-secrets-backend"]["TRELLIS_SECRETS_USERS"] == "jane@example.com"
    assert found["trellis-controller-host"]["TRELLIS_CONTROLLER_RESOURCES"] == "v1/ConfigMap,batch/v1/Job"
    assert {item["TRELLIS_NATS_URL"] for item in found.values()} == {OWN_SERVER["url"]}


def test_a_confined_host_manager_gets_its_namespaces() -> None:
    services = only("hostManager")
    services["hostManager"]["watchNamespaces"] = ["shop", "lab"]
    [deployment] = of_kind(rendered(services=services), "Deployment")
    assert environment(deployment)["TRELLIS_WATCH_NAMESPACES"] == "shop,lab"


def test_each_pod_runs_a_command_that_is_installed() -> None:
    for item in of_kind(rendered(), "Deployment"):
        [command] = container(item)["command"]
        assert command in SCRIPTS
    [bundle] = of_kind(rendered(mode="bundle"), "Deployment")
    command = container(bundle)["command"]
    assert command[:2] == ["trellis", "run"]
    assert set(command[2:]) == BY_DEFAULT


@pytest.mark.parametrize("values", [{}, FULL, {"mode": "bundle"}], ids=["by default", "with all", "bundle"])
def test_no_pod_of_the_chart_has_a_privilege(values: dict[str, Any]) -> None:
    for item in of_kind(rendered(**values), "Deployment", "StatefulSet"):
        pod, runs = item["spec"]["template"]["spec"], container(item)
        assert pod["securityContext"]["runAsNonRoot"] is True
        assert pod["securityContext"]["runAsUser"] > 0
        assert pod["securityContext"]["seccompProfile"] == {"type": "RuntimeDefault"}
        assert not {"hostNetwork", "hostPID", "hostIPC"} & set(pod)
        assert runs["securityContext"] == {
            "allowPrivilegeEscalation": False,
            "readOnlyRootFilesystem": True,
            "capabilities": {"drop": ["ALL"]},
        }
        assert {"limits", "requests"} <= set(runs["resources"])
        assert {"readinessProbe", "livenessProbe"} <= set(runs)
        assert not any("hostPath" in volume for volume in pod["volumes"])
        mounted = {mount["name"] for mount in runs["volumeMounts"]}
        claims = {claim["metadata"]["name"] for claim in item["spec"].get("volumeClaimTemplates", ())}
        assert mounted == {volume["name"] for volume in pod["volumes"]} | claims


@pytest.mark.parametrize("mode", ["services", "bundle"])
def test_compiling_modules_leaves_controllers_half_of_the_memory_of_their_pod(mode: str) -> None:
    """With control groups v2 the kubelet has all processes of a container ended together when there is none left."""
    runs = {item["metadata"]["name"]: item for item in of_kind(rendered(mode=mode), "Deployment")}
    item = runs["trellis-controller-host" if mode == "services" else "trellis-bundle"]
    model: Any = NAMED["controller-host"].settings
    compiling = model(controller_compile_memory=environment(item)["TRELLIS_CONTROLLER_COMPILE_MEMORY"])
    limit = parse_bytes(container(item)["resources"]["limits"]["memory"])
    assert 2 * COMPILING * compiling.controller_compile_memory <= limit


def test_a_program_that_starts_slowly_is_given_time() -> None:
    for item in of_kind(rendered(), "Deployment"):
        probe = container(item)["startupProbe"]
        assert probe["periodSeconds"] * probe["failureThreshold"] >= 180


EVERY_PART: dict[str, Any] = {
    "jaeger": {"enabled": True},
    "collector": {"enabled": True, "endpoint": "http://otlp", "authorization": {"secret": "key"}},
    "latticeNats": {"enabled": True},
    "wadm": {"enabled": True},
    "services": {"console": {"enabled": True, "auth": "proxy", "proxy": {"secret": "shared"}}},
}


@pytest.mark.parametrize(
    "values", [{}, FULL, {"mode": "bundle"}, EVERY_PART], ids=["default", "all that can be said", "bundle", "parts"]
)
def test_no_secret_is_in_a_manifest_or_in_an_environment(values: dict[str, Any]) -> None:
    found = rendered(**values)
    for event in ("pre-install", "pre-delete", "test"):
        found = found + hooks(event, **values)
    assert not of_kind(found, "Secret")
    for item in found:
        for runs in containers(item):
            sources = [entry["valueFrom"] for entry in runs.get("env", ()) if "valueFrom" in entry]
            assert not [source for source in sources if "fieldRef" not in source], item["metadata"]["name"]
            assert "envFrom" not in runs


def containers(manifest: Manifest) -> list[Manifest]:
    """Return the containers of a pod, or of the pods of a workload."""
    spec = manifest.get("spec", {})
    pod = spec if manifest["kind"] == "Pod" else spec.get("template", {}).get("spec", {})
    return list(pod.get("containers", ()))


@pytest.mark.parametrize(
    "values",
    [{}, {"mode": "bundle"}, {"nats": {"tls": {"enabled": True}}}, EVERY_PART],
    ids=["default", "bundle", "TLS", "parts"],
)
def test_two_renders_are_equal_to_the_byte(values: dict[str, Any]) -> None:
    """Not from the cache of ``rendered``: Argo CD and `helm diff` compare what Helm renders each time."""
    arguments = ("template", "trellis", str(CHART), "--namespace", "trellis-system")
    first, second = (helm(*arguments, values=values) for _ in range(2))
    assert first == second


@pytest.mark.parametrize("mode", ["services", "bundle"])
def test_each_service_connects_as_a_user_that_the_server_knows_and_sees_no_other_seed(mode: str) -> None:
    made = users_of(hooks("pre-install", mode=mode))
    for entry in of_kind(rendered(mode=mode), "Deployment"):
        component = entry["metadata"]["labels"]["app.kubernetes.io/component"]
        services = [component] if mode == "services" else container(entry)["command"][2:]
        [seeds] = [volume["secret"] for volume in entry["spec"]["template"]["spec"]["volumes"] if "secret" in volume]
        assert seeds["secretName"] == "trellis-bus"
        files = [f"{NAMED[service].package}.trellis.nk" for service in services]
        assert [(item["key"], item["path"]) for item in seeds["items"]] == list(zip(files, files, strict=True))
        assert set(files) <= set(made)
        named = environment(entry)["TRELLIS_NATS_NKEY_FILE"]
        assert [named.replace("{service}", NAMED[service].package) for service in services] == [
            f"/etc/trellis/nats/{file}" for file in files
        ]
        assert environment(entry)["TRELLIS_NATS_URL"] == "nats://trellis-nats.trellis-system:4222"


def test_an_existing_secret_takes_the_place_of_the_one_that_is_made() -> None:
    values = {"nats": {"existingSecret": "bus"}}
    found = rendered(**values)
    for entry in of_kind(found, "Deployment"):
        [seeds] = [volume["secret"] for volume in entry["spec"]["template"]["spec"]["volumes"] if "secret" in volume]
        assert seeds["secretName"] == "bus"
    [servers] = of_kind(found, "StatefulSet")
    [config] = [volume for volume in servers["spec"]["template"]["spec"]["volumes"] if volume["name"] == "config"]
    [secret] = [source["secret"] for source in config["projected"]["sources"] if "secret" in source]
    assert secret["name"] == "bus"
    assert [item["key"] for item in secret["items"]] == ["accounts.conf", "keys.conf", "routes.conf"], "and no seed"


def test_the_bundle_is_one_process_with_one_account_that_has_the_permissions_of_all() -> None:
    apart, together = of(rendered()), of(rendered(mode="bundle"))
    accounts = [key for key in together if key[0] == "ServiceAccount"]
    assert accounts == [("ServiceAccount", "trellis-system", "trellis-bundle")]
    for key, item in together.items():
        if key[0] in {"Role", "ClusterRole"}:
            assert item == apart[key]
        if key[0] in {"RoleBinding", "ClusterRoleBinding"}:
            assert [subject["name"] for subject in item["subjects"]] == ["trellis-bundle"]
    assert {key for key in apart if "Role" in key[0]} == {key for key in together if "Role" in key[0]}


def test_every_definition_is_there_stays_and_is_small_enough_to_apply() -> None:
    found = {item["metadata"]["name"]: item for item in of_kind(rendered(), "CustomResourceDefinition")}
    assert set(found) == {kind.name for kinds in BY_DIRECTORY.values() for kind in kinds}
    for item in found.values():
        assert item["metadata"]["annotations"]["helm.sh/resource-policy"] == "keep"
        assert len(json.dumps(item)) < 200_000
    assert not of_kind(rendered(crds={"install": False}), "CustomResourceDefinition")
    without = of_kind(rendered(services=only("hostManager")), "CustomResourceDefinition")
    assert {item["metadata"]["name"] for item in without} == {kind.name for kind in KINDS}


def test_privileged_pods_have_a_namespace_of_their_own() -> None:
    [namespace] = of_kind(rendered(), "Namespace")
    assert namespace["metadata"]["name"] == "trellis-installers"
    assert namespace["metadata"]["labels"]["pod-security.kubernetes.io/enforce"] == "privileged"
    assert not of_kind(rendered(services=only("hostManager")), "Namespace")


def test_two_replicas_are_not_evicted_together_and_a_single_one_does_not_block_a_drain() -> None:
    found = {item["metadata"]["name"] for item in of_kind(rendered(), "PodDisruptionBudget")}
    two = {f"trellis-{name}" for name, item in NAMED.items() if VALUES["services"][item.chart_key]["replicas"] > 1}
    assert found == two | {"trellis-nats"}


def test_all_that_runs_has_a_network_policy() -> None:
    found = rendered()
    chosen = [item["spec"]["podSelector"]["matchLabels"] for item in of_kind(found, "NetworkPolicy")]
    for item in of_kind(found, "Deployment", "StatefulSet"):
        assert item["spec"]["selector"]["matchLabels"] in chosen


@pytest.mark.parametrize(
    ("values", "expected_text"),
    [
        ({"mode": "both"}, "mode"),
        ({"cluster": "My_Cluster"}, "cluster"),
        ({"image": {"digest": "latest"}}, "image.digest"),
        ({"services": {"provisioner": {"settings": {"TRELLIS_MAX": 1}}}}, "TRELLIS_MAX is not allowed"),
        ({"services": {"provisioner": {"settings": {"TRELLIS_NATS_URL": "x"}}}}, "TRELLIS_NATS_URL is not allowed"),
        ({"services": {"provisioner": {"replicas": "2"}}}, "services.provisioner.replicas"),
        ({"nats": {"enabled": False}}, "nats.url: needs the address"),
        ({"nats": {"url": "nats://x:4222"}}, "set nats.enabled to false"),
        ({"pods": {"annotations": {"a": "b"}}}, "renamed to podAnnotations"),
        ({"nats": {"enabled": False, "url": "nats://user:password@x:4222"}}, "nats.url"),
        ({"installers": {"namespace": "trellis-system"}}, "installers.namespace: is the release namespace"),
        (
            {"services": {"hostManager": {"watchNamespaces": ["shop"]}}},
            "services.hostManager.watchNamespaces: needs services.applicationManager.enabled=false",
        ),
        (
            {"mode": "bundle", "services": only("hostManager") | {"hostManager": {"watchNamespaces": ["shop"]}}},
            "services.hostManager.watchNamespaces: needs mode services",
        ),
        (
            {"controllers": {"snapshots": {"existingClaim": "c"}}, "services": {"controllerHost": {"replicas": 2}}},
            "existingClaim: needs one replica",
        ),
        (
            {
                "mode": "bundle",
                "services": {
                    "hostManager": {"settings": {"TRELLIS_SOURCES_INTERVAL": 30}},
                    "secretsBackend": {"settings": {"TRELLIS_SOURCES_INTERVAL": 60}},
                },
            },
            "TRELLIS_SOURCES_INTERVAL has two values",
        ),
    ],
)
def test_values_that_do_not_go_together_are_refused(values: dict[str, Any], expected_text: str) -> None:
    with pytest.raises(ChartRefusedError, match=re.escape(expected_text)):
        rendered(**values)


@pytest.mark.parametrize(
    ("values", "present"),
    [
        ({"uninstall": {"letGo": False}}, "uninstall.removeFinalizers"),
        ({"uninstall": {"seconds": 120}}, "uninstall.timeout"),
        ({"services": {"provisioner": {"settings": {"TRELLIS_GRACE_SECONDS": 30}}}}, "TRELLIS_SHUTDOWN_GRACE_PERIOD"),
    ],
)
def test_a_value_under_a_former_name_is_refused_with_the_present_one(values: dict[str, Any], present: str) -> None:
    with pytest.raises(ChartRefusedError, match=re.escape(present)):
        rendered(**values)
