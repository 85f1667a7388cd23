"""The CRD of Trellis accepts and stores every object like the CRD of wasmcloud-operator, on a real API server.

The two stand side by side, the other's under a group of its own; objects are sent to both by server-side dry run.
"""

from __future__ import annotations

import copy
import http
import json
import random
import re
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from trellis.crds.host_config import WasmCloudHostConfig
from trellis.crds.kinds import KINDS, make_definition
from trellis.kube.resources import DEFINITIONS
from trellis_dev.localcluster.api import Api

pytestmark = pytest.mark.cluster

DATA = Path(__file__).parents[2] / "data"
PLURAL = "wasmcloudhostconfigs"
OURS = next(kind for kind in KINDS if kind.model is WasmCloudHostConfig)
THEIR_GROUP = "other.test.trellis.dev"
RECORDED = {path.parent.name: yaml.safe_load(path.read_text()) for path in DATA.glob("host_config/*/cr.yaml")}
SEEDS = range(200)

Spec = dict[str, Any]


def their_definition() -> dict[str, Any]:
    """Return the other's definition under a group of the test's."""
    definition: dict[str, Any] = json.loads((DATA / "crds/wasmcloud-operator.json").read_text())
    definition["metadata"]["name"] = f"{PLURAL}.{THEIR_GROUP}"
    definition["spec"]["group"] = THEIR_GROUP
    definition["spec"]["names"]["shortNames"] = []
    return definition


class Served:
    """The two kinds, served."""

    def __init__(self, api: Api, namespace: str) -> None:
        self.api = api
        self.namespace = namespace

    def define(self, definition: dict[str, Any]) -> None:
        group = definition["spec"]["group"]
        status, answer = self.api.call("POST", DEFINITIONS.path(), definition)
        assert status in {http.HTTPStatus.CREATED, http.HTTPStatus.CONFLICT}, answer
        deadline = time.monotonic() + 60
        while not self.api.ok(f"/apis/{group}/v1alpha1/{PLURAL}"):
            assert time.monotonic() < deadline, f"{group} is not served"
            time.sleep(0.05)

    def send(self, group: str, spec: Any, name: str = "group", **metadata: Any) -> tuple[int, Any]:
        """Return status and answer of a dry run."""
        manifest = {
            "apiVersion": f"{group}/v1alpha1",
            "kind": "WasmCloudHostConfig",
            "metadata": {"name": name} | metadata,
            "spec": spec,
        }
        path = f"/apis/{group}/v1alpha1/namespaces/{self.namespace}/{PLURAL}?dryRun=All"
        return self.api.call("POST", path, manifest)

    def ours(self, spec: Any, name: str = "group") -> tuple[int, Any]:
        return self.send(OURS.group, spec, name)

    def theirs(self, spec: Any, name: str = "group") -> tuple[int, Any]:
        return self.send(THEIR_GROUP, spec, name)


@pytest.fixture(scope="module")
def served(cluster_api: Api) -> Iterator[Served]:
    """The two kinds. Nothing is stored, so no test needs a namespace of its own."""
    both = Served(cluster_api, "default")
    both.define(make_definition(OURS))
    both.define(their_definition())
    yield both
    cluster_api.call("DELETE", DEFINITIONS.path(name=f"{PLURAL}.{THEIR_GROUP}"))


