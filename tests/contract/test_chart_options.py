"""Options of the chart: images, names and labels, pods, and the metadata of the chart."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator
from typing import Any

import pytest
import yaml

from support.chart.rendered import CHART, SYSTEM, ChartRefusedError, Manifest, hooks, of, rendered
from trellis.crds.kinds import BY_DIRECTORY
from trellis_cli.check.model import SELECTOR
from trellis_tools.chart import documents
from trellis_tools.chart_values import required_of

ROOT = CHART.parents[2]
METADATA = yaml.safe_load((CHART / "Chart.yaml").read_text(encoding="utf-8"))
VALUES = yaml.safe_load((CHART / "values.yaml").read_text(encoding="utf-8"))
DIGEST = "sha256:" + "0123456789abcdef" * 4
PARTS: dict[str, Any] = {
    "jaeger": {"enabled": True, "storage": {"type": "badger"}},
    "collector": {"enabled": True},
    "latticeNats": {"enabled": True},
    "wadm": {"enabled": True},
    "monitoring": {item: {"enabled": True} for item in ("serviceMonitor", "prometheusRule", "dashboard")},
    "nats": {"tls": {"enabled": True, "certManager": {"issuerRef": {"name": "lab"}}}},
    "services": {"console": {"enabled": True}},
    "secrets": {"accounts": [{"namespace": "shop", "serviceAccount": "reader", "secrets": ["db"]}]},
    "controllers": {"accounts": [{"namespace": "shop", "serviceAccount": "ttl", "watch": ["jobs.batch"]}]},
}
EVENTS = ("pre-install", "pre-delete", "test")


def everything(**values: Any) -> list[Manifest]:
    """Return all objects, hooks included."""
    found = rendered(**values)
    for event in EVENTS:
        found = found + hooks(event, **values)
    return found


def pods(found: Iterable[Manifest]) -> Iterator[tuple[Manifest, Manifest]]:
    """Yield each pod or pod template, and the object that has it."""
    for item in found:
        if item["kind"] == "Pod":
            yield item, item
        elif "template" in item.get("spec", {}):
            yield item["spec"]["template"], item


def component_of(manifest: Manifest) -> str:
    return str(manifest["metadata"]["labels"]["app.kubernetes.io/component"])


def template(found: list[Manifest], component: str) -> Manifest:
    [chosen] = [pod for pod, owner in pods(found) if component_of(owner) == component]
    return chosen


def images(found: list[Manifest]) -> dict[str, str]:
    """Return the image of each container by component and name."""
    return {
        f"{component_of(owner)}/{runs['name']}": runs["image"]
        for pod, owner in pods(found)
        for runs in pod["spec"]["containers"]
    }


def variable(found: list[Manifest], component: str, name: str) -> str | None:
    [runs] = template(found, component)["spec"]["containers"]
    return {item["name"]: item.get("value") for item in runs["env"]}.get(f"TRELLIS_{name}")


# --- images ---


def test_images_are_those_of_the_values_and_images_of_trellis_have_the_version_of_the_chart() -> None:
    found = everything(**PARTS)
    version = METADATA["appVersion"]
    assert images(found)["provisioner/provisioner"] == f"ghcr.io/trellis-wasm/trellis:{version}"
    assert images(found)["nats/nats"] == "docker.io/library/nats:2.14-alpine"
    assert variable(found, "provisioner", "NODE_INSTALLER_IMAGE") == f"ghcr.io/trellis-wasm/node-installer:{version}"
    assert not [name for name in images(found).values() if name.endswith((":latest", ":"))]


def test_a_digest_takes_the_place_of_a_tag() -> None:
    ours = {"registry": "registry.example.com:5000", "repository": "wasm/trellis", "tag": "9", "digest": DIGEST}
    found = everything(image=ours, installers={"image": {"digest": DIGEST}}, nats={"image": {"digest": DIGEST}})
    names = images(found)
    assert names.pop("nats/nats") == f"docker.io/library/nats@{DIGEST}"
    assert set(names.values()) == {f"registry.example.com:5000/wasm/trellis@{DIGEST}"}
    assert variable(found, "provisioner", "NODE_INSTALLER_IMAGE") == f"ghcr.io/trellis-wasm/node-installer@{DIGEST}"


def test_a_registry_of_ones_own_is_that_of_all_images() -> None:
    found = everything(**PARTS, **{"global": {"imageRegistry": "mirror.example.com"}})
    names = [*images(found).values(), variable(found, "provisioner", "NODE_INSTALLER_IMAGE")]
    assert {str(name).partition("/")[0] for name in names} == {"mirror.example.com"}
    assert "mirror.example.com/library/nats:2.14-alpine" in names


def test_without_a_registry_the_repository_is_the_whole_name() -> None:
    found = rendered(image={"registry": "", "repository": "localhost:5000/trellis", "tag": "1"})
    assert images(found)["provisioner/provisioner"] == "localhost:5000/trellis:1"


def test_pull_secrets_and_policy_are_those_of_every_pod_and_of_installers_their_own() -> None:
    values = {
        **PARTS,
        "image": {"pullSecrets": ["registry"], "pullPolicy": "Always"},
        "installers": {"image": {"pullSecrets": ["a", "b"], "pullPolicy": "Never"}},
    }
    found = everything(**values)
    for pod, owner in pods(found):
        assert pod["spec"]["imagePullSecrets"] == [{"name": "registry"}], component_of(owner)
        assert {runs["imagePullPolicy"] for runs in pod["spec"]["containers"]} == {"Always"}, component_of(owner)
    assert variable(found, "provisioner", "INSTALLER_PULL_SECRETS") == "a,b"
    assert variable(found, "provisioner", "INSTALLER_PULL_POLICY") == "Never"


def test_global_pull_secrets_are_those_of_every_pod_and_of_installers() -> None:
    secrets = {"imagePullSecrets": ["mirror", {"name": "other"}]}
    values = {**PARTS, "global": secrets, "image": {"pullSecrets": ["registry", "mirror"]}}
    found = everything(**values)
    names = [{"name": name} for name in ("registry", "mirror", "other")]
    assert all(pod["spec"]["imagePullSecrets"] == names for pod, _ in pods(found))
    assert variable(found, "provisioner", "INSTALLER_PULL_SECRETS") == "mirror,other"


# --- names and labels ---


def test_every_object_and_pod_has_the_labels_of_the_conventions() -> None:
    for item in everything(**PARTS):
        if item["kind"] == "CustomResourceDefinition":
            continue
        labels = item["metadata"]["labels"]
        assert labels["app.kubernetes.io/name"] == "trellis"
        assert labels["app.kubernetes.io/instance"] == "trellis"
        assert labels["app.kubernetes.io/part-of"] == "trellis"
        assert labels["app.kubernetes.io/managed-by"] == "Helm"
        assert labels["app.kubernetes.io/version"] == METADATA["appVersion"]
        assert labels["helm.sh/chart"] == f"trellis-{METADATA['version']}"
        assert labels["app.kubernetes.io/component"]


def test_pods_have_what_selects_them_and_nothing_that_another_version_of_the_chart_changes() -> None:
    found = rendered(**PARTS)
    for pod, owner in pods(found):
        labels, selected = pod["metadata"]["labels"], owner["spec"]["selector"]["matchLabels"]
        assert labels.items() > selected.items()
        assert set(selected) == {"app.kubernetes.io/name", "app.kubernetes.io/component"}, "as the first version had it"
        assert not {"app.kubernetes.io/version", "helm.sh/chart"} & set(labels)


def test_commands_find_pods_by_a_label_that_no_value_changes() -> None:
    key, _, value = SELECTOR.partition("=")
    for pod, _ in pods(rendered(nameOverride="wasm", fullnameOverride="blue")):
        assert pod["metadata"]["labels"][key] == value
        assert pod["metadata"]["labels"]["app.kubernetes.io/name"] == "wasm"


def keys(found: list[Manifest]) -> set[tuple[str, str, str]]:
    return set(of([item for item in found if item["kind"] not in {"CustomResourceDefinition", "Namespace"}]))


def test_a_second_installation_of_another_name_shares_no_object_with_the_first() -> None:
    first = keys(everything(**PARTS))
    second = keys(
        [
            item
            for found in (
                rendered("blue", fullnameOverride="blue", **PARTS),
                *(hooks(event, "blue", fullnameOverride="blue", **PARTS) for event in EVENTS),
            )
            for item in found
        ]
    )
    assert len(first) == len(second)
    assert not first & second


def test_another_name_is_that_of_all_objects_but_the_accounts_that_commands_print_and_of_all_addresses() -> None:
    found = everything(fullnameOverride="blue", **PARTS)
    for item in found:
        if item["kind"] in {"CustomResourceDefinition", "Namespace"}:
            continue
        is_account = item["kind"] == "ServiceAccount" and component_of(item) not in {"uninstall", "check", "bus-keys"}
        assert item["metadata"]["name"].startswith("trellis-" if is_account else "blue"), item["metadata"]
    services = {f"{item['metadata']['name']}.{SYSTEM}" for item in found if item["kind"] == "Service"}
    hosts = set(
        re.findall(r"//([a-z.-]+):[0-9]+", json.dumps([item for item in found if item["kind"] == "Deployment"]))
    )
    assert hosts
    assert hosts <= services
    names = {item["metadata"]["name"] for item in found if item["kind"] == "Deployment"}
    removing = hooks("pre-delete", fullnameOverride="blue")
    [role] = [hook for hook in removing if hook["kind"] == "Role" and hook["metadata"].get("namespace") == SYSTEM]
    [stopped] = [rule["resourceNames"] for rule in role["rules"] if rule["resources"] == ["deployments/scale"]]
    assert set(stopped) - {"blue-bundle"} <= names


def test_the_longest_name_leaves_room_for_what_kubernetes_appends() -> None:
    """The pods of a StatefulSet have a label of its name, a dash and up to ten digits."""
    found = everything(fullnameOverride="b" * 39, **PARTS)
    for item in found:
        name = item["metadata"]["name"]
        appended = {"StatefulSet": 11, "Job": 0, "Service": 0}.get(item["kind"])
        assert appended is None or len(name) + appended <= 63, name


# --- text that YAML takes for a number, a truth value or nothing ---

NAMED: tuple[dict[str, Any], ...] = (
    {"image": {"pullSecrets": ["NAME"]}},
    {"nats": {"existingSecret": "NAME", "storage": {"storageClassName": "NAME"}}},
    {"nats": {"tls": {"enabled": True, "secretName": "NAME"}}},
    {"nats": {"tls": {"enabled": True, "certManager": {"issuerRef": {"name": "NAME"}}}}},
    {"nats": {"enabled": False, "url": "nats://nats:4222", "caSecret": "NAME"}},
    {"installers": {"namespace": "NAME"}, "jaeger": {"enabled": True, "storage": {"type": "badger"}}},
    {"controllers": {"modulesClaim": "NAME", "snapshots": {"existingClaim": "NAME"}}},
    {"wadm": {"enabled": True, "nats": {"url": "nats://a", "credentialsSecret": "NAME", "caSecret": "NAME"}}},
    {"collector": {"enabled": True, "endpoint": "http://a", "authorization": {"secret": "NAME", "key": "NAME"}}},
    {"monitoring": {"dashboard": {"enabled": True, "namespace": "NAME"}}},
    {"services": {"console": {"enabled": True, "tlsSecret": "NAME", "auth": "proxy", "proxy": {"secret": "NAME"}}}},
    {
        "services": {
            "console": {
                "enabled": True,
                "from": [{"namespaceSelector": {}}],
                "ingress": {"enabled": True, "className": "NAME", "hosts": ["a.example.com"]},
            }
        }
    },
)
SHIM = {"defaultShim": {"sha256": {"amd64": "0" * 64}}}


def shape(value: object) -> object:
    """Return the types of the values of a manifest in place of the values."""
    if isinstance(value, dict):
        return {key: shape(item) for key, item in value.items()}
    return [shape(item) for item in value] if isinstance(value, list) else type(value).__name__


@pytest.mark.parametrize("text", ["1234", "0x1f", "on", "null"])
def test_a_namespace_that_looks_like_another_type_stays_text(text: str) -> None:
    def found(namespace: str) -> object:
        values = PARTS | SHIM
        return shape([rendered(namespace, **values), *(hooks(event, namespace, **values) for event in EVENTS)])

    assert found(text) == found("plain")


@pytest.mark.parametrize("values", NAMED, ids="+".join)
def test_a_name_that_looks_like_another_type_stays_text(values: dict[str, Any]) -> None:
    def found(name: str) -> object:
        return shape(everything(**json.loads(json.dumps(values).replace("NAME", name))))

    assert found("1234") == found("plain")


# --- keys without a value, as above lines that are comments ---

EMPTY = [
    {"services": {service: {"settings": None, "tolerations": []}}} for service in ("provisioner", "nodeWatcher")
] + [
    {"services": {"console": {"enabled": True, "settings": None, "proxy": {"users": None, "groups": None}}}},
    {"pods": {"nodeSelector": None, "tolerations": None, "extraEnv": None}},
    {"image": {"pullSecrets": None, "digest": None}, "global": {"imageRegistry": None, "imagePullSecrets": None}},
    {"services": {"console": {"enabled": True, "tlsSecret": None}}},
]


@pytest.mark.parametrize("values", EMPTY, ids=str)
def test_a_key_of_a_list_or_of_settings_without_a_value_is_empty(values: dict[str, Any]) -> None:
    def filled(value: Any) -> Any:
        if isinstance(value, dict):
            return {key: filled(item) for key, item in value.items() if item is not None}
        return value

    assert everything(**values) == everything(**filled(values))


@pytest.mark.parametrize(
    ("values", "name"),
    [
        ({"services": {"provisioner": None}}, "services.provisioner"),
        ({"nats": {"tls": {"certManager": None}}}, "nats.tls.certManager"),
        ({"services": {"console": {"enabled": True, "ingress": None}}}, "services.console.ingress"),
        ({"jaeger": None}, "jaeger"),
        ({"services": {"provisioner": {"enabled": None}}}, "services.provisioner.enabled"),
        ({"services": {"provisioner": {"replicas": None}}}, "services.provisioner.replicas"),
        ({"installers": {"autoProvision": None}}, "installers.autoProvision"),
        ({"nats": {"image": {"tag": None}}}, "nats.image.tag"),
    ],
)
def test_a_key_that_needs_a_value_is_refused_by_its_name(values: dict[str, Any], name: str) -> None:
    with pytest.raises(ChartRefusedError, match=re.escape(f"{name}: has no value and no default")):
        rendered(**values)


def test_maps_and_scalars_with_a_default_need_a_value() -> None:
    values = """\
