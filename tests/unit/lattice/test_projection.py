"""The part of an application that reaches wadm, and the equality of both sides' forms of it."""

from __future__ import annotations

import copy
import json
from pathlib import Path
from typing import Any

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from trellis.lattice.domain.oam import ManifestError
from trellis.lattice.domain.projection import Projection, project

DATA = Path(__file__).parents[2] / "data/lattice/wadm-replies.jsonl"
EXCHANGES = [json.loads(line) for line in DATA.read_text().splitlines()]


def recorded() -> tuple[Any, Any]:
    """Return a manifest as it was put, and as wadm gave it back."""
    (given_back,) = (exchange["reply"]["manifest"] for exchange in EXCHANGES if "manifest" in exchange["reply"])
    puts = [
        yaml.safe_load(exchange["request"])
        for exchange in EXCHANGES
        if "v2" in str(exchange["reply"]) and "put" in exchange["subject"]
    ]
    return puts[0], given_back


def shop(**changes: Any) -> dict[str, Any]:
    manifest: dict[str, Any] = copy.deepcopy(recorded()[0])
    for path, value in changes.items():
        node: Any = manifest
        *parents, last = path.split("__")
        for parent in parents:
            node = node[int(parent) if parent.isdigit() else parent]
        node[last] = value
    return manifest


def test_a_model_returned_by_wadm_has_the_digest_of_the_model_that_was_put() -> None:
    put, given_back = recorded()
    assert put["spec"] != given_back["spec"]
    assert project(put).digest == project(given_back).digest
    assert project(put).manifest["spec"] == given_back["spec"]


def test_the_version_is_no_part_of_the_digest_and_is_put_back_where_it_belongs() -> None:
    found = project(shop(metadata__annotations={"version": "v7", "description": "d"}))
    assert (found.version, found.ignored) == ("v7", ())
    assert found.digest == project(shop(metadata__annotations={"description": "d"})).digest
    assert found.under("v8")["metadata"]["annotations"] == {"description": "d", "version": "v8"}
    assert "version" not in found.manifest["metadata"]["annotations"]


@pytest.mark.parametrize(
    "marks",
    [
        {"kubectl.kubernetes.io/last-applied-configuration": "{}"},
        {"meta.helm.sh/release-name": "x", "helm.sh/chart": "y"},
        {"argocd.argoproj.io/tracking-id": "x", "kustomize.toolkit.fluxcd.io/name": "y"},
        {"trellis.dev/lattice": "default", "trellis.dev/app-name": "x"},
    ],
    ids=["kubectl", "Helm", "Argo CD and Flux", "ours"],
)
def test_labels_of_tools_are_not_projected_and_not_reported_as_ignored(marks: dict[str, str]) -> None:
    description = {"description": "two zones"}
    with_marks = project(shop(metadata__annotations=description | marks, metadata__labels=marks))
    assert with_marks == project(shop(metadata__annotations=description))


def test_annotations_for_trellis_reach_the_service_reflector() -> None:
    requested = {"trellis.dev/service-ports": "db=5432", "service-label.trellis.dev/team": "a"}
    assert project(shop(metadata__annotations=requested)).manifest["metadata"]["annotations"] == requested


def test_a_field_that_wadm_does_not_accept_is_omitted_and_named() -> None:
    found = project(
        shop(
            metadata__annotations={"1password.com/item": "x", "ok.example.com/item": "y"},
            spec__workflow={"steps": []},
            spec__components__0__note="x",
            spec__components__0__traits__0__properties__spread__0__colour="red",
        )
    )
    assert found.ignored == (
        "metadata.annotations.1password.com/item",
        "spec.workflow",
        "spec.components[0].note",
        "spec.components[0].traits[0].properties.spread[0].colour",
    )
    assert project(found.manifest).ignored == ()


def link(**properties: Any) -> dict[str, Any]:
    common = {"namespace": "wasi", "package": "http", "interfaces": ["incoming-handler"], "target": {"name": "ui"}}
    return {"type": "link", "properties": common | properties}


@pytest.mark.parametrize(
    ("trait", "ignored"),
    [
        (link(source={}, source_config=[{"name": "c"}]), "source_config"),
        (link(target_config=[{"name": "c"}]), "target_config"),
        ({"type": "spreadscaler", "properties": {"instances": 1, "replicas": 2}}, "replicas"),
    ],
    ids=["source", "target", "instances"],
)
def test_a_former_field_beside_the_present_one_is_left_out_and_named(trait: dict[str, Any], ignored: str) -> None:
    found = project(shop(spec__components__0__traits=[trait]))
    assert found.ignored == (f"spec.components[0].traits[0].properties.{ignored}",)
    assert ignored not in json.dumps(found.manifest)


