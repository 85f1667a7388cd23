"""The real API server takes our definition of Application, and the manifests that wadm took, and keeps them as written.

What wadm refuses and admission can tell is refused with the field's name; objects are sent by server-side dry run.
"""

from __future__ import annotations

import copy
import http
import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, Self

import pytest
import yaml

from support.wadm.applications_kind import ApplicationsKind
from trellis.crds.application import COMPONENTS_MAX, TRAITS_MAX, Application
from trellis_dev.localcluster.api import Api

pytestmark = pytest.mark.cluster

DATA = Path(__file__).parents[2] / "data"
Manifest = dict[str, Any]


def recorded() -> list[Manifest]:
    """Return the manifests that a real wadm took, as they were sent to it, and the form in which it gave one back."""
    exchanges = [json.loads(line) for line in (DATA / "lattice/wadm-replies.jsonl").read_text().splitlines()]
    sent = [
        yaml.safe_load(exchange["request"])
        for exchange in exchanges
        if exchange["reply"] and "created" in str(exchange["reply"])[:60]
    ]
    sent += [
        yaml.safe_load(exchange["request"]) for exchange in exchanges if "newversion" in str(exchange["reply"])[:60]
    ]
    return sent + [exchange["reply"]["manifest"] for exchange in exchanges if "manifest" in exchange["reply"]]


RECORDED = recorded()
SECRETS = [{"name": "password", "properties": {"policy": "vault", "key": "db", "field": "pw", "version": "1"}}]
EVERYTHING: Manifest = {
    "components": [
        {
            "name": "store",
            "type": "actor",
            "properties": {
                "image": "example.com/store:1",
                "id": "store-1",
                "config": [{"name": "own", "properties": {"a": "1"}}, {"name": "of-the-lattice"}],
                "secrets": SECRETS,
            },
            "traits": [
                {"type": "spreadscaler", "properties": {"instances": 0}},
                {
                    "type": "link",
                    "properties": {
                        "name": "second",
                        "namespace": "wasi",
                        "package": "keyvalue",
                        "interfaces": ["store", "atomics"],
                        "source": {"config": [{"name": "own"}], "secrets": SECRETS},
                        "target": {"name": "shared", "config": [{"name": "url", "properties": {}}], "secrets": SECRETS},
                    },
                },
                {"type": "custom", "properties": {"anything": {"goes": [1, "two", None]}}},
            ],
            "passedOver": {"by": "wadm"},
        },
        {"name": "shared", "type": "capability", "properties": {"application": {"name": "kv", "component": "redis"}}},
        {
            "name": "old",
            "type": "capability",
            "properties": {"image": "wasmcloud+builtin://http-server"},
            "traits": [
                {
                    "type": "daemonscaler",
                    "properties": {"replicas": 3, "spread": [{"name": "s", "requirements": {}, "weight": 10}]},
                },
                {
                    "type": "link",
                    "properties": {
                        "namespace": "wasi",
                        "package": "http",
                        "interfaces": ["incoming-handler"],
                        "source_config": [{"name": "h", "properties": {"address": "0.0.0.0:80"}}],
                        "target_config": [{"name": "t"}],
                        "target": "store",
                    },
                },
            ],
        },
    ],
    "policies": [
        {
            "name": "vault",
            "type": "policy.secret.wasmcloud.dev/v1alpha1",
            "properties": {"backend": "kube", "properties": "{}"},
        }
    ],
    "workflow": {"passed": "over by wadm"},
}


class Served(ApplicationsKind):
    """The kind, served for the time of a block as Trellis defines it, whatever an earlier test left."""

    def __enter__(self) -> Self:
        self.clear()
        self.define()
        return self

    def __exit__(self, *_: object) -> None:
        self.clear()

    def send(self, spec: Any, name: str = "shop") -> tuple[int, Any]:
        """Return status and answer of a dry run that refuses fields which are not known."""
        manifest = {
            "apiVersion": "core.oam.dev/v1beta1",
            "kind": "Application",
            "metadata": {"name": name},
            "spec": spec,
        }
        query = "dryRun=All&fieldValidation=Strict"
        return self.api.call("POST", f"/apis/core.oam.dev/v1beta1/namespaces/default/applications?{query}", manifest)


@pytest.fixture(scope="module")
def served(cluster_api: Api) -> Iterator[Served]:
    with Served(cluster_api) as kind:
        yield kind


def test_there_are_recorded_manifests() -> None:
    assert len(RECORDED) == 3


@pytest.mark.parametrize("manifest", [*RECORDED, {"spec": EVERYTHING}], ids=["sent", "changed", "given", "everything"])
def test_a_manifest_that_wadm_accepts_is_accepted_stored_unchanged_and_read(served: Served, manifest: Manifest) -> None:
    status, answer = served.send(manifest["spec"])
    assert status == http.HTTPStatus.CREATED, answer
    assert answer["spec"] == manifest["spec"]
    read = Application.model_validate(answer)
    assert [component.name for component in read.spec.components] == [
        component["name"] for component in manifest["spec"]["components"]
    ]