plain: a
empty: ""
items: [a]
# -- Free keys.
free: {}
part:
  enabled: false
  # -- Resources.
  resources: {limits: {memory: 1Gi}}
  below:
    name: ""
"""
    assert required_of(values) == ["plain", "free", "part", "part.enabled", "part.below"]


# --- pods ---

TOLERATION = {"key": "infra", "operator": "Exists"}
AFFINITY = {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": []}}}
SPREAD = {"maxSkew": 1, "topologyKey": "topology.kubernetes.io/zone", "whenUnsatisfiable": "DoNotSchedule"}
OPTIONS: dict[str, Any] = {
    "podAnnotations": {"example.com/a": "b"},
    "nodeSelector": {"pool": "infra"},
    "tolerations": [TOLERATION],
    "affinity": AFFINITY,
    "topologySpreadConstraints": [SPREAD],
    "priorityClassName": "system",
    "extraEnv": [{"name": "SSL_CERT_DIR", "value": "/certs"}],
    "extraVolumes": [{"name": "certs", "configMap": {"name": "certs"}}],
    "extraVolumeMounts": [{"name": "certs", "mountPath": "/certs", "readOnly": True}],
    "serviceAccount": {"annotations": {"example.com/role": "r"}},
    "resources": {"requests": {"cpu": "1", "memory": "1Gi"}, "limits": {"cpu": "2", "memory": "1Gi"}},
}


def options_of(found: list[Manifest], component: str) -> dict[str, Any]:
    """Return what a service's pod has of the options."""
    pod = template(found, component)
    [runs] = pod["spec"]["containers"]
    account = of(found)["ServiceAccount", SYSTEM, pod["spec"]["serviceAccountName"]]
    scheduling = ("nodeSelector", "tolerations", "affinity", "topologySpreadConstraints", "priorityClassName")
    return {
        "podAnnotations": pod["metadata"].get("annotations"),
        **{key: pod["spec"].get(key) for key in scheduling},
        "extraEnv": [item for item in runs["env"] if not item["name"].startswith("TRELLIS_")],
        "extraVolumes": [volume for volume in pod["spec"]["volumes"] if "configMap" in volume],
        "extraVolumeMounts": [
            volume_mount for volume_mount in runs["volumeMounts"] if volume_mount["mountPath"] == "/certs"
        ],
        "serviceAccount": {"annotations": account["metadata"].get("annotations")},
        "resources": runs["resources"],
    }


