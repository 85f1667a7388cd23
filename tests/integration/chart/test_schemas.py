"""The real kubeconform takes the examples and all that the chart has, and finds what is wrong with broken ones."""

from __future__ import annotations

import copy
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import yaml

from support.chart.rendered import hooks, rendered
from support.cluster.kubeconform import SCHEMAS, conform, published
from trellis_dev.localcluster.api import Api

pytestmark = [pytest.mark.cluster, pytest.mark.timeout(420)]

EXAMPLES = SCHEMAS.parent / "examples"
OURS = {path.parent.name for path in SCHEMAS.glob("*/*.json")}
FILES = sorted(path for path in EXAMPLES.rglob("*.yaml") if path.name != "kustomization.yaml")
THEIRS = {
    "argocd/application.yaml",
    "external-secret/external-secret.yaml",
    "flux/sync.yaml",
    "keda/scaled-object.yaml",
}
"""All in them is of others' kinds, to whose definitions they are held in ``tests/integration/examples``."""
Manifest = dict[str, Any]


def objects(path: Path) -> list[Manifest]:
    return [item for item in yaml.safe_load_all(path.read_text(encoding="utf-8")) if item]


def of_ours(found: list[Manifest]) -> list[Manifest]:
    return [item for item in found if item["apiVersion"].partition("/")[0] in OURS]


def native(found: list[Manifest]) -> list[Manifest]:
    """Those that Kubernetes itself serves; others bring schemas of their own."""
    groups = {"", "apps", "batch", "autoscaling", "policy"}
    return [
        item
        for item in found
        if "/" not in item["apiVersion"]
        or item["apiVersion"].partition("/")[0] in groups
        or item["apiVersion"].partition("/")[0].endswith(".k8s.io")
    ]


def stream(found: list[Manifest]) -> str:
    return yaml.safe_dump_all(found)


@pytest.fixture(scope="module")
def catalogue(cluster_api: Api, tmp_path_factory: pytest.TempPathFactory) -> Path:
    everything = [item for path in FILES for item in objects(path)] + rendered()
    everything += hooks("pre-install") + hooks("pre-delete") + hooks("test")
    versions = {item["apiVersion"] for item in native(everything)}
    return published(cluster_api, versions, tmp_path_factory.mktemp("schemas"))


@pytest.mark.parametrize("path", FILES, ids=lambda path: str(path.relative_to(EXAMPLES)))
def test_an_example_matches_the_schema_of_its_kind(path: Path, catalogue: Path) -> None:
    found = objects(path)
    checked = [item for item in found if item in native(found) or item in of_ours(found)]
    assert bool(checked) != (str(path.relative_to(EXAMPLES)) in THEIRS), "has nothing that has a schema here"
    if not checked:
        return
    assert conform((), catalogue, standard_input=stream(checked)) == []


@pytest.mark.parametrize("values", [{}, {"mode": "bundle"}], ids=["services", "bundle"])
def test_all_objects_of_the_chart_match_the_schemas_of_kubernetes(values: Manifest, catalogue: Path) -> None:
    for found in (rendered(**values), *(hooks(event, **values) for event in ("pre-install", "pre-delete", "test"))):
        assert native(found) == found
        assert conform((), catalogue, standard_input=stream(found)) == []


SHIM: Manifest = {
    "apiVersion": "runtime.spinkube.dev/v1alpha1",
    "kind": "Shim",
    "metadata": {"name": "spin"},
    "spec": {
        "nodeSelector": {"spin": "true"},
        "fetchStrategy": {"anonHttp": {"location": "https://example.com/spin.tar.gz", "sha256": "ab" * 32}},
        "runtimeClass": {"name": "spin", "handler": "spin"},
        "rolloutStrategy": {"type": "rolling", "rolling": {"maxUpdate": "20%"}},
    },
}


def without_handler(one: Manifest) -> None:
    del one["spec"]["runtimeClass"]["handler"]


def misspelt(one: Manifest) -> None:
    one["spec"]["nodeSelektor"] = {}


def wrong_type(one: Manifest) -> None:
    one["spec"]["nodeSelector"] = "spin"


def wrong_choice(one: Manifest) -> None:
    one["spec"]["rolloutStrategy"]["type"] = "at-once"


def without_name(one: Manifest) -> None:
    one["apiVersion"] = "runtime.spinkube.dev/v1"


def test_a_shim_as_people_write_it_is_taken() -> None:
    assert conform((), standard_input=json.dumps(SHIM)) == []


@pytest.mark.parametrize(
    ("breaks", "expected_text"),
    [
        (without_handler, "handler"),
        (misspelt, "nodeSelektor"),
        (wrong_type, "nodeSelector"),
        (wrong_choice, "rolloutStrategy"),
        (without_name, "could not find schema for Shim"),
    ],
)
def test_a_broken_one_is_refused_by_what_is_wrong(breaks: Callable[[Manifest], None], expected_text: str) -> None:
    broken = copy.deepcopy(SHIM)
    breaks(broken)
    [problem] = conform((), standard_input=json.dumps(broken))
    assert problem.startswith("Shim spin: ")
    assert expected_text in problem


def test_a_field_that_kubernetes_does_not_have_is_found_in_its_own_kinds(catalogue: Path) -> None:
    [deployment, *_] = [copy.deepcopy(item) for item in rendered() if item["kind"] == "Deployment"]
    deployment["spec"]["template"]["spec"]["containers"][0]["readynessProbe"] = {}
    [problem] = conform((), catalogue, standard_input=json.dumps(deployment))
    assert "readynessProbe" in problem
