"""The real API server takes our definitions, takes good objects, refuses bad ones and names the field."""

from __future__ import annotations

import contextlib
import copy
import secrets
from typing import Any

import pytest

from support.cluster.definitions import OURS, ensure_served
from support.cluster.kube_world import MANAGER, eventually
from trellis.crds.kinds import KINDS, make_definition
from trellis.crds.shim import Shim
from trellis.kube.client import Kube
from trellis.kube.errors import Invalid, NotFound
from trellis.kube.resources import DEFINITIONS, SHIMS, Manifest
from trellis.provisioning.views import KWASM
from trellis_dev.localcluster.api import Api

pytestmark = pytest.mark.cluster

SHA256 = "ab" * 32

AS_RECORDED: dict[str, Any] = {
    "nodeSelector": {"spin": "true"},
    "fetchStrategy": {"type": "annonymousHttp", "anonHttp": {"location": "https://example.com/shim.tar.gz"}},
    "runtimeClass": {"name": "wasmtime-spin-v2", "handler": "spin"},
    "rolloutStrategy": {"type": "rolling", "rolling": {"maxUpdate": 5}},
}
WITH_OURS: dict[str, Any] = {
    "containerdRuntimeOptions": {"SystemdCgroup": "true"},
    "fetchStrategy": {
        "platforms": [{"os": "linux", "arch": "aarch64", "location": "https://example.com/a.tgz", "sha256": SHA256}],
        "oci": {"image": f"example.com/shim@sha256:{SHA256}", "pullSecret": {"name": "registry"}},
    },
    "runtimeClass": {
        "name": "spin",
        "handler": "spin",
        "overhead": {"podFixed": {"memory": "16Mi", "cpu": 1}},
        "scheduling": {
            "nodeSelector": {"example.com/tier": "edge", "empty": ""},
            "tolerations": [
                {"key": "dedicated", "operator": "Equal", "value": "wasm", "effect": "NoSchedule"},
                {"key": "spot", "operator": "Exists", "effect": "NoExecute", "tolerationSeconds": 60},
                {"operator": "Exists"},
            ],
        },
    },
    "rolloutStrategy": {"type": "rolling", "rolling": {"maxUpdate": "10%", "pauseOnFailures": 3}},
    "paused": True,
    "verify": {"canary": True, "canaryImage": "example.com/canary", "timeout": "90s"},
    "removalPolicy": "Drain",
    "startupTaint": {"key": "trellis.dev/not-ready", "effect": "NoSchedule"},
}


def tolerating(*tolerations: dict[str, Any]) -> dict[str, Any]:
    """Return the change of a Shim that gives its pods tolerations."""
    return {"runtimeClass__scheduling": {"tolerations": list(tolerations)}}


def shim(spec: dict[str, Any], **changes: Any) -> Manifest:
    """Return a Shim; a change names a field by its path, with ``__`` for dots, and None removes it."""
    spec = copy.deepcopy(spec)
    for path, value in changes.items():
        *parents, last = path.split("__")
        node = spec
        for parent in parents:
            node = node[parent]
        if value is None:
            del node[last]
        else:
            node[last] = value
    return {
        "apiVersion": SHIMS.api_version,
        "kind": SHIMS.kind,
        "metadata": {"name": f"test-{secrets.token_hex(4)}"},
        "spec": spec,
    }


@pytest.fixture
async def defined(kube: Kube, cluster_api: Api) -> Kube:
    """The connection, once the API server serves our kinds and has nothing against their schemas."""
    ensure_served(cluster_api, *OURS)
    for kind in OURS:
        await eventually(lambda name=kind.definition: _established(kube, name), f"{kind.definition} is served")
    return kube


async def _established(kube: Kube, name: str) -> bool:
    definition = await kube.get(DEFINITIONS, name)
    # The server says null until its controllers have looked at the definition.
    conditions = {c["type"]: c for c in definition.get("status", {}).get("conditions") or []}
    not_structural = conditions.get("NonStructuralSchema", {})
    assert not_structural.get("status") != "True", not_structural
    return conditions.get("Established", {}).get("status") == "True"