def expected(component: str) -> dict[str, Any]:
    labels = {"app.kubernetes.io/name": "trellis", "app.kubernetes.io/component": component}
    return {**OPTIONS, "topologySpreadConstraints": [{**SPREAD, "labelSelector": {"matchLabels": labels}}]}


@pytest.mark.parametrize("key", OPTIONS)
def test_an_option_of_all_services_can_be_another_one_for_one_of_them(key: str) -> None:
    found = rendered(services={"provisioner": {key: OPTIONS[key]}})
    plain = rendered()
    assert options_of(found, "provisioner")[key] == expected("provisioner")[key]
    assert options_of(found, "host-manager") == options_of(plain, "host-manager")
    others = {name: value for name, value in options_of(found, "provisioner").items() if name != key}
    assert others.items() <= options_of(plain, "provisioner").items()


def test_options_of_pods_are_those_of_every_service_that_has_none() -> None:
    found = rendered(pods=OPTIONS, services={"nodeWatcher": {"nodeSelector": {"pool": "other"}}})
    assert options_of(found, "provisioner") == expected("provisioner")
    assert options_of(found, "node-watcher") == {**expected("node-watcher"), "nodeSelector": {"pool": "other"}}


def test_a_bundle_has_options_too() -> None:
    assert options_of(rendered(mode="bundle", bundle=OPTIONS), "bundle") == expected("bundle")


