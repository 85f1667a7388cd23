"""The optional parts of the chart: their settings, the targets of spans, and monitors."""

from __future__ import annotations

import json
import re
from typing import Any

import pytest
import yaml

from support.chart.rendered import CHART, ChartRefusedError, Manifest, of, rendered

HOME = "trellis-system"
PROMETHEUS = {"podMonitor": {"enabled": True}, "prometheusRule": {"enabled": True}, "dashboard": {"enabled": True}}
ALL: dict[str, Any] = {
    "jaeger": {"enabled": True},
    "collector": {"enabled": True},
    "monitoring": PROMETHEUS,
    "latticeNats": {"enabled": True},
    "wadm": {"enabled": True},
}
KEPT = {**ALL, "jaeger": {"enabled": True, "storage": {"type": "badger"}}}
ELSEWHERE: dict[str, Any] = {
    "otlpEndpoint": "http://otel.example.com:4318",
    "wadm": {
        "enabled": True,
        "nats": {"url": "tls://nats.example.com:4222", "credentialsSecret": "creds", "caSecret": "ca"},
    },
}
PARTS = ("collector", "jaeger", "lattice-nats", "wadm")


def workloads(found: list[Manifest]) -> list[Manifest]:
    return [item for item in found if item["kind"] in {"Deployment", "StatefulSet"}]


def container(workload: Manifest) -> Manifest:
    [found] = workload["spec"]["template"]["spec"]["containers"]
    return dict(found)


def environment(workload: Manifest) -> dict[str, str]:
    return {item["name"]: item["value"] for item in container(workload).get("env", ()) if "value" in item}


def part(found: list[Manifest], name: str) -> Manifest:
    [workload] = [item for item in workloads(found) if item["metadata"]["name"] == f"trellis-{name}"]
    return workload


def test_nothing_is_installed_unless_requested() -> None:
    names = {item["metadata"]["name"] for item in rendered()}
    assert not names & {f"trellis-{name}" for name in (*PARTS, "dashboard")}
    assert not [item for item in rendered() if item["apiVersion"].startswith("monitoring.coreos.com")]


@pytest.mark.parametrize("values", [ALL, KEPT, ELSEWHERE], ids=["all", "with a volume", "elsewhere"])
def test_no_part_has_a_privilege_a_token_or_more_than_its_network_policy_lets_in(values: dict[str, Any]) -> None:
    found = rendered(**values)
    policies = [item["spec"] for item in found if item["kind"] == "NetworkPolicy"]
    for workload in workloads(found):
        component = workload["metadata"]["labels"]["app.kubernetes.io/component"]
        if component not in PARTS:
            continue
        pod, runs = workload["spec"]["template"]["spec"], container(workload)
        assert pod["automountServiceAccountToken"] is False
        assert pod["securityContext"]["runAsNonRoot"] is True
        assert pod["securityContext"]["seccompProfile"] == {"type": "RuntimeDefault"}
        assert runs["securityContext"] == {
            "allowPrivilegeEscalation": False,
            "readOnlyRootFilesystem": True,
            "capabilities": {"drop": ["ALL"]},
        }
        assert {"limits", "requests"} <= set(runs["resources"])
        assert {"readinessProbe", "livenessProbe"} <= set(runs)
        claims = {claim["metadata"]["name"] for claim in workload["spec"].get("volumeClaimTemplates", ())}
        volumes = {volume["name"] for volume in pod.get("volumes", ())}
        assert {mount["name"] for mount in runs.get("volumeMounts", ())} == volumes | claims
        labels = workload["spec"]["selector"]["matchLabels"]
        [policy] = [policy for policy in policies if policy["podSelector"]["matchLabels"] == labels]
        ports = {port["name"] for port in runs["ports"]}
        assert {port["port"] for rule in policy["ingress"] for port in rule["ports"]} <= ports
        assert not any(rule.get("from") == [] for rule in policy["ingress"]), "an empty list lets everybody in"


