"""The chart's NATS: three servers that find each other, or one; certificates; values that are refused."""

from __future__ import annotations

import importlib.util
import re
from pathlib import Path
from typing import Any

import pytest
import yaml

from support.chart.bus_secret import options_of, users_of
from support.chart.rendered import CHART, SYSTEM, ChartRefusedError, Manifest, helm, hooks, notes, of, rendered
from trellis.bus.accounts.accounts import accounts

ISSUED: dict[str, Any] = {"enabled": True, "certManager": {"issuerRef": {"name": "lab"}}}
OWN = {"enabled": True, "secretName": "bus-certificates"}
MADE = {"enabled": True}
CA_FILE = "/etc/trellis/nats-ca/ca.crt"


def nats(**values: Any) -> dict[tuple[str, str, str], Manifest]:
    """Return the chart's manifests with these values of ``nats``."""
    return of(rendered(nats=values))


def servers(found: dict[tuple[str, str, str], Manifest]) -> Manifest:
    spec: Manifest = found["StatefulSet", SYSTEM, "trellis-nats"]["spec"]
    return spec


def config(found: dict[tuple[str, str, str], Manifest]) -> str:
    text: str = found["ConfigMap", SYSTEM, "trellis-nats"]["data"]["nats.conf"]
    return text


def test_three_servers_start_together_are_spread_evicted_one_at_a_time_and_know_each_others_addresses() -> None:
    found = nats()
    spec = servers(found)
    assert (spec["replicas"], spec["podManagementPolicy"], spec["serviceName"]) == (
        3,
        "Parallel",
        "trellis-nats-headless",
    )
    assert [constraint["topologyKey"] for constraint in spec["template"]["spec"]["topologySpreadConstraints"]] == [
        "kubernetes.io/hostname",
        "topology.kubernetes.io/zone",
    ]
    assert found["PodDisruptionBudget", SYSTEM, "trellis-nats"]["spec"]["maxUnavailable"] == 1
    headless = found["Service", SYSTEM, "trellis-nats-headless"]["spec"]
    assert headless["clusterIP"] == "None"
    assert headless["publishNotReadyAddresses"], "they find each other before they are ready"
    routes = re.findall(r'"nats-route://routes:\w{64}@([^"]+)"', users_of(hooks("pre-install"))["routes.conf"])
    assert routes == [f"trellis-nats-{ordinal}.trellis-nats-headless.{SYSTEM}:6222" for ordinal in range(3)]
    assert 'include "routes.conf"' in config(found)
    ports = [item["ports"] for item in found["NetworkPolicy", SYSTEM, "trellis-nats"]["spec"]["ingress"]]
    assert [port[0]["port"] for port in ports] == ["client", "cluster"]


def test_one_server_has_nothing_of_a_cluster() -> None:
    found = nats(replicas=1)
    spec = servers(found)
    assert (spec["replicas"], spec["serviceName"]) == (1, "trellis-nats")
    assert "podManagementPolicy" not in spec, "as an installed one has it: it cannot be changed"
    assert "cluster {" not in config(found)
    assert not {("Service", SYSTEM, "trellis-nats-headless"), ("PodDisruptionBudget", SYSTEM, "trellis-nats")} & set(
        found
    )


@pytest.mark.parametrize(
    ("values", "copies"),
    [
        ({}, "3"),
        ({"replicas": 1}, None),
        ({"enabled": False, "url": "nats://n:4222"}, None),
        ({"enabled": False, "url": "nats://n:4222", "streamReplicas": 5}, "5"),
    ],
    ids=["three servers", "one", "one's own", "one's own cluster"],
)
def test_services_make_streams_with_a_copy_on_each_server(values: dict[str, Any], copies: str | None) -> None:
    for deployment in deployments(nats(**values)):
        assert environment(deployment).get("TRELLIS_STREAM_REPLICAS") == copies


def deployments(found: dict[tuple[str, str, str], Manifest]) -> list[Manifest]:
    chosen = [item for key, item in found.items() if key[0] == "Deployment"]
    assert chosen
    return chosen