def test_a_constraint_with_a_selector_keeps_it() -> None:
    chosen = {**SPREAD, "labelSelector": {"matchLabels": {"a": "b"}}}
    found = rendered(pods={"topologySpreadConstraints": [chosen, SPREAD]})
    labels = {"app.kubernetes.io/name": "trellis", "app.kubernetes.io/component": "provisioner"}
    assert options_of(found, "provisioner")["topologySpreadConstraints"] == [
        chosen,
        {**SPREAD, "labelSelector": {"matchLabels": labels}},
    ]


def test_replicas_are_spread_over_nodes_unless_configured_otherwise() -> None:
    [constraint] = options_of(rendered(), "provisioner")["topologySpreadConstraints"]
    assert (constraint["topologyKey"], constraint["whenUnsatisfiable"]) == ("kubernetes.io/hostname", "ScheduleAnyway")
    item = rendered(services={"provisioner": {"replicas": 1}})
    assert options_of(item, "provisioner")["topologySpreadConstraints"] is None


def test_servers_of_the_bus_are_scheduled_by_values_of_their_own() -> None:
    keys = ("nodeSelector", "tolerations", "affinity", "topologySpreadConstraints", "priorityClassName")
    chosen = {key: OPTIONS[key] for key in ("podAnnotations", *keys)}
    pod = template(rendered(nats=chosen), "nats")
    assert pod["metadata"]["annotations"].items() > OPTIONS["podAnnotations"].items()
    for key in keys:
        assert pod["spec"][key] == expected("nats")[key]
    untouched = template(rendered(pods=OPTIONS), "nats")
    assert untouched == template(rendered(), "nats")