@pytest.mark.parametrize("name", ["a", "a-b", "0a", "a" * 253])
def test_a_name_that_both_sides_take_is_taken(served: Served, name: str) -> None:
    assert served.send(EVERYTHING, name)[0] == http.HTTPStatus.CREATED


@pytest.mark.parametrize("name", ["a.b", "shop.v1"])
def test_a_name_that_wadm_takes_in_no_form_is_refused(served: Served, name: str) -> None:
    status, answer = served.send(EVERYTHING, name)
    assert status == http.HTTPStatus.UNPROCESSABLE_ENTITY
    assert [cause["reason"] for cause in answer["details"]["causes"]] == ["FieldValueInvalid"]


def store(change: Callable[[Manifest], Any]) -> Manifest:
    """Return everything with its first component changed."""
    spec = copy.deepcopy(EVERYTHING)
    change(spec["components"][0])
    return spec


FIRST = "spec.components[0]"
BAD = [
    (store(lambda item: item["properties"].pop("image")), f"{FIRST}.properties: "),
    (
        store(lambda item: item["properties"].update(application={"name": "a", "component": "b"})),
        f"{FIRST}.properties: ",
    ),
    (store(lambda item: item["properties"].update(imgae="x")), 'unknown field "spec.components[0].properties.imgae"'),
    (store(lambda item: item.update(type="sidecar")), 'spec.components[0].type: Unsupported value: "sidecar"'),
    (store(lambda item: item.update(name="old")), 'spec.components[2]: Duplicate value: {"name":"old"}'),
    (store(lambda item: item["traits"][0]["properties"].pop("instances")), f"{FIRST}.traits[0]: "),
    (store(lambda item: item["traits"][0]["properties"].update(replicas=1)), f"{FIRST}.traits[0]: "),
    (store(lambda item: item["traits"][0]["properties"].update(instances="three")), "traits[0].properties.instances"),
    (store(lambda item: item["traits"][0]["properties"].update(instances=-1)), "traits[0].properties.instances"),
    (
        store(lambda item: item["traits"][0]["properties"].update(spread=[{"name": "s"}])),
        "properties.spread[0].requirements: Required",
    ),
    (store(lambda item: item["traits"][1]["properties"].pop("package")), f"{FIRST}.traits[1]: "),
    (store(lambda item: item["traits"][1]["properties"].update(interfaces=[1])), "properties.interfaces[0]"),
    (store(lambda item: item["properties"]["config"][0]["properties"].update(a=1)), "config[0].properties.a"),
    (store(lambda item: item["properties"]["secrets"][0]["properties"].pop("policy")), "properties.policy: Required"),
    (store(lambda item: item.update(traits=item["traits"][:1] * (TRAITS_MAX + 1))), f"{FIRST}.traits: Too many"),
    ({"components": [{"name": "x", "type": "component"}]}, "spec.components[0].properties: Required"),
    ({}, "spec.components: Required"),
    ({"components": []}, "spec.components: Invalid"),
]


@pytest.mark.parametrize(("spec", "named"), BAD, ids=[named for _, named in BAD])
def test_a_manifest_that_wadm_refuses_is_refused_and_the_field_is_named(
    served: Served, spec: Manifest, named: str
) -> None:
    status, answer = served.send(spec)
    assert status in {http.HTTPStatus.UNPROCESSABLE_ENTITY, http.HTTPStatus.BAD_REQUEST}, answer
    assert named in answer["message"]


@pytest.mark.parametrize(
    ("change", "named"),
    [
        ({"config": [{"name": "c"}]}, "spec.components[1].properties: "),
        ({"secrets": SECRETS}, "spec.components[1].properties: "),
        (None, "spec.components[1]: "),
    ],
    ids=["config", "secrets", "scaler"],
)
def test_a_shared_component_cannot_be_configured_a_second_time(
    served: Served, change: Manifest | None, named: str
) -> None:
    spec = copy.deepcopy(EVERYTHING)
    shared = spec["components"][1]
    if change is None:
        shared["traits"] = [{"type": "spreadscaler", "properties": {"instances": 1}}]
    else:
        shared["properties"] |= change
    status, answer = served.send(spec)
    assert status == http.HTTPStatus.UNPROCESSABLE_ENTITY
    assert named in answer["message"]


@pytest.mark.thorough
def test_as_many_components_and_traits_as_are_promised_are_taken(served: Served) -> None:
    link = EVERYTHING["components"][0]["traits"][1]
    component = {"type": "component", "properties": {"image": "example.com/a:1"}, "traits": [link] * TRAITS_MAX}
    many = [component | {"name": f"component-{number}"} for number in range(COMPONENTS_MAX)]
    status, answer = served.send({"components": many})
    assert status == http.HTTPStatus.CREATED, answer
    status, answer = served.send({"components": [*many, component | {"name": "one-more"}]})
    assert status == http.HTTPStatus.UNPROCESSABLE_ENTITY
    causes = {(cause["field"], cause["reason"]) for cause in answer["details"]["causes"]}
    assert ("spec.components", "FieldValueTooMany") in causes