@pytest.mark.parametrize("name", ["nats", "lattice-nats"])
def test_a_nats_server_is_given_time_to_begin_and_is_not_restarted_for_answering_late(name: str) -> None:
    runs = container(part(rendered(**ALL), name))
    begins, ready, lives = (runs[f"{probe}Probe"] for probe in ("startup", "readiness", "liveness"))
    # As upstream's chart asks: for everything, for the server's own part, for JetStream that was switched off.
    paths = [probe["httpGet"]["path"] for probe in (begins, ready, lives)]
    assert paths == ["/healthz", "/healthz?js-server-only=true", "/healthz?js-enabled-only=true"]
    assert begins["periodSeconds"] * begins["failureThreshold"] >= 600
    assert lives["periodSeconds"] * (lives["failureThreshold"] - 1) >= 90
    assert 10 <= lives["timeoutSeconds"] <= lives["periodSeconds"]
    assert ready["periodSeconds"] * ready["failureThreshold"] < lives["periodSeconds"] * (lives["failureThreshold"] - 1)


@pytest.mark.parametrize(
    ("values", "endpoint"),
    [
        ({}, None),
        ({"jaeger": {"enabled": True}}, "http://trellis-jaeger.trellis-system:4318"),
        (ALL, "http://trellis-collector.trellis-system:4318"),
        ({**ALL, "otlpEndpoint": "http://mine:4318"}, "http://mine:4318"),
    ],
    ids=["nowhere", "Jaeger", "the collector before it", "what is said before both"],
)
def test_spans_go_to_the_configured_receiver(values: dict[str, Any], endpoint: str | None) -> None:
    found = rendered(**values)
    services = {(item["metadata"]["name"], port["port"]) for item in found if item["kind"] == "Service"
                for port in item["spec"]["ports"]}  # fmt: skip
    for workload in workloads(found):
        if workload["metadata"]["labels"]["app.kubernetes.io/component"] in {*PARTS, "nats"}:
            continue
        assert environment(workload).get("TRELLIS_OTLP_ENDPOINT") == endpoint
        assert ("TRELLIS_TRACE_SAMPLE_RATIO" in environment(workload)) is (endpoint is not None)
    if endpoint is not None and HOME in endpoint:
        name = endpoint.removeprefix("http://").partition(".")[0]
        assert (name, 4318) in services


def test_the_sampling_ratio_reaches_every_service_unchanged() -> None:
    found = rendered(otlpEndpoint="http://mine:4318", tracing={"sampleRatio": 0.05})
    shares = {environment(item).get("TRELLIS_TRACE_SAMPLE_RATIO") for item in found if item["kind"] == "Deployment"}
    assert shares == {"0.05"}


def test_wadm_is_where_the_lattices_are() -> None:
    assert environment(part(rendered(**ALL), "wadm"))["WADM_NATS_SERVER"] == (
        "nats://trellis-lattice-nats.trellis-system:4222"
    )
    wadm = part(rendered(**ELSEWHERE), "wadm")
    variables = environment(wadm)
    assert variables["WADM_NATS_SERVER"] == "tls://nats.example.com:4222"
    assert variables["WADM_TRACING_ENDPOINT"] == "http://otel.example.com:4318/v1/traces"
    mounted = {mount["name"]: mount["mountPath"] for mount in container(wadm)["volumeMounts"]}
    volumes = {volume["name"]: volume["secret"] for volume in wadm["spec"]["template"]["spec"]["volumes"]}
    for variable, volume, secret in (("CREDS_FILE", "credentials", "creds"), ("TLS_CA_FILE", "ca", "ca")):
        directory, _, file = variables[f"WADM_NATS_{variable}"].rpartition("/")
        assert mounted[volume] == directory
        assert volumes[volume]["secretName"] == secret
        assert [item["path"] for item in volumes[volume]["items"]] == [file]