def test_no_pod_has_a_cpu_limit_unless_it_is_requested() -> None:
    for pod, owner in pods(everything(**PARTS)):
        for runs in pod["spec"]["containers"]:
            assert {"cpu", "memory"} <= set(runs["resources"]["requests"]), component_of(owner)
            assert set(runs["resources"]["limits"]) == {"memory"}, component_of(owner)


def test_every_pod_runs_as_a_high_uid_that_no_user_of_a_node_has() -> None:
    for pod, owner in pods(everything(**PARTS)):
        security = pod["spec"]["securityContext"]
        assert min(security[key] for key in ("runAsUser", "runAsGroup", "fsGroup")) >= 10_000, component_of(owner)


def test_every_pod_has_a_network_policy_hooks_and_installers_included() -> None:
    found = everything(**PARTS)
    policies = [item for item in found if item["kind"] == "NetworkPolicy"]
    for pod, owner in pods(found):
        labels = pod["metadata"]["labels"]
        chosen = [
            policy for policy in policies if labels.items() >= policy["spec"]["podSelector"]["matchLabels"].items()
        ]
        assert len(chosen) == 1, component_of(owner)
        assert chosen[0]["spec"]["policyTypes"] == ["Ingress"]
        if component_of(owner) in {"bus-keys", "uninstall", "check"}:
            assert not chosen[0]["spec"].get("ingress"), "nobody connects to it"
    [installers] = [policy for policy in policies if policy["metadata"]["namespace"] == "trellis-installers"]
    assert installers["spec"]["podSelector"]["matchLabels"] == {"app.kubernetes.io/managed-by": "trellis"}
    assert not installers["spec"].get("ingress")
    assert not [item for item in everything(networkPolicies={"enabled": False}) if item["kind"] == "NetworkPolicy"]