# What may be written in a field: mostly what works, some that never could.
TEXTS = ("", "a", "nats://example.com", "has space", "größe", "x" * 70, "*.>")
NUMBERS = (0, 1, 7, 4222, 65535, 65536, 4294967295, 4294967296)
WRONG = (-1, "1", 1.5, True, [], {}, None, ["a"], {"a": 1})
IMAGES = ("ghcr.io/a/b:1", "a", "localhost:5000/x@sha256:" + "a" * 64, "", "two words")
VERSIONS = ("1.4.0", "latest", "1.4.0@sha256:" + "0" * 64, "", "a/b", "1 2")
LABELS = ({}, {"zone": "a"}, {"A.b-c_d": ""}, {"-": "x"}, {"a/b": "x"}, {"a": "b c"}, {"a": "x" * 64})
AUTHORITIES: tuple[Any, ...] = (
    {"name": "a", "secret": {"secretName": "s", "items": [{"key": "a.crt", "path": "b"}], "defaultMode": 256}},
    {"name": "b", "configMap": {"name": "c", "optional": True}},
    {"name": "c", "emptyDir": {}},
    {"name": "d", "secret": {}},
    {"name": "e", "configMap": {"optional": True}},
    {"secret": {"secretName": "s"}},
)
PODS: tuple[Any, ...] = (
    {},
    {"nodeSelector": {"a": "b"}, "tolerations": [{"operator": "Exists"}], "volumes": [{"name": "v", "emptyDir": {}}]},
    {"containers": [{"name": "extra", "image": "x"}], "terminationGracePeriodSeconds": 5},
    {"affinity": {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": []}}}},
)
CONTAINERS: tuple[Any, ...] = (
    {},
    {"env": [{"name": "A", "value": "b"}], "livenessProbe": {"tcpSocket": {"port": 4222}}},
    {"name": "x", "resources": {"limits": {"cpu": "1"}}, "ports": [{"containerPort": 80}]},
)


PARTS: dict[str, tuple[Any, ...]] = {
    "image": IMAGES,
    "natsLeafImage": IMAGES,
    "version": VERSIONS,
    "hostLabels": LABELS,
    "podTemplateAdditions": PODS,
}


def value_for(schema: dict[str, Any], name: str, rng: random.Random) -> Any:
    """Return a value for a field of the other's schema, seldom one of a wrong type."""
    if rng.random() < 0.01:
        return rng.choice(WRONG)
    if schema.get("nullable") and rng.random() < 0.2:
        return None
    if name in PARTS or (name in {"nats", "wasmcloud"} and "image" in schema["properties"]):
        parts = PARTS.get(name, CONTAINERS)
        return copy.deepcopy(rng.choice(parts[:3] if rng.random() < 0.8 else parts))
    if "enum" in schema:
        return rng.choice([*schema["enum"], *schema["enum"], "other"])
    return plain_value(schema, name, rng)


def plain_value(schema: dict[str, Any], name: str, rng: random.Random) -> Any:
    match schema["type"]:
        case "string":
            return rng.choice(TEXTS)
        case "boolean":
            return rng.random() < 0.5
        case "integer":
            return rng.choice(NUMBERS[:5] if rng.random() < 0.9 else NUMBERS)
        case "array" if name == "authorities":
            return [copy.deepcopy(rng.choice(AUTHORITIES[:2] if rng.random() < 0.8 else AUTHORITIES))]
        case "array":
            return [value_for(schema["items"], "", rng) for _ in range(rng.randrange(3))]
        case "object" if "properties" in schema:
            return object_for(schema, rng)
        case _:
            return {rng.choice(("cpu", "memory")): rng.choice(("1", "100m", "64Mi"))}


def object_for(schema: dict[str, Any], rng: random.Random) -> dict[str, Any]:
    """Return an object with some of the fields, and nearly always with those that are required."""
    chance = 0.35
    required = schema.get("required", ())
    return {
        name: value_for(child, name, rng)
        for name, child in schema["properties"].items()
        if rng.random() < (0.99 if name in required else chance)
    }


def never_ran(spec: Spec) -> bool:
    """Say by rules of its own whether such a spec could never have produced a running host."""
    ports = (spec["natsClientPort"], spec["natsLeafnodePort"])
    label = re.compile(r"([A-Za-z0-9][A-Za-z0-9._-]{0,61})?[A-Za-z0-9]")
    labels = spec.get("hostLabels") or {}
    images = [image for key in ("image", "natsLeafImage") if (image := spec.get(key)) is not None]
    authorities = (spec.get("certificates") or {}).get("authorities") or []
    tag = re.compile(r"\w[\w.-]{0,127}(@\w+:[0-9a-f]{32,})?", re.ASCII)
    return (
        spec["hostReplicas"] > 2**31 - 1
        or max(ports) > 2**16 - 1
        or (spec.get("maxLinearMemoryBytes") or 0) > 2**32 - 1
        or ((spec.get("policyService") or {}).get("timeoutMs") or 0) > 2**32 - 1
        or (spec.get("image") is None and not tag.fullmatch(spec["version"]))
        or any(not image or re.search(r"\s", image) for image in images)
        or any(not label.fullmatch(key) or (value and not label.fullmatch(value)) for key, value in labels.items())
        or any(
            "secretName" not in authority.get("secret", {}) and "name" not in authority.get("configMap", {})
            for authority in authorities
        )
    )


def same_where_known(theirs: Any, ours: Any) -> bool:
    """Return whether our CRD stores all that the other stores; ours may keep more unknown fields."""
    if isinstance(theirs, dict) and isinstance(ours, dict):
        return all(key in ours and same_where_known(value, ours[key]) for key, value in theirs.items())
    if isinstance(theirs, list) and isinstance(ours, list):
        return len(theirs) == len(ours) and all(map(same_where_known, theirs, ours))
    return bool(theirs == ours)


@pytest.mark.parametrize("case", RECORDED)
def test_a_recorded_spec_is_accepted_as_by_the_other_crd(served: Served, case: str) -> None:
    spec = RECORDED[case]["spec"]
    status, theirs = served.theirs(spec)
    assert status == http.HTTPStatus.CREATED, theirs
    status, ours = served.ours(spec)
    assert status == http.HTTPStatus.CREATED, ours
    assert ours["spec"] == theirs["spec"]


@pytest.mark.thorough
def test_the_crd_accepts_what_the_other_crd_accepts_except_specs_that_could_never_run(served: Served) -> None:
    schema = their_definition()["spec"]["versions"][0]["schema"]["openAPIV3Schema"]["properties"]["spec"]
    outcomes = {"taken": 0, "never ran": 0, "refused by both": 0}
    for seed in SEEDS:
        spec = object_for(schema, random.Random(seed))
        status, theirs = served.theirs(spec)
        if status != http.HTTPStatus.CREATED:
            outcomes["refused by both"] += 1
            continue
        status, ours = served.ours(spec)
        if never_ran(theirs["spec"]):
            assert status == http.HTTPStatus.UNPROCESSABLE_ENTITY, (seed, spec)
            outcomes["never ran"] += 1
            continue
        assert status == http.HTTPStatus.CREATED, (seed, ours["message"], spec)
        assert same_where_known(theirs["spec"], ours["spec"]), (seed, theirs["spec"], ours["spec"])
        outcomes["taken"] += 1
    assert min(outcomes.values()) >= 20, outcomes  # else the generator shows nothing


@pytest.mark.parametrize(
    ("change", "named"),
    [
        ({"hostReplicas": 2**31}, "hostReplicas"),
        ({"natsClientPort": 65536}, "natsClientPort"),
        ({"natsLeafnodePort": 70000}, "natsLeafnodePort"),
        ({"maxLinearMemoryBytes": 2**32}, "maxLinearMemoryBytes"),
        ({"policyService": {"timeoutMs": 2**32}}, "timeoutMs"),
        ({"version": "one two"}, " version: "),
        ({"image": ""}, " image: "),
        ({"natsLeafImage": "a b"}, "natsLeafImage"),
        ({"hostLabels": {"a/b": "c"}}, " hostLabels: "),
        ({"hostLabels": {"a": "b c"}}, " hostLabels: "),
        ({"certificates": {"authorities": [{"name": "a", "emptyDir": {}}]}}, " certificates.authorities: "),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_a_spec_that_could_never_run_is_refused_by_field(served: Served, change: Spec, named: str) -> None:
    status, answer = served.ours({"lattice": "default", "version": "1.4.0"} | change)
    assert status == http.HTTPStatus.UNPROCESSABLE_ENTITY
    assert named in answer["message"]


def test_a_name_longer_than_a_label_is_refused(served: Served) -> None:
    spec = {"lattice": "default", "version": "1.4.0"}
    assert served.ours(spec, "a" * 63)[0] == http.HTTPStatus.CREATED
    status, answer = served.ours(spec, "a" * 64)
    assert status == http.HTTPStatus.UNPROCESSABLE_ENTITY
    assert "longer than 63 characters" in answer["message"]


def test_fields_of_older_manifests_and_parts_of_a_pod_are_kept_as_written(served: Served) -> None:
    spec: Spec = {
        "lattice": "default",
        "version": "1.4.0",
        "daemonset": True,
        "issuers": ["CAAA"],
        "schedulingOptions": {
            "podTemplateAdditions": {"spec": {"nodeSelector": {"a": "b"}}, "hostNetwork": True},
            "containerTemplateAdditions": {"nats": {"somethingNew": 1}},
            "resources": {"nats": {"limits": {"cpu": 1, "memory": "64Mi"}}},
        },
        "certificates": {"authorities": [{"name": "a", "secret": {"secretName": "s", "defaultMode": 256}}]},
    }
    status, answer = served.ours(spec)
    assert status == http.HTTPStatus.CREATED, answer
    assert same_where_known(spec, answer["spec"])