@pytest.mark.parametrize("spec", [AS_RECORDED, WITH_OURS], ids=["as recorded", "with every field of ours"])
async def test_a_good_object_is_kept_as_it_is_and_read_by_the_model(defined: Kube, spec: dict[str, Any]) -> None:
    made = await defined.create(SHIMS, shim(spec))
    try:
        assert made["spec"] == spec
        read = Shim.model_validate(made).spec
        assert read is not None
        assert read.model_dump(by_alias=True, exclude_none=True, mode="json") == spec
    finally:
        await defined.delete(SHIMS, made["metadata"]["name"], uid=made["metadata"]["uid"])


@pytest.mark.parametrize(
    ("changes", "named"),
    [
        ({"runtimeClass": None}, "spec.runtimeClass: Required"),
        ({"fetchStrategy__anonHttp__location": None}, "spec.fetchStrategy.anonHttp.location: Required"),
        ({"fetchStrategy__anonHttp__sha256": "abc"}, "spec.fetchStrategy.anonHttp.sha256"),
        ({"fetchStrategy__platforms": [{"os": "linux", "arch": "riscv", "location": "x"}]}, "platforms[0].arch"),
        ({"rolloutStrategy__type": "bluegreen"}, "spec.rolloutStrategy.type"),
        ({"rolloutStrategy__rolling__maxUpdate": "200%"}, "spec.rolloutStrategy.rolling.maxUpdate"),
        ({"rolloutStrategy__rolling__maxUpdate": 0}, "spec.rolloutStrategy.rolling.maxUpdate"),
        ({"rolloutStrategy__rolling__maxUpdate": -1}, "spec.rolloutStrategy.rolling.maxUpdate"),
        ({"rolloutStrategy__rolling__maxUpdate": "0%"}, "spec.rolloutStrategy.rolling.maxUpdate"),
        ({"runtimeClass__name": "Spin_V2"}, "spec.runtimeClass.name"),
        ({"runtimeClass__handler": "spin.v2"}, "spec.runtimeClass.handler"),
        ({"runtimeClass__handler": "runc"}, "spec.runtimeClass.handler"),
        ({"runtimeClass__scheduling": {"nodeSelector": {"a b": "x"}}}, "spec.runtimeClass.scheduling.nodeSelector"),
        ({"runtimeClass__scheduling": {"nodeSelector": {"a": "x y"}}}, "spec.runtimeClass.scheduling.nodeSelector.a"),
        (tolerating({"key": "a b"}), "spec.runtimeClass.scheduling.tolerations[0].key"),
        (tolerating({"key": "k", "operator": "In"}), "spec.runtimeClass.scheduling.tolerations[0].operator"),
        (tolerating({"key": "k", "effect": "Never"}), "spec.runtimeClass.scheduling.tolerations[0].effect"),
        (tolerating({"effect": "NoSchedule"}), "spec.runtimeClass.scheduling.tolerations[0]"),
        (tolerating({"key": "k", "operator": "Exists", "value": "v"}), "spec.runtimeClass.scheduling.tolerations[0]"),
        (tolerating({"key": "k", "tolerationSeconds": 1}), "spec.runtimeClass.scheduling.tolerations[0]"),
        (tolerating({"key": "k"}, {"key": "k"}), "spec.runtimeClass.scheduling.tolerations"),
        ({"removalPolicy": "Perhaps"}, "spec.removalPolicy"),
        ({"verify": {"timeout": "soon"}}, "spec.verify.timeout"),
        ({"fetchStrategy__oci": {"image": "r/x", "pullSecret": {"name": "../x"}}}, "oci.pullSecret.name"),
        (
            {"startupTaint": {"key": "node.kubernetes.io/not-ready", "effect": "NoSchedule"}},
            "spec.startupTaint",
        ),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
async def test_a_bad_object_is_refused_and_the_field_is_named(
    defined: Kube, changes: dict[str, Any], named: str
) -> None:
    with pytest.raises(Invalid) as refusal:
        await defined.create(SHIMS, shim(AS_RECORDED, **changes))
    assert named in str(refusal.value)


async def test_the_name_of_the_legacy_installer_is_reserved(defined: Kube) -> None:
    manifest = shim(AS_RECORDED)
    manifest["metadata"]["name"] = KWASM
    with pytest.raises(Invalid, match=f'"{KWASM}"'):
        await defined.create(SHIMS, manifest)


async def test_a_shim_cannot_select_by_the_label_that_its_nodes_get(defined: Kube) -> None:
    manifest = shim(AS_RECORDED)
    name = manifest["metadata"]["name"]
    manifest["spec"]["nodeSelector"] = {name: "true"}
    with pytest.raises(Invalid, match=r"spec\.nodeSelector"):
        await defined.create(SHIMS, manifest)
    manifest["spec"]["nodeSelector"] = {"pool": "wasm"}
    made = await defined.create(SHIMS, manifest)
    try:
        change = {"spec": {"nodeSelector": {name: "provisioned"}}}
        with pytest.raises(Invalid, match=r"spec\.nodeSelector"):
            await defined.merge_patch(SHIMS, name, change, field_manager=MANAGER)
        change = {"spec": {"runtimeClass": {"scheduling": {"nodeSelector": {name: "provisioned"}}}}}
        with pytest.raises(Invalid, match=r"spec\.runtimeClass\.scheduling\.nodeSelector"):
            await defined.merge_patch(SHIMS, name, change, field_manager=MANAGER)
    finally:
        await defined.delete(SHIMS, name, uid=made["metadata"]["uid"])


@pytest.mark.parametrize("field", ["handler", "name"])
async def test_fields_of_a_runtime_class_that_identify_a_shim_are_immutable(defined: Kube, field: str) -> None:
    made = await defined.create(SHIMS, shim(AS_RECORDED))
    name = made["metadata"]["name"]
    try:
        with pytest.raises(Invalid, match=rf"spec\.runtimeClass\.{field}: "):
            await defined.merge_patch(SHIMS, name, {"spec": {"runtimeClass": {field: "other"}}}, field_manager=MANAGER)
        change = {"spec": {"paused": True, "runtimeClass": {field: made["spec"]["runtimeClass"][field]}}}
        await defined.merge_patch(SHIMS, name, change, field_manager=MANAGER)
    finally:
        await defined.delete(SHIMS, name, uid=made["metadata"]["uid"])


async def test_an_object_from_before_the_rules_can_still_be_changed_and_deleted(defined: Kube) -> None:
    """Its finalizer and its status must be written, or it could never go."""
    manifest = shim(AS_RECORDED)
    name = manifest["metadata"]["name"]
    manifest["spec"]["nodeSelector"] = {name: "true"}
    manifest["spec"]["rolloutStrategy"]["rolling"]["maxUpdate"] = 0
    manifest["metadata"]["finalizers"] = ["trellis.dev/test"]
    kind = next(kind for kind in KINDS if kind.model is Shim)
    without = make_definition(kind)
    served = without["spec"]["versions"][0]["schema"]["openAPIV3Schema"]
    del served["x-kubernetes-validations"]
    rolling = served["properties"]["spec"]["properties"]["rolloutStrategy"]["properties"]["rolling"]
    del rolling["properties"]["maxUpdate"]["minimum"]
    await defined.apply(DEFINITIONS, without, field_manager=MANAGER, create_if_missing=True)
    try:
        made = await eventually_made(defined, manifest)
    finally:
        await defined.apply(DEFINITIONS, make_definition(kind), field_manager=MANAGER, create_if_missing=True)
    await eventually(lambda: _refuses(defined, manifest), "the rules hold again")
    status = {"status": {"nodes": 0, "nodesReady": 0}}
    await defined.merge_patch(SHIMS, name, status, field_manager=MANAGER, subresource="status")
    await defined.delete(SHIMS, name, uid=made["metadata"]["uid"])
    await defined.merge_patch(SHIMS, name, {"metadata": {"finalizers": None}}, field_manager=MANAGER)
    with pytest.raises(NotFound):
        await defined.get(SHIMS, name)


async def eventually_made(kube: Kube, manifest: Manifest) -> Manifest:
    """Create an object as soon as the definition is served that takes it."""
    made: list[Manifest] = []

    async def create() -> bool:
        with contextlib.suppress(Invalid):
            made.append(await kube.create(SHIMS, manifest))
        return bool(made)

    await eventually(create, "the object is taken")
    return made[0]


async def _refuses(kube: Kube, manifest: Manifest) -> bool:
    other = copy.deepcopy(manifest)
    other["metadata"] = {"name": f"{manifest['metadata']['name']}-2"}
    other["spec"]["nodeSelector"] = {other["metadata"]["name"]: "true"}
    try:
        made = await kube.create(SHIMS, other)
    except Invalid:
        return True
    await kube.delete(SHIMS, other["metadata"]["name"], uid=made["metadata"]["uid"])
    return False