def environment(deployment: Manifest) -> dict[str, str]:
    [container] = deployment["spec"]["template"]["spec"]["containers"]
    return {item["name"]: item["value"] for item in container["env"] if "value" in item}


def test_the_account_has_room_for_every_copy_and_each_server_for_one_of_each_stream() -> None:
    total = int(re.findall(r"max_file: (\d+)\n", accounts(["c"]))[0])
    for replicas in (1, 3):
        values = {"replicas": replicas, "storage": {"size": "2600Mi"}}
        found = nats(**values)
        assert f"max_file: {total * replicas}\n" in users_of(hooks("pre-install", nats=values))["accounts.conf"]
        [room] = re.findall(r"max_file_store: (\d+)\n", config(found))
        assert total <= int(room) == int(2600 * 1024 * 1024 * 0.9)


@pytest.mark.parametrize(
    ("size", "room"), [("3Gi", 2899102924), ("4G", 3600000000), ("1.5Ti", 1484340697497), ("5000000000", 4500000000)]
)
def test_a_server_stores_less_than_its_claim_has(size: str, room: int) -> None:
    assert f"max_file_store: {room}\n" in config(nats(storage={"size": size}))


@pytest.mark.parametrize(
    ("values", "reason"),
    [
        ({"storage": {"size": "2Gi"}}, "nats.storage.size: 2Gi is too small"),
        ({"tls": {**ISSUED, "secretName": "own"}}, "nats.tls: secretName is for"),
        ({"tls": {"secretName": "own"}}, "nats.tls.enabled: is false"),
        ({"caSecret": "ca"}, "nats.caSecret: is for"),
        ({"tls": MADE, "existingSecret": "bus"}, "nats.tls: needs secretName or certManager"),
        ({"seedsSecret": "bus"}, "renamed to nats.existingSecret"),
    ],
    ids=[
        "too small a claim",
        "two kinds of certificates",
        "certificates without TLS",
        "an authority of ours",
        "nobody makes certificates",
        "a former name",
    ],
)
def test_conflicting_values_are_refused_by_name(values: dict[str, Any], reason: str) -> None:
    with pytest.raises(ChartRefusedError, match=re.escape(reason)):
        nats(**values)


@pytest.mark.parametrize("replicas", [0, 2, 5, "3"])
def test_another_number_of_servers_is_refused(replicas: object) -> None:
    with pytest.raises(ChartRefusedError, match="replicas"):
        nats(replicas=replicas)


@pytest.mark.parametrize(
    ("tls", "secret"),
    [(MADE, "trellis-bus-tls"), (ISSUED, "trellis-nats-certificate"), (OWN, "bus-certificates")],
    ids=["made", "issued", "own"],
)
def test_with_tls_servers_have_the_key_and_services_the_authority_alone(tls: dict[str, Any], secret: str) -> None:
    found = nats(tls=tls)
    volumes = {item["name"]: item for item in servers(found)["template"]["spec"]["volumes"]}
    assert volumes["tls"]["secret"]["secretName"] == secret
    assert config(found).count('key_file: "/etc/nats-tls/tls.key"') == 2, "of clients and of the other servers"
    assert "verify: true" in config(found)
    for deployment in deployments(found):
        pod = deployment["spec"]["template"]["spec"]
        [volume] = [item["secret"] for item in pod["volumes"] if item["name"] == "nats-ca"]
        assert (volume["secretName"], volume["items"]) == (secret, [{"key": "ca.crt", "path": "ca.crt"}])
        [mount] = [
            volume_mount for volume_mount in pod["containers"][0]["volumeMounts"] if volume_mount["name"] == "nats-ca"
        ]
        assert environment(deployment)["TRELLIS_NATS_CA_FILE"] == f"{mount['mountPath']}/ca.crt" == CA_FILE
        assert environment(deployment)["TRELLIS_NATS_URL"] == f"tls://trellis-nats.{SYSTEM}:4222"


