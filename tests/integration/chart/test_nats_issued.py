"""The chart's Certificate where cert-manager is not, and by the definitions of its newest release, which does not run.

``tests/e2e/operators/test_cert_manager.py`` runs cert-manager itself, of the newest release that can be built.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import yaml

from support.chart.rendered import CHART, ChartRefusedError, Manifest, helm, of, only, rendered
from support.examples.applied_examples import Kubectl
from support.operators.operators_of_others import CERT_MANAGER, served
from trellis.kube.resources import Resource
from trellis_dev.localcluster import ClusterInfo
from trellis_dev.localcluster.api import Api

pytestmark = [pytest.mark.cluster, pytest.mark.thorough]

STATEFUL_SETS = Resource("apps", "v1", "statefulsets", "StatefulSet", namespaced=True)
STRICTLY = ("apply", "--server-side", "--dry-run=server", "--validate=strict", "-f")
TLS = {"enabled": True, "certManager": {"issuerRef": {"name": "lab"}}}
FULL = {
    "enabled": True,
    "certManager": {
        "issuerRef": {"name": "lab", "kind": "ClusterIssuer", "group": "cert-manager.io"},
        "duration": "24h",
        "renewBefore": "8h30m",
    },
}


def test_without_cert_manager_helm_names_what_is_missing_and_makes_nothing(
    cluster: ClusterInfo, cluster_api: Api, namespace: str
) -> None:
    values = {"services": only(), "crds": {"install": False}, "nats": {"tls": TLS}}
    options = ("--namespace", namespace, "--install", "--wait=false", "--no-hooks")
    with pytest.raises(ChartRefusedError, match=r'"Certificate" .*"cert-manager\.io/v1"'):
        helm("upgrade", "bus", str(CHART), *options, values=values, kubeconfig=Path(cluster.kubeconfig))
    assert not cluster_api.ok(STATEFUL_SETS.path(namespace, "trellis-nats"))


@pytest.mark.parametrize("tls", [TLS, FULL], ids=["as little as can be", "everything"])
def test_the_newest_definition_takes_the_certificate_and_no_field_that_it_does_not_have(
    cluster: ClusterInfo, namespace: str, tmp_path: Path, tls: dict[str, Any]
) -> None:
    kubectl = Kubectl(cluster)
    found = of(rendered(namespace, nats={"tls": tls}))["Certificate", namespace, "trellis-nats"]
    with served(kubectl, CERT_MANAGER):
        kubectl(*STRICTLY, str(written(found, tmp_path / "as-it-is.yaml")))
        for name in found["spec"]:
            misspelt = {key if key != name else f"{key}x": value for key, value in found["spec"].items()}
            refused = kubectl.refused(*STRICTLY, str(written(found | {"spec": misspelt}, tmp_path / f"{name}.yaml")))
            assert f".spec.{name}x" in refused


def written(found: Manifest, path: Path) -> Path:
    path.write_text(yaml.safe_dump(found), encoding="utf-8")
    return path
