"""The console in the chart: off unless asked for, a process of its own that may do nothing, and who may come in."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
import yaml

from console.access.permissions import GROUP
from console.settings import Settings
from support.chart.bus_secret import users_of
from support.chart.rendered import CHART, SYSTEM, ChartRefusedError, Manifest, hooks, notes, of, plain, rendered
from support.cluster.grants import manifests
from trellis.config.nats_credentials import new_seed
from trellis.kube.resources import WORKLOADS

NAME = "trellis-console"
ACCOUNT_FILES = "/var/run/secrets/kubernetes.io/serviceaccount"
CONFIRMED = {"auth": "proxy", "proxy": {"secret": "shared"}}
CERTIFIED = {
    "auth": "proxy",
    "proxy": {"caSecret": "authorities"},
    "tlsSecret": "certificate",
    "settings": {"TRELLIS_CONSOLE_PROXY_NAMES": "proxy.example"},
}


def found(*, mode: str = "services", more: dict[str, Any] | None = None, **values: Any) -> dict[Any, Manifest]:
    """Return the objects of the chart with these values of the console; ``more``: of the chart."""
    return of(rendered(mode=mode, services={"console": {"enabled": True, **values}}, **(more or {})))


def pod(objects: dict[Any, Manifest]) -> Manifest:
    return dict(objects["Deployment", SYSTEM, NAME]["spec"]["template"]["spec"])


def container(objects: dict[Any, Manifest]) -> Manifest:
    [runs] = pod(objects)["containers"]
    return dict(runs)


def environment(objects: dict[Any, Manifest]) -> dict[str, str]:
    return {item["name"]: item["value"] for item in container(objects)["env"] if "value" in item}


def test_nothing_is_installed_unless_requested() -> None:
    named = {key for key in of(rendered()) if "console" in key[2] and key[0] != "CustomResourceDefinition"}
    assert not named


@pytest.mark.parametrize("mode", ["services", "bundle"])
@pytest.mark.parametrize("values", [{}, CONFIRMED, CERTIFIED], ids=["token", "proxy by secret", "proxy by certificate"])
def test_its_pod_has_a_process_an_account_and_settings_of_its_own(
    mode: str, values: dict[str, Any], tmp_path: Path
) -> None:
    objects = found(mode=mode, **values)
    its, runs = pod(objects), container(objects)
    assert runs["command"] == [NAME]
    assert its["serviceAccountName"] == NAME
    assert its["securityContext"]["runAsNonRoot"] is True
    assert its["securityContext"]["seccompProfile"] == {"type": "RuntimeDefault"}
    assert runs["securityContext"] == {
        "allowPrivilegeEscalation": False,
        "readOnlyRootFilesystem": True,
        "capabilities": {"drop": ["ALL"]},
    }
    assert {mount["name"] for mount in runs["volumeMounts"]} == {volume["name"] for volume in its["volumes"]}
    environment_values = {name.removeprefix("TRELLIS_").lower(): value for name, value in environment(objects).items()}
    assert set(environment_values) <= set(Settings.model_fields)
    seed = tmp_path / "seed.nk"  # the settings read the key of the bus, which the pod has as a file
    seed.write_text(new_seed())
    read = environment_values | {"nats_nkey_file": str(seed)}
    settings = Settings(**read)  # type: ignore[arg-type]  # as the environment gives them
    assert settings.console_auth == values.get("auth", "token")
    assert settings.tls is ("tlsSecret" in values)
    mounted = {mount["mountPath"] for mount in runs["volumeMounts"]}
    for name, path in environment_values.items():
        if name.endswith("_file"):
            assert path.rpartition("/")[0] in mounted, f"{name} is in the pod"
    [other] = [key for key in objects if key[0] == "Deployment" and key[2] == "trellis-bundle"] or [None]
    assert (other is None) == (mode == "services")
    if other is not None:
        [bundle] = objects[other]["spec"]["template"]["spec"]["containers"]
        assert "console" not in bundle["command"]


@pytest.mark.parametrize("mode", ["services", "bundle"])
def test_with_tokens_its_pod_has_none_of_its_own_and_its_account_no_right(mode: str) -> None:
    objects = found(mode=mode)
    its = pod(objects)
    assert its["automountServiceAccountToken"] is False
    [anchor] = [volume for volume in its["volumes"] if volume["name"] == "api-server"]
    assert anchor["configMap"] == {"name": "kube-root-ca.crt", "items": [{"key": "ca.crt", "path": "ca.crt"}]}
    mounted = {volume_mount["mountPath"]: volume_mount["name"] for volume_mount in container(objects)["volumeMounts"]}
    assert mounted[ACCOUNT_FILES] == "api-server"
    subjects = [subject["name"] for item in objects.values() for subject in item.get("subjects", ())]
    assert NAME not in subjects


@pytest.mark.parametrize("mode", ["services", "bundle"])
def test_behind_a_proxy_its_account_may_impersonate_and_nothing_more(mode: str) -> None:
    objects = found(mode=mode, **CONFIRMED)
    assert "automountServiceAccountToken" not in pod(objects)
    bound = [(key, item["roleRef"]) for key, item in objects.items() if NAME in str(item.get("subjects"))]
    assert [(key[0], role["name"]) for key, role in bound] == [("ClusterRoleBinding", NAME)]
    wanted = of(manifests("console.yaml")) | of(manifests("console-proxy.yaml"))
    assert {key: plain(objects[key]) for key in wanted} == wanted


@pytest.mark.parametrize("values", [{}, CONFIRMED], ids=["token", "proxy"])
def test_wasmcloud_v2_needs_no_permission_of_the_console(values: dict[str, Any]) -> None:
    settings: dict[str, Any] = {"settings": {"TRELLIS_V2_NATS": "tls://nats.wasmcloud:4222"}}
    objects = found(**values, **settings)
    assert environment(objects)["TRELLIS_V2_NATS"] == settings["settings"]["TRELLIS_V2_NATS"]
    roles = [item for item in objects.values() if "console" in item["metadata"]["name"]]
    granted = {group for item in roles for rule in item.get("rules") or () for group in rule["apiGroups"]}
    assert granted
    assert WORKLOADS.group not in granted, "a viewer reads it"


def test_the_users_that_it_may_impersonate_can_be_named() -> None:
    named = CONFIRMED | {"proxy": {"secret": "shared", "users": ["jane@example.com"], "groups": ["dev", "ops team"]}}
    users, groups = found(**named)["ClusterRole", "", NAME]["rules"]
    assert (users["resources"], users["resourceNames"]) == (["users"], ["jane@example.com"])
    assert (groups["resources"], groups["resourceNames"]) == (["groups"], ["dev", "ops team"])


def test_the_role_for_users_is_bound_to_no_subject_and_has_the_permissions_that_the_console_needs() -> None:
    objects = found()
    role = objects["ClusterRole", "", "trellis-console-reader"]
    assert all(rule["apiGroups"] == [GROUP] and rule["verbs"] == ["get"] for rule in role["rules"])
    assert {name for rule in role["rules"] for name in rule["resources"]} == {"traces", "messages", "lattices"}
    assert not [item for item in objects.values() if item.get("roleRef", {}).get("name") == "trellis-console-reader"]


@pytest.mark.parametrize("values", [{}, CERTIFIED], ids=["plain", "TLS"])
def test_its_service_leads_to_its_port(values: dict[str, Any]) -> None:
    objects = found(**values)
    service = objects["Service", SYSTEM, NAME]["spec"]
    labels = objects["Deployment", SYSTEM, NAME]["spec"]["template"]["metadata"]["labels"]
    assert service["selector"].items() <= labels.items()
    [port] = service["ports"]
    [target] = [item for item in container(objects)["ports"] if item["name"] == port["targetPort"]]
    assert target["containerPort"] == port["port"] == Settings.model_fields["console_port"].default
    assert port["name"] == ("https" if values else "http")


def test_only_named_clients_reach_its_port() -> None:
    def lets_in(**values: Any) -> list[Manifest]:
        rules = found(**values)["NetworkPolicy", SYSTEM, NAME]["spec"]["ingress"]
        return [rule for rule in rules if any(port["port"] == "console" for port in rule["ports"])]

    assert lets_in() == []
    peers = [{"namespaceSelector": {"matchLabels": {"kubernetes.io/metadata.name": "ingress-nginx"}}}]
    assert [rule["from"] for rule in lets_in(**{"from": peers})] == [peers]


def test_it_connects_to_the_bus_as_a_user_that_may_only_read() -> None:
    objects = found()
    [seeds] = [volume["secret"] for volume in pod(objects)["volumes"] if volume["name"] == "seeds"]
    assert [item["key"] for item in seeds["items"]] == ["console.trellis.nk"]
    server = users_of(hooks("pre-install", services={"console": {"enabled": True}}))
    [block] = re.findall(r"nkey: \$NKEY_CONSOLE_TRELLIS\n(.*?)\n      }\n", server["accounts.conf"], re.DOTALL)
    allowed = re.findall(r'"([^"]+)"', block.partition("publish")[2].partition("]")[0])
    assert allowed
    assert not [subject for subject in allowed if not subject.startswith("$JS.API.")], "it can say nothing"


def test_it_asks_the_charts_own_jaeger() -> None:
    assert "TRELLIS_JAEGER_URL" not in environment(found())
    objects = found(more={"jaeger": {"enabled": True}})
    url = environment(objects)["TRELLIS_JAEGER_URL"]
    ports = objects["Service", SYSTEM, "trellis-jaeger"]["spec"]["ports"]
    assert url in {f"http://trellis-jaeger.{SYSTEM}:{port['port']}" for port in ports}


def test_helm_test_queries_it_and_notes_explain_how_to_log_in(tmp_path: Any) -> None:
    [runs] = [
        hook["spec"]["containers"][0]
        for hook in hooks("test", services={"console": {"enabled": True}})
        if hook["kind"] == "Pod"
    ]
    assert "console" in runs["command"]
    environment_values = notes(tmp_path, services={"console": {"enabled": True}})
    assert "kubectl -n trellis-system port-forward service/trellis-console 8088" in environment_values
    assert "kubectl create token" in environment_values
    assert "create token" not in notes(tmp_path, services={"console": {"enabled": True, **CONFIRMED}})
    assert "trellis-console" not in notes(tmp_path)


INGRESS = {"enabled": True, "hosts": ["console.example.com"]}
CONTROLLER = [{"namespaceSelector": {"matchLabels": {"kubernetes.io/metadata.name": "ingress-nginx"}}}]


@pytest.mark.parametrize("values", [{}, {"tlsSecret": "certificate"}], ids=["plain", "TLS"])
def test_an_ingress_leads_to_its_service(values: dict[str, Any]) -> None:
    ingress = INGRESS | {"className": "nginx", "annotations": {"example.com/a": "b"}}
    objects = found(ingress=ingress, **{"from": CONTROLLER}, **values)
    made = objects["Ingress", SYSTEM, NAME]
    assert made["metadata"]["annotations"] == {"example.com/a": "b"}
    assert made["spec"]["ingressClassName"] == "nginx"
    [rule] = made["spec"]["rules"]
    [path] = rule["http"]["paths"]
    assert (rule["host"], path["path"], path["pathType"]) == ("console.example.com", "/", "Prefix")
    [port] = objects["Service", SYSTEM, NAME]["spec"]["ports"]
    assert path["backend"]["service"] == {"name": NAME, "port": {"name": port["name"]}}
    assert "tls" not in made["spec"]
    assert "TRELLIS_CONSOLE_URL" not in environment(objects), "the Host header is right"


def test_behind_an_ingress_with_tls_cookies_need_tls() -> None:
    tls = [{"hosts": INGRESS["hosts"], "secretName": "certificate"}]
    objects = found(ingress=INGRESS | {"tls": tls}, **{"from": CONTROLLER})
    assert objects["Ingress", SYSTEM, NAME]["spec"]["tls"] == tls
    assert environment(objects)["TRELLIS_CONSOLE_URL"] == "https://console.example.com"
    variables = {"TRELLIS_CONSOLE_URL": "https://elsewhere.example.com"}
    objects = found(ingress=INGRESS | {"tls": tls}, settings=variables, **{"from": CONTROLLER})
    assert environment(objects)["TRELLIS_CONSOLE_URL"] == variables["TRELLIS_CONSOLE_URL"]


def test_a_route_of_a_gateway_leads_to_its_service() -> None:
    route = {
        "enabled": True,
        "parentRefs": [{"name": "public", "namespace": "gateways"}],
        "hostnames": ["console.example.com"],
        "timeouts": {"request": "0s"},
    }
    objects = found(httpRoute=route, **{"from": CONTROLLER})
    spec = objects["HTTPRoute", SYSTEM, NAME]["spec"]
    assert (spec["parentRefs"], spec["hostnames"]) == (route["parentRefs"], route["hostnames"])
    [port] = objects["Service", SYSTEM, NAME]["spec"]["ports"]
    assert spec["rules"] == [
        {"backendRefs": [{"name": NAME, "port": port["port"]}], "timeouts": route["timeouts"]},
    ]


@pytest.mark.parametrize(
    ("values", "expected_text"),
    [
        ({"ingress": INGRESS}, "services.console.from: needs"),
        ({"httpRoute": {"enabled": True, "parentRefs": [{"name": "g"}]}}, "services.console.from: needs"),
        ({"ingress": {"enabled": True}, "from": CONTROLLER}, "services.console.ingress.hosts: needs"),
        ({"httpRoute": {"enabled": True}, "from": CONTROLLER}, "services.console.httpRoute.parentRefs: needs"),
        ({"ingress": {"hosts": ["Console"]}}, "services.console.ingress.hosts.0"),
        ({"auth": "nobody"}, "services.console.auth"),
        ({"auth": "proxy"}, "services.console.proxy: needs secret or caSecret"),
        ({"proxy": {"secret": "s"}}, "services.console.proxy: is for auth proxy"),
        ({"auth": "proxy", "proxy": {"caSecret": "c"}}, "services.console.proxy.caSecret: needs tlsSecret"),
        ({**CERTIFIED, "settings": {}}, "services.console.proxy.caSecret: needs tlsSecret, and settings with"),
        (
            {"auth": "proxy", "proxy": {"secret": "s", "groups": ["system:masters"]}},
            "services.console.proxy.groups: system:masters",
        ),
        ({"auth": "proxy", "proxy": {"secret": "s", "users": ["*"]}}, "services.console.proxy.users.0"),
        ({"replicas": 2}, "services.console.replicas"),
        ({"settings": {"TRELLIS_CONSOLE_PORT": 1}}, "TRELLIS_CONSOLE_PORT is not allowed"),
        ({"settings": {"TRELLIS_CONSOLE_AUTH": "proxy"}}, "TRELLIS_CONSOLE_AUTH is not allowed"),
    ],
)
def test_values_that_do_not_go_together_are_refused(values: dict[str, Any], expected_text: str) -> None:
    with pytest.raises(ChartRefusedError, match=re.escape(expected_text)):
        found(**values)


def test_values_of_a_former_chart_have_no_console() -> None:
    """As ``--reset-then-reuse-values`` with what a release before it was given: no part of it is needed."""
    assert ("Deployment", SYSTEM, NAME) not in of(rendered(services={"console": None}))


def test_the_values_of_the_page_are_values() -> None:
    page = (CHART.parents[2] / "docs/console/run.md").read_text()
    blocks = [yaml.safe_load(item) for item in re.findall(r"```yaml values\n(.*?)```", page, re.DOTALL)]
    assert len(blocks) == 3
    for values in blocks:
        assert ("Deployment", SYSTEM, NAME) in of(rendered(**values))