def test_the_collector_hands_on_what_it_takes_and_names_nothing_that_is_not_there() -> None:
    values = {**ALL, "collector": {"enabled": True, "endpoint": "https://otlp.example.com",
                                   "authorization": {"secret": "key"}}}  # fmt: skip
    found = rendered(**values)
    config = yaml.safe_load(of(found)["ConfigMap", HOME, "trellis-collector"]["data"]["config.yaml"])
    [pipeline] = config["service"]["pipelines"].values()
    for kind in ("receivers", "processors", "exporters"):
        assert set(pipeline[kind]) == set(config[kind])
    assert pipeline["processors"][0] == "memory_limiter", "before anything is kept"
    endpoints = {exporter["endpoint"] for exporter in config["exporters"].values()}
    assert endpoints == {"https://otlp.example.com", "http://trellis-jaeger.trellis-system:4318"}
    collector = container(part(found, "collector"))
    listens = {
        int(protocol["endpoint"].rpartition(":")[2]) for protocol in config["receivers"]["otlp"]["protocols"].values()
    }
    metrics = config["service"]["telemetry"]["metrics"]["readers"][0]["pull"]["exporter"]["prometheus"]["port"]
    assert {port["containerPort"] for port in collector["ports"]} == listens | {metrics}
    [wanted] = re.findall(r"\$\{file:([^}]+)\}", json.dumps(config))
    mounted = {mount["mountPath"]: mount["name"] for mount in collector["volumeMounts"]}
    directory, _, file = wanted.rpartition("/")
    volumes = {volume["name"]: volume for volume in part(found, "collector")["spec"]["template"]["spec"]["volumes"]}
    secret = volumes[mounted[directory]]["secret"]
    assert (secret["secretName"], secret["items"]) == ("key", [{"key": "authorization", "path": file}])


def test_another_configuration_is_another_collector() -> None:
    def annotations(endpoint: str) -> dict[str, str]:
        found = rendered(collector={"enabled": True, "endpoint": endpoint})
        return dict(part(found, "collector")["spec"]["template"]["metadata"]["annotations"])

    assert annotations("http://a:4318") != annotations("http://b:4318")


def test_prometheus_finds_every_metrics_port_and_keeps_the_labels_of_trellis() -> None:
    found = rendered(**ALL)
    [monitor] = [item for item in found if item["kind"] == "PodMonitor"]
    assert monitor["spec"]["namespaceSelector"] == {"matchNames": [HOME]}
    assert all(endpoint["honorLabels"] for endpoint in monitor["spec"]["podMetricsEndpoints"])
    requested = {endpoint["port"] for endpoint in monitor["spec"]["podMetricsEndpoints"]}
    scraped = {}
    for workload in workloads(found):
        labels = workload["spec"]["template"]["metadata"]["labels"]
        assert labels.items() >= monitor["spec"]["selector"]["matchLabels"].items()
        ports = {port["name"] for port in container(workload)["ports"]}
        scraped[labels[monitor["spec"]["jobLabel"]]] = ports & requested
    assert {name for name, ports in scraped.items() if not ports} == {"wadm", "lattice-nats", "nats"}
    assert all(len(ports) <= 1 for ports in scraped.values())


def test_rules_and_dashboard_are_the_files_as_they_stand() -> None:
    values = {**PROMETHEUS, "prometheusRule": {"enabled": True, "labels": {"release": "prometheus"}}}
    found = of(rendered(monitoring=values))
    rule = found["PrometheusRule", HOME, "trellis"]
    assert rule["spec"] == yaml.safe_load((CHART / "monitoring/rules.yaml").read_text())
    assert rule["metadata"]["labels"]["release"] == "prometheus"
    dashboard = found["ConfigMap", HOME, "trellis-dashboard"]
    assert dashboard["metadata"]["labels"]["grafana_dashboard"] == "1"
    [text] = dashboard["data"].values()
    assert json.loads(text) == json.loads((CHART / "monitoring/dashboard.json").read_text())