@pytest.mark.parametrize(
    "properties",
    [
        {"instances": 1, "most": 5},
        {"instances": 1, "spread": [{"name": "s", "requirements": {}, "colour": "red"}]},
        {"namespace": "wasi", "package": "http", "interfaces": [], "target": 5},
        {"colour": "red"},
        "red",
        None,
    ],
    ids=["scaler with more", "spread with more", "link to nowhere", "of their own", "text", "none"],
)
def test_properties_of_another_trait_type_are_kept_as_by_wadm(properties: Any) -> None:
    found = project(shop(spec__components__0__traits=[{"type": "autoscaler", "properties": properties}]))
    assert found.ignored == ()
    assert found.manifest["spec"]["components"][0]["traits"] == [{"type": "autoscaler", "properties": properties}]


def test_a_trait_of_another_type_that_is_a_link_or_a_scaler_to_wadm_has_its_form() -> None:
    scaler = {"type": "autoscaler", "properties": {"replicas": 1, "spread": []}}
    other = {"type": "pipe", "properties": link(target="ui", note="x")["properties"]}
    found = project(shop(spec__components__0__traits=[scaler, other]))
    assert found.manifest["spec"]["components"][0]["traits"] == [
        {"type": "autoscaler", "properties": {"instances": 1}},
        {"type": "pipe", "properties": link()["properties"]},
    ]
    assert found.ignored == ("spec.components[0].traits[1].properties.note",)


def test_an_empty_string_is_kept_as_wadm_distinguishes_it_from_null() -> None:
    found = project(
        shop(
            spec__components__0__properties={"image": "", "id": ""},
            spec__components__0__traits=[link(name=""), link(name=None)],
        )
    )
    component = found.manifest["spec"]["components"][0]
    assert component["properties"] == {"image": "", "id": ""}
    assert [trait["properties"].get("name") for trait in component["traits"]] == ["", None]


@pytest.mark.parametrize(
    "change",
    [
        {"spec__components__0__properties__image": "example.com/other:1"},
        {"spec__components__0__traits__0__properties__instances": 5},
        {"spec__components__1__traits__0__properties__target": "elsewhere"},
        {"spec__components__1__traits__1__properties__spread__0__requirements": {"zone": "c"}},
        {"spec__components__0__properties__config": [{"name": "c", "properties": {}}]},
        {"metadata__annotations": {"description": "another"}},
        {"metadata__labels": {"team": "a"}},
        {"spec__policies": [{"name": "p", "type": "t", "properties": {}}]},
    ],
    ids=lambda change: next(iter(change)),
)
def test_a_change_that_means_something_has_another_digest(change: dict[str, Any]) -> None:
    assert project(shop(**change)).digest != project(shop()).digest


def test_the_order_of_components_means_nothing() -> None:
    turned = shop()
    turned["spec"]["components"].reverse()
    assert project(turned).digest == project(shop()).digest


def test_a_configuration_that_is_empty_is_not_one_that_the_lattice_has() -> None:
    empty = project(shop(spec__components__0__properties__config=[{"name": "c", "properties": {}}]))
    named = project(shop(spec__components__0__properties__config=[{"name": "c"}]))
    assert empty.digest != named.digest


def test_a_spread_without_requirements_is_what_wadm_makes_of_empty_ones_and_is_never_sent() -> None:
    empty = shop(spec__components__0__traits__0__properties__spread=[{"name": "s", "requirements": {}}])
    none = shop(spec__components__0__traits__0__properties__spread=[{"name": "s"}])
    assert project(none) == project(empty)
    assert project(none).manifest["spec"] == project(empty).manifest["spec"]
    (spread,) = project(none).manifest["spec"]["components"][0]["traits"][0]["properties"]["spread"]
    assert spread == {"name": "s", "requirements": {}}


def test_the_name_may_be_another_and_does_not_count() -> None:
    assert project(shop(), "Shop_1").manifest["metadata"]["name"] == "Shop_1"
    assert project(shop(), "Shop_1").digest == project(shop()).digest


@pytest.mark.parametrize(
    ("manifest", "named"),
    [
        (None, "manifest"),
        ({"metadata": {}}, "`metadata.name`"),
        (shop(spec__components=7), "`spec.components`"),
        (shop(spec__components__0__type="sidecar"), "`spec.components[0].type`"),
        (shop(spec__components__0__properties=[]), "`spec.components[0].properties`"),
        (shop(metadata__labels={"a": 1}), "`metadata.labels.a`"),
    ],
)
def test_an_invalid_manifest_is_refused_and_the_field_is_named(manifest: Any, named: str) -> None:
    with pytest.raises(ManifestError) as refused:
        project(manifest)
    assert named in str(refused.value)


_JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=6,
)


@st.composite
def damaged(draw: st.DrawFn) -> Any:
    """Return a manifest with something of any shape in one place of it."""
    manifest: Any = shop()
    node: Any = manifest
    while True:
        key = draw(st.sampled_from(list(node) if isinstance(node, dict) else list(range(len(node)))))
        if not isinstance(node[key], dict | list) or not node[key] or draw(st.booleans()):
            node[key] = draw(_JSON)
            return manifest
        node = node[key]


@given(damaged())
def test_a_projection_is_its_own_projection(manifest: Any) -> None:
    try:
        found = project(manifest)
    except ManifestError:
        return
    again = project(found.manifest)
    assert isinstance(again, Projection)
    assert (again.manifest, again.ignored, again.digest) == (found.manifest, (), found.digest)
