"""From a release of KWasm's chart to ours, with the values of that release: beside it, and in its place."""

from __future__ import annotations

import http
from collections.abc import Iterator
from pathlib import Path

import pytest
import yaml

from support.chart.rendered import CHART, ChartRefusedError, helm
from trellis.kube.resources import DEPLOYMENTS, NAMESPACES
from trellis_dev.localcluster import ClusterInfo
from trellis_dev.localcluster.api import Api

pytestmark = pytest.mark.cluster

RELEASE = "kwasm-operator"
DEFAULTS = {
    "replicaCount": 1,
    "image": {"repository": "ghcr.io/kwasm/kwasm-operator", "pullPolicy": "IfNotPresent", "tag": "x"},
    "imagePullSecrets": [],
    "nameOverride": "",
    "kwasmOperator": {"autoProvision": "false", "installerImage": "ghcr.io/kwasm/kwasm-node-installer:main"},
    "serviceAccount": {"create": True, "annotations": {}, "name": ""},
    "service": {"type": "ClusterIP", "port": 80},
    "resources": {},
    "nodeSelector": {},
    "tolerations": [],
    "affinity": {},
}
"""As KWasm's chart has them."""
CONFIG_MAP = "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: operator}\n"
VALUES = ("--set", "kwasmOperator.autoProvision=true", "--set", "kwasmOperator.installerImage=example.com/i:1")
OURS = ("--set", "crds.install=false", "--set", "nats.enabled=false", "--set", "nats.url=nats://nats.example.com:4222")


@pytest.fixture
def kwasm(cluster: ClusterInfo, cluster_api: Api, namespace: str, tmp_path: Path) -> Iterator[Path]:
    """A release of a chart with KWasm's values; what it runs does not matter here."""
    chart = tmp_path / RELEASE
    (chart / "templates").mkdir(parents=True)
    (chart / "Chart.yaml").write_text(f"apiVersion: v2\nname: {RELEASE}\nversion: 0.2.3\n")
    (chart / "values.yaml").write_text(yaml.safe_dump(DEFAULTS))
    (chart / "templates" / "all.yaml").write_text(CONFIG_MAP)
    kubeconfig = Path(cluster.kubeconfig)
    helm("install", RELEASE, str(chart), "--namespace", namespace, *VALUES, kubeconfig=kubeconfig)
    yield kubeconfig
    helm("uninstall", RELEASE, "--namespace", namespace, "--ignore-not-found", "--no-hooks", kubeconfig=kubeconfig)
    cluster_api.call("DELETE", NAMESPACES.path(None, f"{namespace}-installers"))


def environment(api: Api, namespace: str) -> dict[str, str]:
    status, found = api.call("GET", DEPLOYMENTS.path(namespace, "trellis-provisioner"))
    assert status == http.HTTPStatus.OK, found
    [container] = found["spec"]["template"]["spec"]["containers"]
    return {item["name"]: item["value"] for item in container["env"] if "value" in item}


@pytest.mark.thorough
def test_settings_of_kwasms_chart_apply_in_their_new_place(kwasm: Path, cluster_api: Api, namespace: str) -> None:
    place = ("--namespace", namespace)
    # Objects that are one a cluster belong to one installation, so it is another namespace of installers, too.
    ours = (*OURS, "--set", f"installers.namespace={namespace}-installers")
    with pytest.raises(ChartRefusedError, match=r"no default.*helm --reset-then-reuse-values"):
        helm("upgrade", RELEASE, str(CHART), *place, "--reuse-values", *ours, kubeconfig=kwasm)
    helm("upgrade", RELEASE, str(CHART), *place, "--reset-then-reuse-values", *ours, kubeconfig=kwasm)
    found = environment(cluster_api, namespace)
    assert (found["TRELLIS_AUTO_PROVISION"], found["TRELLIS_INSTALLER_IMAGE"]) == ("true", "example.com/i:1")


def test_the_values_that_helm_gives_of_kwasms_release_are_taken(kwasm: Path, namespace: str, tmp_path: Path) -> None:
    values = tmp_path / "kwasm.yaml"
    values.write_text(helm("get", "values", RELEASE, "--namespace", namespace, "--output", "yaml", kubeconfig=kwasm))
    rendered = helm("template", "trellis", str(CHART), "--values", str(values), "--namespace", "trellis-system")
    assert '"example.com/i:1"' in rendered