def test_a_large_number_reaches_a_service_without_an_exponent() -> None:
    settings = {"TRELLIS_CONTROLLER_MAX_CALLS_PER_SECOND": 2_000_000, "TRELLIS_CONTROLLER_MAX_CPU_PER_CALL": 1.5}
    found = rendered(services={"controllerHost": {"settings": settings}})
    assert variable(found, "controller-host", "CONTROLLER_MAX_CALLS_PER_SECOND") == "2000000"
    assert variable(found, "controller-host", "CONTROLLER_MAX_CPU_PER_CALL") == "1.5"


@pytest.mark.parametrize(
    ("values", "expected_text"),
    [
        (
            {"image": {"repository": "registry.example.com/trellis"}},
            "image.repository: registry.example.com/trellis begins with a registry",
        ),
        ({"nats": {"image": {"repository": "localhost:5000/nats"}}}, "nats.image.repository: localhost:5000/nats"),
        ({"nats": {"image": "nats:2"}}, "nats.image"),
        ({"image": {"registry": "registry.example.com/"}}, "image.registry"),
        ({"installers": {"image": {"digest": "latest"}}}, "installers.image.digest"),
        ({"fullnameOverride": "Blue"}, "fullnameOverride"),
        ({"fullnameOverride": "b" * 40}, "fullnameOverride"),
        ({"image": {"tag": 1.10}}, "image.tag: Invalid type. Expected: string"),
        ({"installers": {"image": {"tag": 20240601}}}, "installers.image.tag: Invalid type. Expected: string"),
        ({"nats": {"image": {"tag": ""}}}, "nats.image.tag"),
        ({"nameOverride": "-"}, "nameOverride"),
        ({"pods": {"tolerations": {"key": "x"}}}, "pods.tolerations"),
        ({"services": {"provisioner": {"affinty": {}}}}, "affinty is not allowed"),
        ({"services": {"provisioner": {"podAnnotations": {"a": 1}}}}, "services.provisioner.podAnnotations.a"),
        ({"pods": {"extraEnv": [{"name": "TRELLIS_NATS_URL", "value": "x"}]}}, "pods.extraEnv: TRELLIS_NATS_URL"),
        (
            {"services": {"provisioner": {"extraEnv": [{"name": "TRELLIS_LOG_LEVEL", "value": "x"}]}}},
            "services.provisioner.extraEnv: TRELLIS_LOG_LEVEL",
        ),
        ({"global": {"imagePullSecrets": [{"secret": "registry"}]}}, "global.imagePullSecrets.0: name is required"),
        (
            {"services": {"provisioner": {"settings": {"TRELLIS_NODE_INSTALLER_IMAGE": "x"}}}},
            "set by installers.image",
        ),
    ],
)
def test_values_that_cannot_be_are_refused_by_their_name(values: dict[str, Any], expected_text: str) -> None:
    with pytest.raises(ChartRefusedError, match=re.escape(expected_text)):
        rendered(**values)


# --- the chart ---


def test_the_chart_asks_for_the_kubernetes_that_its_definitions_need() -> None:
    """The page on compatibility says why; the definitions' rules are checked there by a server of that version."""
    assert METADATA["kubeVersion"] == ">=1.30.0-0"
    page = (ROOT / "docs/compatibility.md").read_text(encoding="utf-8")
    [row] = [line for line in page.splitlines() if line.startswith("| API server")]
    assert "1.30 and later" in row
    assert "1.29" not in row


def test_artifact_hub_annotations_list_all_images_and_crds() -> None:
    annotations = METADATA["annotations"]
    named = {item["image"] for item in yaml.safe_load(annotations["artifacthub.io/images"])}
    found = rendered(**PARTS)
    assert named == {*images(found).values(), str(variable(found, "provisioner", "NODE_INSTALLER_IMAGE"))}
    rendered_values = {
        item["name"]: (item["kind"], item["version"]) for item in yaml.safe_load(annotations["artifacthub.io/crds"])
    }
    kinds = [kind for each in BY_DIRECTORY.values() for kind in each]
    assert set(rendered_values) == {kind.name for kind in kinds}
    assert all(item["description"] for item in yaml.safe_load(annotations["artifacthub.io/crds"]))
    assert annotations["artifacthub.io/license"] == "Apache-2.0"


def test_the_generated_parts_are_the_committed_ones() -> None:
    assert {name: (ROOT / name).read_text(encoding="utf-8") for name in documents(ROOT)} == documents(ROOT)