def test_a_service_monitor_finds_what_a_pod_monitor_finds_under_the_same_names() -> None:
    values = {"serviceMonitor": {"enabled": True, "labels": {"release": "prometheus"}}}
    found = rendered(**{**ALL, "monitoring": values})
    [monitor] = [item for item in found if item["kind"] == "ServiceMonitor"]
    assert monitor["metadata"]["labels"]["release"] == "prometheus"
    [service] = [
        item
        for item in found
        if item["kind"] == "Service"
        and item["metadata"]["labels"].items() >= monitor["spec"]["selector"]["matchLabels"].items()
    ]
    assert service["spec"]["publishNotReadyAddresses"], "what is not ready has metrics too"
    ports = {port["name"] for port in service["spec"]["ports"]}
    assert {endpoint["port"] for endpoint in monitor["spec"]["endpoints"]} == ports == {"health", "metrics"}
    [pod_monitor] = [item for item in rendered(**ALL) if item["kind"] == "PodMonitor"]
    selected = pod_monitor["spec"]["selector"]["matchLabels"]
    assert service["spec"]["selector"] == selected
    component = "__meta_kubernetes_pod_label_" + re.sub(r"[^a-z]", "_", pod_monitor["spec"]["jobLabel"])
    for endpoint in monitor["spec"]["endpoints"]:
        assert endpoint["honorLabels"]
        assert endpoint["relabelings"] == [{"sourceLabels": [component], "targetLabel": "job"}]


@pytest.mark.parametrize("clients", [[], None])
def test_without_clients_nothing_may_scrape_the_parts(clients: object) -> None:
    """An empty list of peers would mean every client."""
    found = of(rendered(**{**ALL, "monitoring": {"podMonitor": {"enabled": True}, "from": clients}}))
    for name in ("jaeger", "collector"):
        rules = found["NetworkPolicy", HOME, f"trellis-{name}"]["spec"]["ingress"]
        assert all(rule.get("from") for rule in rules)
        assert "metrics" not in {port["port"] for rule in rules for port in rule["ports"]}


@pytest.mark.parametrize("name", ["jaeger", "collector"])
@pytest.mark.parametrize("kind", ["podMonitor", "serviceMonitor"])
def test_prometheus_is_let_in_to_metrics_of_parts(kind: str, name: str) -> None:
    found = of(rendered(**{**ALL, "monitoring": {kind: {"enabled": True}}}))
    rules = found["NetworkPolicy", HOME, f"trellis-{name}"]["spec"]["ingress"]
    assert [rule["from"] for rule in rules if rule["ports"][0]["port"] == "metrics"] == [[{"namespaceSelector": {}}]]


@pytest.mark.parametrize(
    ("values", "expected_text"),
    [
        (
            {"monitoring": {"podMonitor": {"enabled": True}, "serviceMonitor": {"enabled": True}}},
            "monitoring.serviceMonitor.enabled: needs podMonitor.enabled=false",
        ),
        ({"wadm": {"enabled": True}}, "wadm.nats.url: needs the address"),
        ({**ALL, "wadm": {"enabled": True, "nats": {"url": "nats://x:4222"}}}, "wadm.nats.url: is for"),
        ({"wadm": {"enabled": True, "nats": {"url": "nats://me:password@x:4222"}}}, "wadm.nats.url"),
        ({"collector": {"enabled": True}}, "collector.endpoint: needs the address"),
        ({"tracing": {"sampleRatio": 10}}, "tracing.sampleRatio"),
        ({"jaeger": {"storage": {"type": "elasticsearch"}}}, "jaeger.storage.type"),
        ({"monitoring": {"podMonitor": {"interval": "often"}}}, "monitoring.podMonitor.interval"),
    ],
)
def test_values_that_do_not_go_together_are_refused_by_name(values: dict[str, Any], expected_text: str) -> None:
    with pytest.raises(ChartRefusedError, match=re.escape(expected_text)):
        rendered(**values)