def test_the_test_of_an_installation_believes_the_bus_as_services_do() -> None:
    [pod] = [hook for hook in hooks("test", nats={"tls": MADE}) if hook["kind"] == "Pod"]
    [container] = pod["spec"]["containers"]
    assert {"name": "TRELLIS_NATS_CA_FILE", "value": CA_FILE} in container["env"]
    assert [volume["name"] for volume in pod["spec"]["volumes"]] == [
        volume_mount["name"] for volume_mount in container["volumeMounts"]
    ]
    assert "nats-ca" in [volume["name"] for volume in pod["spec"]["volumes"]]


@pytest.mark.parametrize(
    ("tls", "reloads"), [(MADE, False), (ISSUED, True), (OWN, True)], ids=["made", "issued", "own"]
)
def test_servers_reload_certificates_that_another_controller_renews(tls: dict[str, Any], *, reloads: bool) -> None:
    pod = servers(nats(tls=tls))["template"]["spec"]
    assert [container["name"] for container in pod["containers"]] == (["nats", "reloader"] if reloads else ["nats"])
    assert pod.get("shareProcessNamespace", False) is reloads
    for container in pod["containers"]:
        assert container["securityContext"]["capabilities"] == {"drop": ["ALL"]}
        assert container["securityContext"]["readOnlyRootFilesystem"]
        assert {"limits", "requests"} <= set(container["resources"])
    for container in pod["containers"][1:]:
        python, option, module = container["command"][:3]
        assert (python, option) == ("python", "-m")
        assert importlib.util.find_spec(module), "what the pod runs is a module of the image"


def test_servers_are_restarted_for_other_certificates_and_not_for_when_they_are_renewed() -> None:
    def pod(tls: dict[str, Any]) -> tuple[str, Manifest]:
        template = servers(nats(tls=tls))["template"]
        return template["metadata"]["annotations"]["checksum/server"], template["spec"]

    sooner = {"enabled": True, "certManager": ISSUED["certManager"] | {"duration": "24h", "renewBefore": "8h"}}
    assert pod(sooner) == pod(ISSUED)
    assert pod(OWN) != pod(ISSUED) != pod({"enabled": False})


def test_an_issued_certificate_is_for_every_name_that_a_server_is_called_by() -> None:
    found = nats(tls=ISSUED)
    certificate = found["Certificate", SYSTEM, "trellis-nats"]["spec"]
    assert certificate["issuerRef"] == {"name": "lab", "kind": "Issuer"}
    assert certificate["secretName"] == "trellis-nats-certificate"
    assert {"server auth", "client auth"} <= set(certificate["usages"])
    made = hooks("pre-install", nats={"tls": MADE})
    assert options_of(made, "tls-name") == certificate["dnsNames"], "and so is one that the Job makes"
    called = [route.partition(":")[0] for route in options_of(made, "route")]
    called += [
        environment(deployment)["TRELLIS_NATS_URL"].split("/")[2].partition(":")[0] for deployment in deployments(found)
    ]
    for name in called:
        wildcard = "*." + name.split(".", 1)[1]
        assert {name, wildcard} & set(certificate["dnsNames"]), name


def test_a_server_of_ones_own_may_have_an_authority_of_ones_own() -> None:
    for deployment in deployments(nats(enabled=False, url="tls://nats.example.com:4222", caSecret="bus-ca")):
        [volume] = [item for item in deployment["spec"]["template"]["spec"]["volumes"] if item["name"] == "nats-ca"]
        assert volume["secret"]["secretName"] == "bus-ca"
        assert environment(deployment)["TRELLIS_NATS_CA_FILE"] == CA_FILE


def test_a_small_cluster_has_one_process_and_one_server() -> None:
    values = yaml.safe_load((CHART / "values-small.yaml").read_text(encoding="utf-8"))
    found = of(
        [
            item
            for item in yaml.safe_load_all(helm("template", "t", str(CHART), "--namespace", SYSTEM, values=values))
            if item
        ]
    )
    assert servers(found)["replicas"] == 1
    [deployment] = deployments(found)
    assert deployment["spec"]["replicas"] == 1


def test_the_notes_name_a_secret_of_the_user_that_does_not_exist(tmp_path: Path) -> None:
    assert "Secret seeds-of-mine" in notes(tmp_path, nats={"existingSecret": "seeds-of-mine"})
    assert "Secret seeds" not in notes(tmp_path)
